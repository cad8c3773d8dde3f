#include "apps/report/dot.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "frit/core/error.h"

namespace frit::apps {
namespace {

namespace fs = std::filesystem;

/// A file that goes when this does.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) : path_((fs::temp_directory_path() / "frit_XXXXXX").string()) {
    const int descriptor = mkstemp(path_.data());
    if (descriptor < 0) fail(ErrorKind::file_system, path_, ": no temporary file can be made");
    FILE* const file = fdopen(descriptor, "w");
    const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
    if (std::fclose(file) != 0 || !written) fail(ErrorKind::file_system, path_, ": cannot be written");
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::string draw_dot(const std::string& graph) {
  const TemporaryFile file(graph);
  std::string name;
  for (const char c : file.path()) name += c == '\'' ? "'\\''" : std::string(1, c);
  FILE* const dot = popen(("command -v dot >/dev/null || exit 127; exec dot -Tsvg '" + name + "'").c_str(), "r");
  if (dot == nullptr) fail(ErrorKind::file_system, "dot: cannot be started");
  std::string svg;
  std::array<char, 4096> buffer;
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), dot)) svg.append(buffer.data(), count);
  const int status = pclose(dot);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 127) fail(ErrorKind::file_system, "dot: not found; hint: install Graphviz, or take --format dot and draw it elsewhere");
  if (code != 0) fail(ErrorKind::file_system, "dot: failed with code ", code);
  return svg;
}

}  // namespace frit::apps
