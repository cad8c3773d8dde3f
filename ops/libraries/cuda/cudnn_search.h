#pragma once

// Configurations made ready to run, and the choice of one. For the files cudnn*.cpp alone.

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

/// The fastest, as the plan cache knows it; null if it does not.
std::unique_ptr<ConvolutionPlan> remembered_plan(const ConvolutionKey& key, const Finish& finish, cudnnHandle_t handle);

/// By time, which the plan cache then remembers, or by heuristic, where no exhaustive search is asked for, the problem is small, or there
/// is no memory to try plans on: the first of cuDNN's ranking that runs, or the fastest of a few where that is far too slow. Null if cuDNN
/// has none; throws ErrorKind::device if it has but all want a larger workspace. What is timed is built first, on as many threads as there
/// are handles, at least one, of the key's device.
std::unique_ptr<ConvolutionPlan> search_plan(const ConvolutionKey& key, const Finish& finish, std::span<const cudnnHandle_t> handles);

}  // namespace frit::cudnn
