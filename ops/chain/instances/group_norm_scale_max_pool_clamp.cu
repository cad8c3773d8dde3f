// clamp(max_pool2d(group_norm(input) * scale)), forward.

#include "frit/ops/chain/chain.h"
#include "frit/ops/chain/schedules/pooled_tiles.cuh"
#include "frit/ops/chain/schedules/streamed_gradient.cuh"
#include "frit/ops/norm/norm.cuh"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = GroupNormScaleMaxPoolClampAttributes;
using Geometry = GroupNormPoolGeometry;

/// A thread a channel of a sample.
template <class Stored>
__global__ void make_maps(GroupMap<Computed<Stored>>* maps /* (N, C) */, StatisticsOutputs statistics, GroupParameters<Stored> parameters,
                          std::int64_t planes, std::int64_t channels, std::int64_t group_channels) {
  for (std::int64_t plane = cuda::first_item(); plane < planes; plane += cuda::item_step()) {
    const std::int64_t slice = plane / group_channels;
    maps[plane] = parameters.map(plane % channels, statistics.means[slice], statistics.rstds[slice]);
  }
}

/// One window a thread, neighbours side by side in the input's memory. Reads the input once, from the cache. Deterministic.
template <class Stored, class Index>
__global__ void pool_windows(MaximumOutputs<Stored, Index> outputs, const Stored* input,
                             const GroupMap<Computed<Stored>>* maps /* (N, C) */, Clamp<Computed<Stored>> clamp, Planes planes,
                             Places places, ElementOrder order, WindowAxis height, WindowAxis width, cuda::Divisor columns) {
  const std::int64_t windows = static_cast<std::int64_t>(height.output) * width.output;
  for (std::int64_t n = blockIdx.y; n < planes.samples; n += gridDim.y) {
    for (std::int64_t i = cuda::first_item(); i < planes.channels * windows; i += cuda::item_step()) {
      std::int64_t c, window;
      order.locate(i, c, window);
      const auto number = static_cast<std::uint32_t>(window), row = columns.quotient(number), column = columns.remainder(number, row);
      const auto best = find_window_maximum(maps[n * planes.channels + c], input + places(n, c, 0), places.pixel, height, width,
                                            static_cast<std::int32_t>(row), static_cast<std::int32_t>(column));
      outputs.write((n * planes.channels + c) * windows + window, clamp(best.value), best.number, best.element);
    }
  }
}

NormGeometry norm_of(const Shape& input, const ChainAttributes& attributes) {
  return norm_geometry(input, GroupNormAttributes{attributes.num_groups});
}

StatisticsScratch scratch_of(const Planes& planes, const NormGeometry& norm, Layout layout, bool wide) {
  return {cuda_norm_scratch(norm, layout), norm.slices, planes.samples * planes.channels,
          wide ? sizeof(GroupMap<double>) : sizeof(GroupMap<float>)};
}

/// A norm's statistics, and a pass over the windows.
template <class Stored, class Index>
void in_two_passes(const KernelContext& call, const Geometry& geometry) {
  using T = Computed<Stored>;
  const Tensor& input = call.inputs[0];
  const auto& attributes = call.as<ChainAttributes>();
  const NormGeometry norm = norm_of(input.shape(), attributes);
  const Planes planes(input.shape());
  const Places places(input, planes);
  const StatisticsScratch scratch = scratch_of(planes, norm, input.layout(), std::is_same_v<T, double>);
  const auto statistic = [&](std::size_t output, std::size_t place) {
    return call.outputs[output].defined() ? call.outputs[output].data<double>() : scratch_part<double>(call, place);
  };
  const StatisticsOutputs statistics{statistic(2, scratch.means), statistic(3, scratch.rstds)};
  find_cuda_statistics(call, norm, attributes.eps, statistics.means, statistics.rstds);
  Planes windows = planes;
  windows.pixels = geometry.windows();
  if (windows.samples * windows.channels * windows.pixels == 0) return;
  auto* const maps = scratch_part<GroupMap<T>>(call, scratch.maps);
  const std::int64_t all_planes = planes.samples * planes.channels;
  cuda::launch(make_maps<Stored>, cuda::loop_shape(all_planes), call.stream, maps, statistics, GroupParameters<Stored>(call, 1), all_planes,
               planes.channels, geometry.group_channels());
  cuda::launch(pool_windows<Stored, Index>, sample_loop_shape(planes.samples, windows.channels * windows.pixels), call.stream,
               MaximumOutputs<Stored, Index>::of(call), input.data<Stored>(), maps, Clamp<T>(attributes.clamp()), planes, places,
               ElementOrder(windows, places.channels_last()), WindowAxis(geometry.pool, 1), WindowAxis(geometry.pool, 2),
               cuda::Divisor(geometry.pool.output[2]));
}

/// Lays the tiles out for clusters of the size that costs least and calls launch(kernel, tiles, clusters), as many as run at a time; false
/// if there is none.
template <class Stored, int kernel, class Launch>
bool pool_tiles_of(const KernelContext& call, PooledTiles& tiles, const Launch& launch) {
  const bool numbered = call.outputs[1].defined();
  const auto run = numbered ? pool_tiles<Stored, kernel, true> : pool_tiles<Stored, kernel, false>;
  const std::int64_t clusters = tiles.choose_clusters(
      run, [&, room = StripPlan::room(call.inputs[0])](int blocks) { return tiles.fit(blocks, sizeof(Stored), numbered, room); });
  if (clusters > 0) launch(run, tiles, clusters);
  return clusters > 0;
}

/// The same where the device has clusters and the windows are of a kind that this is written for; else false.
template <class Stored, class Launch>
bool in_one_pass(const KernelContext& call, const Geometry& geometry, const Launch& launch) {
  if constexpr (std::is_same_v<Stored, double>) {
    return false;
  } else {
    PooledTiles tiles(call.inputs[0], geometry);
    if (tiles.strips == 0) return false;
    switch (tiles.height.kernel) {
      case 2: return pool_tiles_of<Stored, 2>(call, tiles, launch);
      case 3: return pool_tiles_of<Stored, 3>(call, tiles, launch);
      case 4: return pool_tiles_of<Stored, 4>(call, tiles, launch);
      default: return false;
    }
  }
}

/// inputs (input, weight, bias, scale), outputs (output, argmax, mean, rstd, argmax_input)
void run(const KernelContext& call) {
  const Geometry geometry(call.inputs[0].shape(), call.as<ChainAttributes>());
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class Stored>() {
    const auto launch = [&](auto* kernel, const PooledTiles& tiles, std::int64_t clusters) {
      const auto& attributes = call.as<ChainAttributes>();
      cuda::launch_clusters(kernel, tiles.shape(clusters), tiles.blocks, call.stream, MaximumOutputs<Stored, std::uint8_t>::of(call),
                            StatisticsOutputs::of(call), call.inputs[0].data<Stored>(), GroupParameters<Stored>(call, 1),
                            Clamp<float>(attributes.clamp()), attributes.eps, tiles);
    };
    if (in_one_pass<Stored>(call, geometry, launch)) return;
    dispatch_argmax(argmax_dtype(geometry.kernel_elements()), [&]<class Index>() { in_two_passes<Stored, Index>(call, geometry); });
  });
}

std::string describe(const KernelContext& call) {
  const Geometry geometry(call.inputs[0].shape(), call.as<ChainAttributes>());
  bool once = false;
  dispatch_floating_and_halves(call.inputs[0].dtype(),
                               [&]<class Stored>() { once = in_one_pass<Stored>(call, geometry, [](const auto&...) {}); });
  return once ? "in one pass, held by clusters" : "statistics first";
}

std::size_t scratch_bytes(const InferContext& call) {
  const NormGeometry norm = norm_of(call.shape(0), call.as<ChainAttributes>());
  return scratch_of(Planes(call.shape(0)), norm, call.input_layout(0), call.inputs[0].dtype == DType::f64).all.bytes();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(group_norm_scale_max_pool_clamp) {
  using namespace frit::ops;
  registry.add_cuda("group_norm_scale_max_pool_clamp",
                    {.run = run, .halves = true, .scratch = scratch_bytes, .any_layout_inputs = {0}, .describe = describe});
}
