// clamp(max_pool2d(group_norm(input) * scale)), forward.

#include "frit/ops/fused/group_norm_scale_max_pool_clamp_cuda.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = GroupNormScaleMaxPoolClampAttributes;
using Geometry = GroupNormPoolGeometry;

/// What the statistics of the input become: those that are kept, and the maps that the second walk applies.
template <class Stored>
struct CloseGroups {
  using T = ComputeType<Stored>;

  std::int64_t groups, group_channels;
  double eps;
  const Stored *weight, *bias, *scale;
  double *means, *rstds;  // (N, G), or null
  GroupMap<T>* maps;      // (N, C)

  __device__ void operator()(std::int64_t slice, const DeviceMoments& moments) const {
    const double rstd = 1 / sqrt(moments.variance + eps);
    if (means != nullptr) means[slice] = moments.mean;
    if (rstds != nullptr) rstds[slice] = rstd;
    for (std::int64_t i = 0; i < group_channels; ++i) {
      const std::int64_t c = slice % groups * group_channels + i;
      maps[slice * group_channels + i] = GroupMap<T>(moments.mean, rstd, convert<T>(weight[c]), convert<T>(bias[c]), convert<T>(scale[c]));
    }
  }
};

/// One window a thread, neighbours side by side in the input's memory. Reads the input once, from the cache. Deterministic.
template <class Stored, class Winner>
__global__ void pool_windows(Stored* output /* (N, C, H', W') */, Winner* winners /* likewise */, const Stored* input,
                             const GroupMap<ComputeType<Stored>>* maps /* (N, C) */, Clamp<ComputeType<Stored>> clamp, Planes planes,
                             Places places, WindowAxis height, WindowAxis width) {
  using T = ComputeType<Stored>;
  const std::int64_t windows = static_cast<std::int64_t>(height.output) * width.output, count = planes.samples * planes.channels * windows;
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    std::int64_t c, window, n;
    if (places.pixel != 1) {
      c = i % planes.channels, window = i / planes.channels % windows, n = i / planes.channels / windows;
    } else {
      window = i % windows, c = i / windows % planes.channels, n = i / windows / planes.channels;
    }
    const auto row = static_cast<std::int32_t>(window / width.output), column = static_cast<std::int32_t>(window % width.output);
    const GroupMap<T> map = maps[n * planes.channels + c];
    const Stored* const x = input + places(n, c, 0);
    T best = -std::numeric_limits<T>::infinity();
    std::int32_t winner = -1;
    for (std::int32_t kh = 0; kh < height.kernel; ++kh) {
      const std::int64_t h = height.place(row, kh);
      if (!height.inside(h)) continue;
#pragma unroll 4
      for (std::int32_t kw = 0; kw < width.kernel; ++kw) {
        const std::int64_t w = width.place(column, kw);
        if (!width.inside(w)) continue;
        const T value = map(convert<T>(x[(h * width.image + w) * places.pixel]));
        const bool wins = winner < 0 || replaces_maximum(value, best);
        best = wins ? value : best;
        winner = wins ? kh * width.kernel + kw : winner;
      }
    }
    const std::int64_t place = (n * planes.channels + c) * windows + window;
    if (output != nullptr) output[place] = convert<Stored>(clamp(best));
    if (winners != nullptr) winners[place] = static_cast<Winner>(winner);
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
void run_typed(const KernelContext& call, const Geometry& geometry) {
  using T = ComputeType<Stored>;
  const auto& attributes = call.as<ChainAttributes>();
  const Tensor& input = call.inputs[0];
  Planes planes(input.shape());
  const Places places(input, planes);
  const Scratch scratch(planes, sizeof(GroupMap<T>));
  auto* const partials = reinterpret_cast<ShiftedSums*>(call.scratch.data());
  auto* const maps = reinterpret_cast<GroupMap<T>*>(call.scratch.data() + scratch.partials);
  auto* const output = data_or_null<Stored>(call.outputs[0]);
  auto* const winners = data_or_null<Winner>(call.outputs[1]);
  double *const means = data_or_null<double>(call.outputs[2]), *const rstds = data_or_null<double>(call.outputs[3]);
  const std::int64_t samples = planes.samples, part = samples_in_cache(input);
  for (std::int64_t n = 0; n < samples; n += part) {
    planes.samples = std::min(part, samples - n);
    const Stored* const x = input.data<Stored>() + n * places.sample;
    const std::int64_t slice = n * geometry.groups, plane = n * planes.channels, windows = plane * geometry.windows();
    const auto at = [](auto* memory, std::int64_t offset) { return memory != nullptr ? memory + offset : nullptr; };
    const CloseGroups<Stored> close{.groups = geometry.groups,
                                    .group_channels = geometry.group_channels(),
                                    .eps = attributes.eps,
                                    .weight = call.inputs[1].data<Stored>(),
                                    .bias = call.inputs[2].data<Stored>(),
                                    .scale = call.inputs[3].data<Stored>(),
                                    .means = at(means, slice),
                                    .rstds = at(rstds, slice),
                                    .maps = maps + plane};
    find_moments(x, SliceSplit(planes, places, geometry.groups), partials, close, call.stream);
    const std::int64_t count = planes.samples * planes.channels * geometry.windows();
    if (count == 0) continue;
    cuda::launch(pool_windows<Stored, Winner>, cuda::loop_shape(count), call.stream, at(output, windows), at(winners, windows), x,
                 maps + plane, Clamp<T>(attributes.clamp()), planes, places, WindowAxis(geometry.pool, 1), WindowAxis(geometry.pool, 2));
  }
}

/// inputs (input, weight, bias, scale), outputs (output, winner, mean, rstd)
void run(const KernelContext& call) {
  const Geometry geometry(call.inputs[0].shape(), call.as<ChainAttributes>());
  dispatch_stored(call.inputs[0].dtype(), [&]<class Stored>() {
    dispatch_winner(winner_dtype(geometry.kernel_elements()), [&]<class Winner>() { run_typed<Stored, Winner>(call, geometry); });
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
