// clamp(max_pool2d(group_norm(input) * scale)), forward.

#include "frit/ops/chain/chain.h"
#include "frit/ops/chain/schedules/pooled_tiles.cuh"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = GroupNormScaleMaxPoolClampAttributes;
using Geometry = GroupNormPoolGeometry;

/// What the statistics of the input become: those that are kept, and the maps that the second pass applies.
template <class Stored>
struct FinalizeGroups {
  std::int64_t groups, group_channels;
  double eps;
  GroupParameters<Stored> parameters;
  GroupStatistics statistics;
  GroupMap<Computed<Stored>>* maps;  // (N, C)

  __device__ void operator()(std::int64_t slice, const DeviceMoments& moments) const {
    const double rstd = rsqrt(moments.variance + eps);
    statistics.write(slice, moments.mean, rstd);
    for (std::int64_t i = 0; i < group_channels; ++i) {
      maps[slice * group_channels + i] = parameters.map(slice % groups * group_channels + i, moments.mean, rstd);
    }
  }
};

/// One window a thread, neighbours side by side in the input's memory. Reads the input once, from the cache. Deterministic.
template <class Stored, class Index>
__global__ void pool_windows(PoolOutputs<Stored, Index> outputs, const Stored* input, const GroupMap<Computed<Stored>>* maps /* (N, C) */,
                             Clamp<Computed<Stored>> clamp, Planes planes, Places places, ElementOrder order, WindowAxis height,
                             WindowAxis width, cuda::Divisor columns) {
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

template <class Stored, class Index>
PoolOutputs<Stored, Index> outputs_of(const KernelContext& call) {
  return {data_or_null<Stored>(call.outputs[0]), data_or_null<Index>(call.outputs[1]), data_or_null<Stored>(call.outputs[4])};
}

/// Two passes over each part of the batch, of which the second finds it in the cache.
template <class Stored, class Index>
void in_two_passes(const KernelContext& call, const Geometry& geometry, const FinalizeGroups<Stored>& whole) {
  using T = Computed<Stored>;
  const Tensor& input = call.inputs[0];
  Planes planes(input.shape());
  const Places places(input, planes);
  const MapScratch scratch(planes, sizeof(GroupMap<T>));
  auto* const partials = reinterpret_cast<ShiftedSums*>(call.scratch.data());
  FinalizeGroups<Stored> finalize = whole;
  finalize.maps = reinterpret_cast<GroupMap<T>*>(call.scratch.data() + scratch.partials);
  const PoolOutputs<Stored, Index> outputs = outputs_of<Stored, Index>(call);
  const std::int64_t part = samples_in_cache(input), sample_windows = planes.channels * geometry.windows();
  // From the last to the first: the end of what a kernel before has written may still be in the cache.
  for (std::int64_t end = planes.samples; end > 0; end -= planes.samples) {
    planes.samples = std::min(part, end);
    const std::int64_t n = end - planes.samples;
    const Stored* const x = input.data<Stored>() + n * places.sample;
    finalize.statistics = whole.statistics.from(n * geometry.groups);
    find_moments(x, SliceSplit(planes, places, geometry.groups), partials, finalize, call.stream);
    if (sample_windows == 0) continue;
    Planes windows = planes;
    windows.pixels = geometry.windows();
    const ElementOrder order(windows, places.channels_last());
    cuda::launch(pool_windows<Stored, Index>, sample_loop_shape(planes.samples, sample_windows), call.stream,
                 outputs.from(n * sample_windows), x, finalize.maps, Clamp<T>(call.as<ChainAttributes>().clamp()), planes, places, order,
                 WindowAxis(geometry.pool, 1), WindowAxis(geometry.pool, 2), cuda::Divisor(geometry.pool.output[2]));
  }
}

/// Lays the tiles out for clusters of the size that costs least, and starts as many as run at a time; false if there is none.
template <class Stored, int kernel>
bool pool_tiles_of(const KernelContext& call, PooledTiles& tiles, const FinalizeGroups<Stored>& finalize) {
  const auto outputs = outputs_of<Stored, std::uint8_t>(call);
  const bool numbered = outputs.argmax != nullptr;
  const auto run = numbered ? pool_tiles<Stored, kernel, true> : pool_tiles<Stored, kernel, false>;
  const Tensor& input = call.inputs[0];
  const std::int64_t clusters = tiles.choose_clusters(
      run, [&, room = StripPlan::room(input)](int blocks) { return tiles.fit(blocks, sizeof(Stored), numbered, room); });
  if (clusters == 0) return false;
  cuda::launch_clusters(run, tiles.shape(clusters), tiles.blocks, call.stream, outputs, finalize.statistics, input.data<Stored>(),
                        finalize.parameters, Clamp<float>(call.as<ChainAttributes>().clamp()), finalize.eps, tiles);
  return true;
}

/// One pass, where the device has clusters and the windows are of a kind that this is written for; false if not.
template <class Stored>
bool in_one_pass(const KernelContext& call, const Geometry& geometry, const FinalizeGroups<Stored>& finalize) {
  if constexpr (std::is_same_v<Stored, double>) {
    return false;
  } else {
    PooledTiles tiles(call.inputs[0], geometry);
    if (tiles.strips == 0) return false;
    switch (tiles.height.kernel) {
      case 2: return pool_tiles_of<Stored, 2>(call, tiles, finalize);
      case 3: return pool_tiles_of<Stored, 3>(call, tiles, finalize);
      case 4: return pool_tiles_of<Stored, 4>(call, tiles, finalize);
      default: return false;
    }
  }
}

/// inputs (input, weight, bias, scale), outputs (output, argmax, mean, rstd, argmax_input)
void run(const KernelContext& call) {
  const Geometry geometry(call.inputs[0].shape(), call.as<ChainAttributes>());
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class Stored>() {
    const FinalizeGroups<Stored> finalize{
        .groups = geometry.groups,
        .group_channels = geometry.group_channels(),
        .eps = call.as<ChainAttributes>().eps,
        .parameters = {Parameter<Stored>(call.inputs[1]), Parameter<Stored>(call.inputs[2]), Parameter<Stored>(call.inputs[3])},
        .statistics = {data_or_null<double>(call.outputs[2]), data_or_null<double>(call.outputs[3])},
        .maps = nullptr};
    if (in_one_pass(call, geometry, finalize)) return;
    dispatch_argmax(argmax_dtype(geometry.kernel_elements()),
                    [&]<class Index>() { in_two_passes<Stored, Index>(call, geometry, finalize); });
  });
}

std::size_t scratch_bytes(const InferContext& call) {
  return MapScratch(Planes(call.shape(0)), call.inputs[0].dtype == DType::f64 ? sizeof(GroupMap<double>) : sizeof(GroupMap<float>)).total();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(group_norm_scale_max_pool_clamp) {
  using namespace frit::ops;
  registry.add_cuda("group_norm_scale_max_pool_clamp", {.run = run, .halves = true, .scratch = scratch_bytes, .any_layout_inputs = {0}});
}
