// The mean of each window.

#include "frit/ops/operator/registry.h"
#include "frit/ops/pool/avg_pool.cuh"
#include "frit/ops/pool/pool_layouts.cuh"

namespace frit::ops {
namespace {

void run(const KernelContext& call, int image_rank) {
  const PoolOptions& options = call.as<PoolOptions>();
  const PoolGeometry g = pool_geometry(call.inputs[0].shape(), options, image_rank);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    reduce_all_windows<T>(call.outputs[0], call.inputs[0], g, call.stream,
                          [&](std::int64_t) { return WindowMean<Computed<T>>{{options.count_include_pad}}; });
  });
}

void run_backward(const KernelContext& call, int image_rank) {
  const PoolOptions& options = call.as<PoolBackwardAttributes>().options;
  const PoolGeometry g = pool_geometry(call.outputs[0].shape(), options, image_rank);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    gather_all_windows<T>(call.outputs[0], call.inputs[0], g, call.stream,
                          [&](std::int64_t) { return EqualShare{{options.count_include_pad}}; });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(avg_pool) {
  for (const int image_rank : {2, 3}) {
    const std::string name = concat("avg_pool", image_rank, "d");
    registry.add_cuda(name, pool_kernel([image_rank](const KernelContext& call) { run(call, image_rank); }, {0}, {0}));
    registry.add_cuda(name + "_backward",
                      pool_kernel([image_rank](const KernelContext& call) { run_backward(call, image_rank); }, {0}, {0}));
  }
}
