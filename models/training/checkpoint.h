#pragma once

#include "frit/autograd/train_step.h"
#include "frit/models/checkpoint.h"

namespace frit {

/// Writes the variables of a training step's model. Its averages: save_checkpoint(path, step.graph(), *step.averaged(), metadata).
inline void save_checkpoint(const std::string& path, const TrainStep& step, const Metadata& metadata = {}) {
  save_checkpoint(path, step.graph(), step.state(), metadata);
}

/// Writes all that a training needs to go on with the same bits: every variable, those of the optimizer under "optimizer.", and in the
/// metadata the step's position. Of several processes the first writes it, after TrainStep::share_sums and gather_shards, and any number of
/// them may go on from it, with or without shards. What else the caller needs (the place in the data, see DataLoader::set_epoch) goes into
/// `metadata`.
void save_training(const std::string& path, const TrainStep& step, const Metadata& metadata = {});
/// Likewise of several steps that share their State; each is restored by itself, once all are built.
void save_training(const std::string& path, std::span<const TrainStep* const> steps, const Metadata& metadata = {});

/// Makes `step`, built as the one that was saved, go on from there. Throws ErrorKind::format if the file is no training's checkpoint, is
/// damaged, or is of another model, optimizer or number format; nothing is changed then. All processes call it.
void restore_training(const TensorFile& file, TrainStep& step);

/// Reads the whole file and checks all that can be checked without the model: its format version, that it is a training's, and every
/// checksum. Throws ErrorKind::format, ErrorKind::file_system.
TensorFile read_training(const std::string& path);
TensorFile read_training(const Input& input);

}  // namespace frit
