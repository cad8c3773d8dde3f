// The guard of updates and the dynamic loss scale, which lie in device memory: the host never asks how the step went.

#include "frit/core/cuda/launch.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/optimizer/gradient_scale.h"

namespace frit::ops {
namespace {

/// One thread. The variable and the count are the operator's other inputs.
template <class Step, class T>
__global__ void make_gradient_scale(T* gradient_scale, T* variable, std::int64_t* count, const T* norm, Step step) {
  const T result = step(*norm, *variable, *count);
  if (gradient_scale != nullptr) *gradient_scale = result;
}

template <template <class> class Step>
void run_step(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    cuda::launch(make_gradient_scale<Step<T>, T>, {.grid = 1, .block = 1}, call.stream, data_or_null<T>(call.outputs[0]),
                 call.inputs[1].data<T>(), call.inputs[2].data<std::int64_t>(), call.inputs[0].data<T>(),
                 Step<T>(call.as<typename Step<T>::Attributes>()));
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(gradient_scale) {
  registry.add_cuda("guard_update", {.run = run_step<Guard>});
  registry.add_cuda("update_loss_scale", {.run = run_step<LossScaleStep>});
}
