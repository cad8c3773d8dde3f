// The largest element of each window, and its place in the plane.

#include "frit/ops/operator/registry.h"
#include "frit/ops/pool/max_pool.cuh"
#include "frit/ops/pool/pool_layouts.cuh"

namespace frit::ops {
namespace {

void run(const KernelContext& call) {
  const PoolGeometry g = pool_geometry(call.inputs[0].shape(), call.as<PoolOptions>());
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    std::int32_t* const indices = data_or_null<std::int32_t>(call.outputs[1]);
    pool_all_windows<T, false>(call.outputs[0], call.inputs[0], g, call.stream,
                               [&](std::int64_t offset) { return WindowMaximum<Computed<T>>{moved(indices, offset)}; });
  });
}

std::optional<CentreKernel> centre(const KernelContext& call, const Stages& stages) {
  const TensorType image = staged_type(call, stages);
  const Tensor& indices = call.outputs[1];
  if (indices.defined() && !lies_in_channels(indices)) return std::nullopt;
  const PoolGeometry g = pool_geometry(image.shape, call.as<PoolOptions>());
  if (!stages.before.instructions.empty() && overlap_much(g)) return std::nullopt;
  const auto centre_of = [&](const char* type, const auto& make) {
    return channel_centre(g, image, stages, "frit/ops/pool/max_pool.cuh", "ChannelWindows",
                          concat(type, '<', name_of_computed(image.dtype), '>'),
                          [&]<class T, int width, class Index>(std::int64_t samples, std::int64_t channels) {
                            return channel_windows<width, Index>(make.template operator()<Computed<T>>(), g, samples, channels);
                          });
  };
  if (!indices.defined()) return centre_of("WindowMaximumValue", []<class C>() { return WindowMaximumValue<C>(); });
  return centre_of("WindowMaximum", [&]<class C>() { return WindowMaximum<C>{indices.data<std::int32_t>()}; });
}

void run_backward(const KernelContext& call) {
  const PoolGeometry g = pool_geometry(call.outputs[0].shape(), call.as<PoolBackwardAttributes>().options);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    pool_all_windows<T, true>(call.inputs[0], call.outputs[0], g, call.stream,
                              [&](std::int64_t offset) { return ArgmaxShare{call.inputs[1].data<std::int32_t>() + offset}; });
  });
}

std::optional<CentreKernel> backward_centre(const KernelContext& call, const Stages& stages) {
  const TensorType image = {staged_type(call, stages).dtype, call.outputs[0].shape()};
  const Tensor& indices = call.inputs[1];
  if (!lies_in_channels(indices)) return std::nullopt;
  const PoolGeometry g = pool_geometry(image.shape, call.as<PoolBackwardAttributes>().options);
  return channel_centre(g, image, stages, "frit/ops/pool/max_pool.cuh", "ChannelShares", "ArgmaxShare",
                        [&]<class T, int width, class Index>(std::int64_t samples, std::int64_t channels) {
                          return channel_shares<width, Index>(ArgmaxShare{indices.data<std::int32_t>()}, g, samples, channels);
                        });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(max_pool) {
  for (const std::string name : {"max_pool2d", "max_pool3d"}) {
    Kernel kernel = pool_kernel(run, {0}, {0, 1}, centre);
    registry.add_cuda(name, values_compiled(std::move(kernel), centre));
    registry.add_cuda(name + "_backward", pool_kernel(run_backward, {0, 1}, {0}, backward_centre, /*backward=*/true));
  }
}
