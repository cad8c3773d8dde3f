#pragma once

// The choice of a plan. For the files cudnn*.cpp alone.

#include "frit/ops/libraries/cuda/cudnn_plan.h"

namespace frit::cudnn {

/// From the plan cache, by time, or by heuristic: the first of cuDNN's ranking that runs, where no exhaustive search is asked for, the
/// problem is small, or there is no memory to try plans on. Null if cuDNN has none; throws ErrorKind::device if it has but all want a
/// larger workspace.
std::unique_ptr<ConvolutionPlan> choose_plan(const ConvolutionKey& key, const Finish& finish, cudnnHandle_t handle);

}  // namespace frit::cudnn
