#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "frit/core/device.h"
#include "frit/core/dtype.h"
#include "frit/core/shape.h"
#include "frit/core/text.h"

// CLI11 does the work of these and in few sources: it takes seconds to compile.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace frit::apps {

/// What the command line asks for; gives the exit code.
using Action = std::function<int()>;

/// A subcommand of `app`.
CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& description);
/// When `command` is chosen, parsing sets `action` to `run`.
void set_action(CLI::App& command, Action& action, Action run);

/// The paths of the files that a word of the command line stands for; none for a word that stands for no file.
using FilesOf = std::function<std::vector<std::string>(const std::string& word)>;

/// The word is the path of a file.
std::vector<std::string> the_path(const std::string& word);

/// An option that was added, to be told more of.
class Option {
 public:
  Option(CLI::App& command, CLI::Option* option) : command_(command), option_(option) {}

  Option& required();
  /// What stands for the value in the help.
  Option& type_name(const std::string& name);
  Option& default_str(const std::string& text);
  Option& envname(const std::string& variable);
  /// By the names of other options, which were added before.
  Option& excludes(const std::vector<std::string>& others);
  /// What the command reads must not be what it writes: see check_files(). For what can be given as input or output, one of these has to be
  /// said.
  Option& reads(FilesOf files = the_path);
  Option& writes(FilesOf files = the_path);

 private:
  CLI::App& command_;
  CLI::Option* option_;
};

// Each adds an option, or without dashes in its name a positional argument. An empty value is refused: most often it is a script's variable
// that is not set.
Option add_option(CLI::App& command, const std::string& name, std::string& value, const std::string& description);
Option add_option(CLI::App& command, const std::string& name, std::optional<std::string>& value, const std::string& description);
/// Any number of words.
Option add_option(CLI::App& command, const std::string& name, std::vector<std::string>& values, const std::string& description);
/// `take` is given the word, and calls `refuse` if it does not do.
Option add_option(CLI::App& command, const std::string& name, const std::function<void(const std::string&)>& take,
                  const std::string& description);
Option add_flag(CLI::App& command, const std::string& name, bool& value, const std::string& description);

inline constexpr const char* empty_value = "the value is empty";
/// Ends parsing: the value of the option `name` is not what it must be.
[[noreturn]] void refuse(const std::string& name, const std::string& message);

/// The exact number that `text` spells; nothing for other text, infinities and NaN. The locale plays no part.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

/// An option that takes a number of [least, most] into `value`: a T, or a std::optional<T>, which has no default.
template <class T, class Value>
Option add_number(CLI::App& command, const std::string& name, Value& value, T least, T most, const std::string& description) {
  const auto take = [name, least, most, &value](const std::string& text) {
    const std::optional<T> number = parse_number<T>(text);
    if (!number || *number < least || *number > most) {
      refuse(name, concat("expected ", std::is_integral_v<T> ? "an integer" : "a number", " from ", least, " to ", most, ", got \"",
                          printable(text), '"'));
    }
    value = *number;
  };
  Option option = add_option(command, name, take, description).type_name("N");
  if constexpr (std::is_same_v<T, Value>) {
    if (value >= least && value <= most) option.default_str(concat(value));  // otherwise it stands for "not given"
  }
  return option;
}

/// An option that takes one word of a list.
Option add_choice(CLI::App& command, const std::string& name, std::string& value, const std::vector<std::string>& choices,
                  const std::string& description);
Option add_dtype(CLI::App& command, DType& dtype, const std::vector<DType>& choices);
/// Mixed precision, which goes with parameters in float32: sets `dtype` too. After add_dtype, in whose place it is given.
Option add_precision(CLI::App& command, DType& precision, DType& dtype);
/// "4,3,16,16".
Option add_shape(CLI::App& command, const std::string& name, Shape& shape, const std::string& description);
Option add_path(CLI::App& command, const std::string& name, std::string& path, const std::string& description);

/// The file of the process's plan cache; without it, see plan_cache().
Option add_plan_cache(CLI::App& command, std::optional<std::string>& path);

/// Where and how a command computes.
struct RunOptions {
  std::string device = "auto";
  std::optional<int> threads = {};
  bool deterministic = false;
  std::string math = "tf32";
  std::int64_t workspace_limit = std::int64_t{1} << 30;
  std::optional<std::string> plan_cache = {};
  std::string search = "heuristic";

  void add_to(CLI::App& command, bool with_search = true);
  /// Sets the number of threads, how libraries compute and where plans are kept, and finds the device. Throws ErrorKind::device.
  Device apply() const;
};

inline constexpr std::int64_t most_ignore_index = std::int64_t{1} << 31;
/// Of masks: the class that counts for nothing.
Option add_ignore_index(CLI::App& command, std::optional<std::int64_t>& index);
Option add_seed(CLI::App& command, std::uint64_t& seed);
Option add_quiet(CLI::App& command, bool& quiet);
Option add_json(CLI::App& command, bool& json);

/// A model's configuration: JSON, or @ and the path of a file that has it.
Option add_config(CLI::App& command, std::string& config);

}  // namespace frit::apps
