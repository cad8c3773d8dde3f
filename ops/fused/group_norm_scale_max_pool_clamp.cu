// clamp(max_pool2d(group_norm(input) * scale)), forward.

#include "frit/ops/fused/pooled_tiles_cuda.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = GroupNormScaleMaxPoolClampAttributes;
using Geometry = GroupNormPoolGeometry;

/// What the statistics of the input become: those that are kept, and the maps that the second walk applies.
template <class Stored>
struct CloseGroups {
  std::int64_t groups, group_channels;
  double eps;
  GroupParameters<Stored> parameters;
  double *means, *rstds;                // (N, G), or null
  GroupMap<ComputeType<Stored>>* maps;  // (N, C)

  __device__ void operator()(std::int64_t slice, const DeviceMoments& moments) const {
    const double rstd = rsqrt(moments.variance + eps);
    if (means != nullptr) means[slice] = moments.mean;
    if (rstds != nullptr) rstds[slice] = rstd;
    for (std::int64_t i = 0; i < group_channels; ++i) {
      maps[slice * group_channels + i] = parameters.map(slice % groups * group_channels + i, moments.mean, rstd);
    }
  }
};

/// One window a thread, neighbours side by side in the input's memory. Reads the input once, from the cache. Deterministic.
template <class Stored, class Winner>
__global__ void pool_windows(Stored* output /* (N, C, H', W') */, Winner* winners /* likewise */, const Stored* input,
                             const GroupMap<ComputeType<Stored>>* maps /* (N, C) */, Clamp<ComputeType<Stored>> clamp, Planes planes,
                             Places places, ElementOrder order, WindowAxis height, WindowAxis width, cuda::Divisor columns) {
  const std::int64_t windows = static_cast<std::int64_t>(height.output) * width.output;
  for (std::int64_t n = blockIdx.y; n < planes.samples; n += gridDim.y) {
    for (std::int64_t i = cuda::first_item(); i < planes.channels * windows; i += cuda::item_step()) {
      std::int64_t c, window;
      order.locate(i, c, window);
      const auto number = static_cast<std::uint32_t>(window), row = columns.quotient(number), column = columns.remainder(number, row);
      const auto best = find_window_maximum(maps[n * planes.channels + c], input + places(n, c, 0), places.pixel, height, width,
                                            static_cast<std::int32_t>(row), static_cast<std::int32_t>(column));
      const std::int64_t place = (n * planes.channels + c) * windows + window;
      if (output != nullptr) output[place] = convert<Stored>(clamp(best.value));
      if (winners != nullptr) winners[place] = static_cast<Winner>(best.number);
    }
  }
}

/// The parts of the scratch memory.
struct Scratch {
  std::size_t partials, maps;

  /// `map_bytes` are those of one map.
  Scratch(const Planes& planes, std::size_t map_bytes)
      : partials(aligned(SliceSplit::scratch(planes, planes.samples))),
        maps(aligned(static_cast<std::size_t>(planes.samples * planes.channels) * map_bytes)) {}
  std::size_t total() const { return partials + maps; }

 private:
  static std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
};

/// Two walks over each part of the batch, of which the second finds it in the cache.
template <class Stored, class Winner>
void walk_twice(const KernelContext& call, const Geometry& geometry, CloseGroups<Stored> close) {
  using T = ComputeType<Stored>;
  const Tensor& input = call.inputs[0];
  Planes planes(input.shape());
  const Places places(input, planes);
  const Scratch scratch(planes, sizeof(GroupMap<T>));
  auto* const partials = reinterpret_cast<ShiftedSums*>(call.scratch.data());
  close.maps = reinterpret_cast<GroupMap<T>*>(call.scratch.data() + scratch.partials);
  const Stored* x = input.data<Stored>();
  Stored* output = data_or_null<Stored>(call.outputs[0]);
  Winner* winners = data_or_null<Winner>(call.outputs[1]);
  const auto advance = [](auto*& memory, std::int64_t offset) { memory = memory != nullptr ? memory + offset : nullptr; };
  const std::int64_t samples = planes.samples, part = samples_in_cache(input);
  for (std::int64_t n = 0; n < samples; n += part) {
    planes.samples = std::min(part, samples - n);
    find_moments(x, SliceSplit(planes, places, geometry.groups), partials, close, call.stream);
    if (planes.channels * geometry.windows() > 0) {
      Planes windows = planes;
      windows.pixels = geometry.windows();
      const ElementOrder order(windows, places.channels_last());
      cuda::launch(pool_windows<Stored, Winner>, sample_loop_shape(planes.samples, planes.channels * geometry.windows()), call.stream,
                   output, winners, x, close.maps, Clamp<T>(call.as<ChainAttributes>().clamp()), planes, places, order,
                   WindowAxis(geometry.pool, 1), WindowAxis(geometry.pool, 2), cuda::Divisor(geometry.pool.output[2]));
    }
    x += part * places.sample;
    close.maps += part * planes.channels;
    advance(close.means, part * geometry.groups);
    advance(close.rstds, part * geometry.groups);
    advance(output, part * planes.channels * geometry.windows());
    advance(winners, part * planes.channels * geometry.windows());
  }
}

template <class Stored, int kernel>
bool pool_tiles_of(const KernelContext& call, const PooledTiles& tiles, const CloseGroups<Stored>& close) {
  const Tensor& input = call.inputs[0];
  const PoolOutputs<Stored> outputs{data_or_null<Stored>(call.outputs[0]), data_or_null<std::uint8_t>(call.outputs[1]), close.means,
                                    close.rstds};
  const auto run = input.is_contiguous() ? pool_tiles<Stored, kernel, false> : pool_tiles<Stored, kernel, true>;
  const auto blocks = static_cast<unsigned>(tiles.planes.samples * tiles.units * tiles.blocks);
  const cuda::LaunchShape shape{dim3(blocks), dim3(PooledTiles::threads), tiles.shared_bytes};
  if (cuda::resident_clusters(run, shape, tiles.blocks) == 0) return false;
  cuda::launch_clusters(run, shape, tiles.blocks, call.stream, outputs, input.data<Stored>(), close.parameters,
                        Clamp<ComputeType<Stored>>(call.as<ChainAttributes>().clamp()), close.eps, tiles);
  return true;
}

/// One walk, where the device has clusters and the windows are of a kind that this is written for; false if not.
template <class Stored>
bool walk_once(const KernelContext& call, const Geometry& geometry, const CloseGroups<Stored>& close) {
  if constexpr (std::is_same_v<Stored, double>) {
    return false;
  } else {
    const PooledTiles tiles(call.inputs[0], geometry);
    if (tiles.blocks == 0) return false;
    switch (tiles.height.kernel) {
      case 2: return pool_tiles_of<Stored, 2>(call, tiles, close);
      case 3: return pool_tiles_of<Stored, 3>(call, tiles, close);
      case 4: return pool_tiles_of<Stored, 4>(call, tiles, close);
      default: return false;
    }
  }
}

/// inputs (input, weight, bias, scale), outputs (output, winner, mean, rstd)
void run(const KernelContext& call) {
  const Geometry geometry(call.inputs[0].shape(), call.as<ChainAttributes>());
  dispatch_stored(call.inputs[0].dtype(), [&]<class Stored>() {
    const CloseGroups<Stored> close{
        .groups = geometry.groups,
        .group_channels = geometry.group_channels(),
        .eps = call.as<ChainAttributes>().eps,
        .parameters = {call.inputs[1].data<Stored>(), call.inputs[2].data<Stored>(), call.inputs[3].data<Stored>()},
        .means = data_or_null<double>(call.outputs[2]),
        .rstds = data_or_null<double>(call.outputs[3]),
        .maps = nullptr};
    if (walk_once(call, geometry, close)) return;
    dispatch_winner(winner_dtype(geometry.kernel_elements()), [&]<class Winner>() { walk_twice<Stored, Winner>(call, geometry, close); });
  });
}

std::size_t scratch_bytes(const InferContext& call) {
  return Scratch(Planes(call.shape(0)), call.inputs[0].dtype == DType::f64 ? sizeof(GroupMap<double>) : sizeof(GroupMap<float>)).total();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(group_norm_scale_max_pool_clamp) {
  using namespace frit::ops;
  registry.add_cuda("group_norm_scale_max_pool_clamp", {.run = run, .halves = true, .scratch = scratch_bytes, .any_layout_inputs = {0}});
}
