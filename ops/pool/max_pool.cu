// The largest element of each window, and its place in the plane.

#include "frit/ops/operator/registry.h"
#include "frit/ops/pool/max_pool.cuh"
#include "frit/ops/pool/pool_layouts.cuh"

namespace frit::ops {
namespace {

void run(const KernelContext& call, int image_rank) {
  const PoolGeometry g = pool_geometry(call.inputs[0].shape(), call.as<PoolOptions>(), image_rank);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    std::int32_t* const indices = data_or_null<std::int32_t>(call.outputs[1]);
    reduce_all_windows<T>(call.outputs[0], call.inputs[0], g, call.stream,
                          [&](std::int64_t offset) { return Maximum<Computed<T>>{moved(indices, offset)}; });
  });
}

void run_backward(const KernelContext& call, int image_rank) {
  const PoolGeometry g = pool_geometry(call.outputs[0].shape(), call.as<PoolBackwardAttributes>().options, image_rank);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    gather_all_windows<T>(call.outputs[0], call.inputs[0], g, call.stream,
                          [&](std::int64_t offset) { return ArgmaxShare{call.inputs[1].data<std::int32_t>() + offset}; });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(max_pool) {
  for (const int image_rank : {2, 3}) {
    const std::string name = concat("max_pool", image_rank, "d");
    registry.add_cuda(name, pool_kernel([image_rank](const KernelContext& call) { run(call, image_rank); }, {0}, {0, 1}));
    registry.add_cuda(name + "_backward",
                      pool_kernel([image_rank](const KernelContext& call) { run_backward(call, image_rank); }, {0, 1}, {0}));
  }
}
