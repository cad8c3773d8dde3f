#include "apps/common/model_source.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "frit/core/io/file.h"
#include "frit/core/text.h"
#include "frit/ops/operator/operator.h"

namespace frit::apps {
namespace {

constexpr std::uint64_t config_file_limit = 1 << 20;

/// Whether it is a model's name, or a file's that is a model as it is.
bool registered(const std::string& name) {
  if (names_model_file(name)) return true;
  const std::vector<std::string> names = model_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool names_file(const std::string& argument) {
  if (registered(argument)) return false;
  std::error_code error;
  return argument.find_first_of("/.") != std::string::npos || std::filesystem::exists(argument, error);
}

std::vector<std::string> checkpoint_of(const std::string& argument) {
  return names_file(argument) || names_model_file(argument) ? std::vector{argument} : std::vector<std::string>();
}

bool names_model(const std::string& name) {
  if (registered(name)) return true;
  if (ops::registry().contains(name)) return false;
  std::vector<std::string> known = model_names();
  for (const ops::Operator* op : ops::registry().all()) known.push_back(op->name);
  fail(ErrorKind::argument, "unknown model or operator \"", printable(name), '"', did_you_mean(name, known), "; `frit info` lists them");
}

Model configured_model(const std::string& name, const std::string& config) {
  if (config.empty()) return make_model(name);
  const bool in_file = config.starts_with('@');
  const std::string text = in_file ? read_text(config.substr(1), config_file_limit) : config;
  try {
    return make_model(name, text);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::format) throw;
    if (in_file) fail(ErrorKind::format, printable(config.substr(1)), ": ", error.what());
    fail(ErrorKind::argument, "--model-config: ", error.what());
  }
}

ModelSource open_model(const std::string& name, const std::string& config) {
  if (!names_file(name)) return {configured_model(name, config), std::nullopt};
  require(config.empty(), "--model-config cannot be given with a checkpoint, which has its own configuration");
  TensorFile file = read_safetensors(name);
  Model model = model_of(file);
  return {std::move(model), std::move(file)};
}

void print_warning(const std::string& message) { std::cerr << "frit: warning: " << message << std::endl; }

}  // namespace frit::apps
