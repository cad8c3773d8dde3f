#pragma once

// A configuration made ready to run. For the files cudnn*.cpp alone.

#include "frit/ops/libraries/cuda/cudnn_graph.h"

namespace frit::cudnn {

struct ConvolutionPlan {
  ConvolutionKey key;
  Finish finish;
  ops::LibraryPlan facts;
  Descriptor configuration, descriptor;

  /// Some are compiled here, which takes seconds.
  ConvolutionPlan(const ConvolutionKey& for_key, Finish to_finish, Configuration from, cudnnHandle_t handle);
};

/// Bias and epilogue included. `workspace` has the plan's bytes, aligned to 256.
void start(const ConvolutionPlan& plan, const ConvolutionOperands& operands, void* workspace, cudnnHandle_t handle, CUstream_st* stream);

}  // namespace frit::cudnn
