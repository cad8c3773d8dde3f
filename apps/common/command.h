#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/common/options.h"

namespace frit::apps {

/// A subcommand, and which of its options name files.
class Command final : public CLI::App {
 public:
  struct FileOption {
    const CLI::Option* option;
    bool written;  ///< otherwise read
    FilesOf files;
  };

  using CLI::App::App;

  std::vector<FileOption> file_options;
};

/// To be called when all is parsed, and before anything is computed or opened for writing: throws ErrorKind::argument, naming both options,
/// if a file that the command would write is one that it reads, or that another of its options would write, by a link too. `config` is the
/// file of --config, or empty.
void check_files(const Command& command, const std::string& config);

}  // namespace frit::apps
