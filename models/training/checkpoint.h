#pragma once

#include "frit/autograd/train_step.h"
#include "frit/models/checkpoint.h"

namespace frit {

/// Writes the variables of a training step's model.
inline void save_checkpoint(const std::string& path, const TrainStep& step, const Metadata& metadata = {}) {
  save_checkpoint(path, step.graph(), step.state(), metadata);
}

}  // namespace frit
