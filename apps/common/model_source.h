#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frit/models/checkpoint.h"

namespace frit::apps {

/// What MODEL|CHECKPOINT on the command line stands for.
struct ModelSource {
  Model model;
  std::optional<TensorFile> checkpoint;  ///< none: fresh parameters
};

/// `name` is a registered model or the path of a checkpoint; `config` as given to --model-config, empty for none. Throws
/// ErrorKind::argument for an unknown name, or for a configuration given with a checkpoint, which has its own.
ModelSource open_model(const std::string& name, const std::string& config);
/// A registered model with the configuration of --model-config.
Model configured_model(const std::string& name, const std::string& config);

/// Whether `name` is a model's and not an operator's. Throws ErrorKind::argument for a name that is neither's.
bool names_model(const std::string& name);

/// Whether the argument means a file, not a name.
bool names_file(const std::string& argument);
/// The file that MODEL|CHECKPOINT means, if it does.
std::vector<std::string> checkpoint_of(const std::string& argument);

/// Runs `body`; what it refuses is the fault of what the file `path` holds: ErrorKind::format.
template <class Body>
decltype(auto) with_content_of(const std::string& path, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::argument && error.kind() != ErrorKind::format) throw;
    fail(ErrorKind::format, path, ": ", error.what());
  }
}

/// One line on stderr, "frit: warning: ...".
void print_warning(const std::string& message);

}  // namespace frit::apps
