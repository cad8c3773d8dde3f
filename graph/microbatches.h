#pragma once

#include <vector>

#include "frit/core/device.h"
#include "frit/graph/graph.h"

namespace frit::graph {

/// Operations that follow each other, leaves aside, and are computed for some samples of a batch at a time, one such part after the
/// other, so that what they hand on is still in a cache.
struct Microbatches {
  int first = 0, last = 0;  ///< node indices, both included
  std::int64_t count = 1;   ///< parts of equal size
};

/// On a CPU: where tensors of a whole batch do not fit a cache, those of fewer samples do, and operators say that they compute samples one
/// independently of the other (see ops::Operator::inputs_with_samples). Results are the same bits.
std::vector<Microbatches> find_microbatches(const Graph& graph, Device device);

/// A part's type, and the part itself.
TensorType microbatch_of(const TensorType& batch, std::int64_t count);
Tensor microbatch_of(const Tensor& batch, std::int64_t count, std::int64_t part);

}  // namespace frit::graph
