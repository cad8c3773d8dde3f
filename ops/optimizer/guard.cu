// The guard of updates against numbers that are not finite, which lies in device memory: the host never asks how the step went.

#include "frit/core/cuda/launch.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/optimizer/guard.h"

namespace frit::ops {
namespace {

/// One thread.
template <class T>
__global__ void guard_update(T* gradient_scale, std::int64_t* failures, const T* norm, const T* loss, Guard<T> guard) {
  const T result = guard(*norm, *loss, *failures);
  if (gradient_scale != nullptr) *gradient_scale = result;
}

void run(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    T* const result = call.outputs[0].defined() ? call.outputs[0].data<T>() : nullptr;
    cuda::launch(guard_update<T>, {.grid = 1, .block = 1}, call.stream, result, call.inputs[2].data<std::int64_t>(),
                 call.inputs[0].data<T>(), call.inputs[1].data<T>(), Guard<T>(call.as<GuardAttributes>()));
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(guard) { registry.add_cuda("guard_update", {.run = run}); }
