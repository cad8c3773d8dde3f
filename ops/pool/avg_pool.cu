// The mean of each window.

#include "frit/ops/operator/registry.h"
#include "frit/ops/pool/avg_pool.cuh"
#include "frit/ops/pool/pool_layouts.cuh"

namespace frit::ops {
namespace {

void run(const KernelContext& call) {
  const PoolOptions& options = call.as<PoolOptions>();
  const PoolGeometry g = pool_geometry(call.inputs[0].shape(), options);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    pool_all_windows<T, false>(call.outputs[0], call.inputs[0], g, call.stream,
                               [&](std::int64_t) { return WindowMean<Computed<T>>{{options.count_include_pad}}; });
  });
}

std::optional<CentreKernel> centre(const KernelContext& call, const Stages& stages) {
  const TensorType image = staged_type(call, stages);
  const PoolOptions& options = call.as<PoolOptions>();
  const PoolGeometry g = pool_geometry(image.shape, options);
  if (!stages.before.instructions.empty() && overlap_much(g)) return std::nullopt;
  return channel_centre(g, image, stages, "frit/ops/pool/avg_pool.cuh", "ChannelWindows",
                        concat("WindowMean<", name_of_computed(image.dtype), '>'),
                        [&]<class T, int width, class Index>(std::int64_t samples, std::int64_t channels) {
                          const WindowMean<Computed<T>> mean{{options.count_include_pad}};
                          return channel_windows<width, Index>(mean, g, samples, channels);
                        });
}

void run_backward(const KernelContext& call) {
  const PoolOptions& options = call.as<PoolBackwardAttributes>().options;
  const PoolGeometry g = pool_geometry(call.outputs[0].shape(), options);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    pool_all_windows<T, true>(call.inputs[0], call.outputs[0], g, call.stream,
                              [&](std::int64_t) { return EqualShare{{options.count_include_pad}}; });
  });
}

std::optional<CentreKernel> backward_centre(const KernelContext& call, const Stages& stages) {
  const TensorType image = {staged_type(call, stages).dtype, call.outputs[0].shape()};
  const PoolOptions& options = call.as<PoolBackwardAttributes>().options;
  const PoolGeometry g = pool_geometry(image.shape, options);
  return channel_centre(g, image, stages, "frit/ops/pool/avg_pool.cuh", "ChannelShares", "EqualShare",
                        [&]<class T, int width, class Index>(std::int64_t samples, std::int64_t channels) {
                          return channel_shares<width, Index>(EqualShare{{options.count_include_pad}}, g, samples, channels);
                        });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(avg_pool) {
  for (const std::string name : {"avg_pool2d", "avg_pool3d"}) {
    registry.add_cuda(name, pool_kernel(run, {0}, {0}, centre));
    registry.add_cuda(name + "_backward", pool_kernel(run_backward, {0}, {0}, backward_centre, /*backward=*/true));
  }
}
