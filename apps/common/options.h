#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "frit/core/device.h"
#include "frit/core/dtype.h"
#include "frit/core/shape.h"

namespace frit::apps {

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
CLI::Option* add_number(CLI::App& command, const std::string& name, Value& value, T least, T most, const std::string& description) {
  const auto take = [name, least, most, &value](const std::string& text) {
    const std::optional<T> number = parse_number<T>(text);
    if (!number || *number < least || *number > most) {
      throw CLI::ValidationError(name, concat("expected ", std::is_integral_v<T> ? "an integer" : "a number", " from ", least, " to ", most,
                                              ", got \"", text, '"'));
    }
    value = *number;
  };
  CLI::Option* const option = command.add_option_function<std::string>(name, take, description)->type_name("N");
  if constexpr (std::is_same_v<T, Value>) {
    if (value >= least && value <= most) option->default_str(concat(value));  // otherwise it stands for "not given"
  }
  return option;
}

/// An option that takes one word of a list.
CLI::Option* add_choice(CLI::App& command, const std::string& name, std::string& value, const std::vector<std::string>& choices,
                        const std::string& description);
CLI::Option* add_dtype(CLI::App& command, DType& dtype, const std::vector<DType>& choices);
/// Mixed precision, which goes with parameters in float32: sets `dtype` too. After add_dtype, in whose place it is given.
CLI::Option* add_precision(CLI::App& command, DType& precision, DType& dtype);
/// "4,3,16,16".
CLI::Option* add_shape(CLI::App& command, const std::string& name, Shape& shape, const std::string& description);
CLI::Option* add_path(CLI::App& command, const std::string& name, std::string& path, const std::string& description);

/// The file of the process's plan cache; without it, see plan_cache().
CLI::Option* add_plan_cache(CLI::App& command, std::optional<std::string>& path);

/// Where and how a command computes.
struct RunOptions {
  std::string device = "auto";
  std::optional<int> threads = {};
  bool deterministic = false;
  std::string math = "tf32";
  std::int64_t workspace_limit = std::int64_t{1} << 30;
  std::optional<std::string> plan_cache = {};

  void add_to(CLI::App& command);
  /// Sets the number of threads, how libraries compute and where plans are kept, and finds the device. Throws ErrorKind::device.
  Device apply() const;
};

CLI::Option* add_seed(CLI::App& command, std::uint64_t& seed);
CLI::Option* add_quiet(CLI::App& command, bool& quiet);

/// A model's configuration: JSON, or @ and the path of a file that has it.
CLI::Option* add_config(CLI::App& command, std::string& config);

}  // namespace frit::apps
