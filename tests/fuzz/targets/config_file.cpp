#include "apps/common/config_file.h"

#include "apps/training/train_settings.h"
#include "fuzz/fuzzing.h"

namespace frit::apps {
namespace {

/// The command `train` with the options of this file; as it would be written again.
std::string parsed(const std::string& text) {
  CLI::App app("", "frit");
  CLI::App& command = add_command(app, "train", "");
  std::string model;
  std::vector<std::string> more;
  TrainSettings settings;
  RunOptions run;
  add_option(command, "MODEL", model, "");
  add_option(command, "--more", more, "");
  settings.add_to(command);
  run.add_to(command);
  add_command(app, "other", "");
  const std::shared_ptr<ConfigFile> file = ConfigFile::add_to(app);
  const std::string path = fuzzing::path_of(text);
  const char* const arguments[] = {"frit", "train", "--config", path.c_str()};
  app.parse(static_cast<int>(std::size(arguments)), arguments);
  return file->text();
}

}  // namespace

FRIT_FUZZ_TARGET(config_file) {
  try {
    const std::string written = parsed(bytes);
    FRIT_CHECK(parsed(written) == written);
  } catch (const CLI::ParseError&) {
    // A value that its option refuses.
  }
}

}  // namespace frit::apps
