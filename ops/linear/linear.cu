// linear on CUDA devices.

#include "frit/ops/libraries/cuda/cublas.h"
#include "frit/ops/linear/matmul.h"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

void run_linear(const KernelContext& call) {
  const Tensor bias = call.has(2) ? call.inputs[2] : Tensor();
  cublas::multiply(linear_shape(call.inputs[0].shape(), call.inputs[1].shape()), call.inputs[0], call.inputs[1], bias, call.outputs[0],
                   call.scratch, call.stream);
}

std::size_t linear_scratch(const InferContext& call) { return cublas::product_scratch(linear_shape(call.shape(0), call.shape(1))); }

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(linear) { registry.add_cuda("linear", {.run = run_linear, .halves = true, .scratch = linear_scratch}); }
