#pragma once

#include <string>
#include <vector>

#include "frit/core/io/safetensors.h"
#include "frit/graph/state.h"
#include "frit/models/model.h"

namespace frit {

/// Writes the variables of `graph` (parameters and running statistics, not the optimizer's) as safetensors under their names, in one step:
/// a failure leaves the old file. The metadata names the model and its configuration.
void save_checkpoint(const std::string& path, const Graph& graph, const State& state, const Metadata& metadata = {});
/// What `model_of` reads back.
Metadata checkpoint_metadata(const Model& model);

/// The model that the metadata names. Throws ErrorKind::format if it names none or a configuration that does not fit.
Model model_of(const SafetensorsHeader& file);

struct RestoreOptions {
  bool allow_extra = false;  ///< tensors that the graph does not have are passed over
  bool strict = false;       ///< NaN and infinite values are an error
};
/// Copies a file's tensors into the variables of `graph`, converting the dtype, and returns remarks that a user should see: conversions,
/// and NaN or infinite values with their count and first index. Throws ErrorKind::format naming *all* missing, unexpected and misshapen
/// tensors; nothing is changed then.
std::vector<std::string> restore(const TensorFile& file, const Graph& graph, State& state, const RestoreOptions& options = {});

}  // namespace frit
