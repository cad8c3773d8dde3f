#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "frit/core/io/safetensors.h"
#include "frit/ops/value.h"

namespace frit {

// What the checkpoints of models and those of trainings have in common.

/// In the metadata of a training's checkpoint; what the optimizer keeps is named from the other on.
inline constexpr const char* training_key = "training";
inline constexpr std::string_view of_optimizer = "optimizer.";

/// Written with checksums, as tensors of the host.
void write_checkpoint(const std::string& path, TensorMap tensors, Metadata metadata);

/// Throws ErrorKind::format for a format version that is not this one's; a file of others has none.
void check_version(const SafetensorsHeader& file);

/// Tensors, in the order in which a message names them.
using WantedTensors = std::vector<std::pair<std::string, TensorType>>;

/// Throws ErrorKind::format naming *all* missing, unexpected and misshapen tensors, and with `exact_dtypes` those of another dtype. `extra`
/// says which others may be there.
void require_tensors(const TensorFile& file, const WantedTensors& wanted, bool exact_dtypes,
                     const std::function<bool(std::string_view name)>& extra);

}  // namespace frit
