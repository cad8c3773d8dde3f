#include "apps/common/command.h"

#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <optional>
#include <tuple>

#include "frit/core/text.h"

namespace frit::apps {
namespace {

/// What is one file under all its names: where it lies, or of one that is not there yet, where its folder does, and its name.
using Identity = std::tuple<dev_t, ino_t, std::string>;

/// Nothing for what holds nothing to lose, such as a device or a pipe, or cannot be made.
std::optional<Identity> identity_of(const std::string& path) {
  struct ::stat status;
  if (::stat(path.c_str(), &status) == 0)
    return S_ISREG(status.st_mode) ? std::optional(Identity(status.st_dev, status.st_ino, "")) : std::nullopt;
  const std::filesystem::path file(path);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  if (::stat(folder.c_str(), &status) != 0) return std::nullopt;
  return Identity(status.st_dev, status.st_ino, file.filename().string());
}

/// Calls visit(option, path) for each file that the command reads, or writes.
template <class Visit>
void each_file(const Command& command, bool written, const Visit& visit) {
  for (const Command::FileOption& file : command.file_options) {
    if (file.written != written) continue;
    for (const std::string& word : file.option->results()) {
      for (const std::string& path : file.files(word)) visit(file.option->get_name(), path);
    }
  }
}

}  // namespace

void check_files(const Command& command, const std::string& config) {
  struct Output {
    std::string option, path;
  };
  std::map<Identity, Output> outputs;
  each_file(command, /*written=*/true, [&](const std::string& option, const std::string& path) {
    const std::optional<Identity> identity = identity_of(path);
    if (!identity) return;
    const auto [other, is_new] = outputs.emplace(*identity, Output{option, path});
    require(is_new || other->second.option == option, other->second.option, " and ", option,
            " would write the same file: ", printable(path));
  });
  if (outputs.empty()) return;
  const auto check_input = [&](const std::string& option, const std::string& path) {
    const std::optional<Identity> identity = identity_of(path);
    const auto output = identity ? outputs.find(*identity) : outputs.end();
    if (output == outputs.end()) return;
    fail(ErrorKind::argument, output->second.option, " would overwrite ", option, ": ", printable(output->second.path));
  };
  if (!config.empty()) check_input("--config", config);
  each_file(command, /*written=*/false, check_input);
}

}  // namespace frit::apps
