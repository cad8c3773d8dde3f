#pragma once

// A configuration made ready to run. For the files cudnn*.cpp alone.

#include "frit/ops/libraries/cuda/cudnn_graph.h"

namespace frit::cudnn {

struct ConvolutionPlan {
  ConvolutionKey key;
  Finish finish;
  ops::LibraryPlan facts;
  Descriptor configuration, descriptor;
  Tensor constants;  ///< (2, 4): 3 and 1 / 6, each 16 bytes from the other, if the epilogue in the plan needs them

  /// Some are compiled here, which takes seconds.
  ConvolutionPlan(const ConvolutionKey& for_key, Finish to_finish, Configuration from, cudnnHandle_t handle);
};

/// Bias and epilogue included. `workspace` has the plan's bytes, aligned to 256.
void start(const ConvolutionPlan& plan, const ConvolutionOperands& operands, void* workspace, cudnnHandle_t handle, CUstream_st* stream);

}  // namespace frit::cudnn
