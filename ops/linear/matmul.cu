// matmul on CUDA devices.

#include "frit/ops/libraries/cuda/cublas.h"
#include "frit/ops/linear/matmul.h"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

void run_matmul(const KernelContext& call) {
  const GemmShape shape = matmul_shape(call.inputs[0].shape(), call.inputs[1].shape(), call.as<MatmulAttributes>());
  cublas::multiply(shape, call.inputs[0], call.inputs[1], {}, call.outputs[0], call.scratch, call.stream);
}

std::size_t matmul_scratch(const InferContext& call) {
  return cublas::product_scratch(matmul_shape(call.shape(0), call.shape(1), call.as<MatmulAttributes>()));
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(matmul) { registry.add_cuda("matmul", {.run = run_matmul, .halves = true, .scratch = matmul_scratch}); }
