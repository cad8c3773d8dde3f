#pragma once

// The choice of a plan. For the files cudnn*.cpp alone.

#include "frit/ops/libraries/cuda/cudnn_plan.h"

namespace frit::cudnn {

/// The fastest, as the plan cache knows it; null if it does not.
std::unique_ptr<ConvolutionPlan> remembered_plan(const ConvolutionKey& key, const Finish& finish, cudnnHandle_t handle);

/// By time, which the plan cache then remembers, or by heuristic: the first of cuDNN's ranking that runs, where no exhaustive search is
/// asked for, the problem is small, or there is no memory to try plans on. Null if cuDNN has none; throws ErrorKind::device if it has but
/// all want a larger workspace. What is timed is built first, on as many threads as there are handles, at least one, of the key's device.
std::unique_ptr<ConvolutionPlan> search_plan(const ConvolutionKey& key, const Finish& finish, std::span<const cudnnHandle_t> handles);

}  // namespace frit::cudnn
