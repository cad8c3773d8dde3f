#include <frit/core/cuda/launch.cuh>

#include "swish.h"

namespace {

/// A loop with a grid stride.
template <class T>
__global__ void swish_kernel(T* output, const T* input, std::int64_t elements, T beta) {
  for (std::int64_t i = frit::cuda::first_item(); i < elements; i += frit::cuda::item_step()) {
    output[i] = input[i] / (1 + exp(-beta * input[i]));
  }
}

void run_on_cuda(const frit::ops::KernelContext& c) {
  frit::dispatch_floating(c.inputs[0].dtype(), [&]<class T>() {
    const std::int64_t elements = c.inputs[0].elements();
    frit::cuda::launch(swish_kernel<T>, frit::cuda::loop_shape(elements), c.stream, c.outputs[0].data<T>(), c.inputs[0].data<T>(), elements,
                       static_cast<T>(c.as<Swish>().beta));
  });
}

}  // namespace

void register_swish_on_cuda() { frit::ops::registry().add_cuda("swish", {.run = run_on_cuda}); }
