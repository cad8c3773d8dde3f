#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace frit::apps {

/// Options from a file: a section for each command, in it a line `option = value` for each option, as TOML and INI files have it. What
/// stands before the first section is for whatever command is run.
class ConfigFile : public CLI::Config {
 public:
  /// Gives every command of `app` the options --config FILE and --print-config. An option on the command line wins over the file, and the
  /// file over an environment variable.
  static std::shared_ptr<ConfigFile> add_to(CLI::App& app);

  /// Called by the parser, which has opened the file by itself: what counts is what was read before. Throws ErrorKind::format, naming the
  /// line, for what is no configuration of the command that was chosen.
  std::vector<CLI::ConfigItem> from_config(std::istream& opened) const override;
  /// Called by none.
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return text(); }

  /// Of the file; empty without one.
  const std::string& path() const { return path_; }
  bool print_requested() const { return print_; }
  /// The chosen command with the value of each of its options: a file that has the same run done again.
  std::string text() const;

  /// "run.toml: line 3" if the file gave this option's value, otherwise empty.
  std::string origin(const CLI::Option& option) const;

 private:
  explicit ConfigFile(CLI::App& app) : app_(app) {}
  /// Returns what is wrong with the word, as CLI11 wants it; throws for what is wrong with the file.
  std::string read(const std::string& path);
  std::string section_of(std::string_view line) const;
  CLI::ConfigItem item_of(std::string_view line, const CLI::App& command, const std::vector<CLI::ConfigItem>& before,
                          const std::string& place) const;

  CLI::App& app_;
  std::string path_, text_;
  bool print_ = false;
  mutable std::map<const CLI::Option*, std::string> origins_;
};

}  // namespace frit::apps
