// A step of a dynamic loss scale, which lies in device memory: the host never asks how the step went.

#include "frit/core/cuda/launch.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/optimizer/loss_scale.h"

namespace frit::ops {
namespace {

/// One thread.
template <class T>
__global__ void step_loss_scale(T* gradient_scale, T* scale, std::int64_t* good_steps, const T* norm, LossScaleStep<T> step) {
  const T result = step(*norm, *scale, *good_steps);
  if (gradient_scale != nullptr) *gradient_scale = result;
}

void run(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    T* const result = call.outputs[0].defined() ? call.outputs[0].data<T>() : nullptr;
    cuda::launch(step_loss_scale<T>, {.grid = 1, .block = 1}, call.stream, result, call.inputs[1].data<T>(),
                 call.inputs[2].data<std::int64_t>(), call.inputs[0].data<T>(), LossScaleStep<T>(call.as<LossScaleAttributes>()));
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(loss_scale) { registry.add_cuda("update_loss_scale", {.run = run}); }
