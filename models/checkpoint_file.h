#pragma once

#include <string>
#include <utility>
#include <vector>

#include "frit/core/io/safetensors.h"
#include "frit/graph/graph.h"

namespace frit {

// What the checkpoints of models and those of trainings have in common.

/// In the metadata of a training's checkpoint, or "training/<name>" of a step that has a name; what the optimizer keeps is named from the
/// other on.
inline constexpr const char* training_key = "training";
inline constexpr std::string_view of_optimizer = "optimizer.";
/// The average of a parameter is called "optimizer.<parameter>.average", and this says how many updates the averages have seen.
inline constexpr std::string_view of_average = ".average", count_of_averages = "optimizer.averaged";

bool is_of_training(const SafetensorsHeader& file);

/// Written with checksums, as tensors of the host.
void write_checkpoint(const std::string& path, TensorMap tensors, Metadata metadata);

/// Throws ErrorKind::format for a format version that is not this one's; a file of others has none.
void check_version(const SafetensorsHeader& file);

/// Tensors, in the order in which a message names them.
using WantedTensors = std::vector<std::pair<std::string, TensorType>>;

/// The variables of a graph, in a file under `prefix` and their names.
WantedTensors variables_of(const Graph& graph, std::string_view prefix = {});

/// What else a file's tensors are asked for than to have the shapes that are wanted.
struct TensorRules {
  bool exact = false;        ///< the dtype too, and what is the optimizer's: a training goes on with them
  bool allow_extra = false;  ///< others are named only next to what is wrong
};
/// Throws ErrorKind::format naming *all* missing, unexpected and misshapen tensors, and those of a wrong dtype. Takes no memory for them:
/// it is called before any is taken for what a file declares.
void require_tensors(const SafetensorsHeader& file, const WantedTensors& wanted, const TensorRules& rules = {});

}  // namespace frit
