// Comparisons and where.

#include "frit/ops/cuda/pointwise.h"
#include "frit/ops/elementwise/compare_functors.h"

namespace frit::ops {
namespace {

template <template <class> class Function>
void run_cuda_comparison(const KernelContext& call) {
  dispatch_all(call.inputs[0].dtype(),
               [&]<class T>() { map_elements<std::uint8_t, T, T>(call.stream, call.outputs[0], call.inputs, Function<Computed<T>>{}); });
}

void run_cuda_where(const KernelContext& call) {
  dispatch_all(call.outputs[0].dtype(),
               [&]<class T>() { map_elements<T, std::uint8_t, T, T>(call.stream, call.outputs[0], call.inputs, Where<Computed<T>>{}); });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(compare) {
  registry.add_cuda("equal", elementwise_kernel(run_cuda_comparison<Equal>, 2));
  registry.add_cuda("not_equal", elementwise_kernel(run_cuda_comparison<NotEqual>, 2));
  registry.add_cuda("less", elementwise_kernel(run_cuda_comparison<Less>, 2));
  registry.add_cuda("less_equal", elementwise_kernel(run_cuda_comparison<LessEqual>, 2));
  registry.add_cuda("greater", elementwise_kernel(run_cuda_comparison<Greater>, 2));
  registry.add_cuda("greater_equal", elementwise_kernel(run_cuda_comparison<GreaterEqual>, 2));
  registry.add_cuda("where", elementwise_kernel(run_cuda_where, 3));
}
