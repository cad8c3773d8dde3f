#pragma once

#include <string>
#include <vector>

#include "frit/autograd/train_step.h"
#include "frit/core/io/safetensors.h"
#include "frit/models/model.h"

namespace frit {

/// Writes the variables of `graph` (parameters and running statistics, not the optimizer's) as safetensors under their names, with
/// checksums, in one step: a failure leaves the old file. The metadata names the model and its configuration.
void save_checkpoint(const std::string& path, const Graph& graph, const State& state, const Metadata& metadata = {});
void save_checkpoint(const std::string& path, const TrainStep& step, const Metadata& metadata = {});
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
/// tensors, or what does not have its checksum; nothing is changed then. The optimizer's part of a training's checkpoint is passed over.
std::vector<std::string> restore(const TensorFile& file, const Graph& graph, State& state, const RestoreOptions& options = {});

/// Writes all that a training needs to go on with the same bits: every variable, those of the optimizer under "optimizer.", and in the
/// metadata the step's position. What else the caller needs (the place in the data, see DataLoader::set_epoch) goes into `metadata`.
void save_training(const std::string& path, const TrainStep& step, const Metadata& metadata = {});

/// Makes `step`, built as the one that was saved, go on from there. Throws ErrorKind::format if the file is no training's checkpoint, is
/// damaged, or is of another model, optimizer or number format; nothing is changed then.
void restore_training(const TensorFile& file, TrainStep& step);

/// Reads the whole file and checks all that can be checked without the model: its format version, that it is a training's, and every
/// checksum. Throws ErrorKind::format, ErrorKind::file_system.
TensorFile read_training(const std::string& path);

}  // namespace frit
