#pragma once

#include <string>
#include <vector>

#include "frit/core/io/safetensors.h"
#include "frit/graph/state.h"
#include "frit/models/model.h"

namespace frit {

/// Writes the variables of `graph` (parameters and running statistics, not the optimizer's) as safetensors under their names, with
/// checksums, in one step: a failure leaves the old file. The metadata names the model and its configuration.
void save_checkpoint(const std::string& path, const Graph& graph, const State& state, const Metadata& metadata = {});
/// What `model_of` reads back.
Metadata checkpoint_metadata(const Model& model);

/// The model that the metadata name. Throws ErrorKind::format if they name none, or a configuration that does not fit, or one that declares
/// other parameters than the file has, under `prefix` and their names: so that no memory is taken for what a file only declares.
Model model_of(const SafetensorsHeader& file, std::string_view prefix = {});

struct RestoreOptions {
  bool allow_extra = false;  ///< tensors that the graph does not have are passed over
  bool strict = false;       ///< NaN and infinite values are an error
  /// Of the checkpoint of a training that kept averages (TrainOptions::average_decay, of a step without a name) and made an update: these,
  /// not the parameters as they were last.
  bool averages = true;
};
/// Copies a file's tensors into the variables of `graph`, converting the dtype, and returns remarks that a user should see: what was
/// converted, in one line, and NaN or infinite values with their count and first index. Throws ErrorKind::format naming *all* missing,
/// unexpected and misshapen tensors, or what does not have its checksum; nothing is changed then. What else a training's checkpoint
/// has of the optimizer is passed over.
std::vector<std::string> restore(const TensorFile& file, const Graph& graph, State& state, const RestoreOptions& options = {});

}  // namespace frit
