// max over channels of clamp(instance_norm(input * scale)) * post_scale, forward.

#include "frit/ops/fused/scale_instance_norm_clamp_scale_max_cuda.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = ScaleInstanceNormClampScaleMaxAttributes;

/// What the statistics of the input become: those of input * scale, and the map that the second walk applies.
template <class Stored>
struct CloseInstances {
  using T = ComputeType<Stored>;

  std::int64_t channels;
  double eps;
  const Stored *scale, *post_scale;
  double *means, *rstds;  // (N, C), or null
  InstanceMap<T>* maps;   // (N, C)

  __device__ void operator()(std::int64_t slice, const DeviceMoments& moments) const {
    const std::int64_t c = slice % channels;
    const T s = convert<T>(scale[c]);
    const double factor = isfinite(s) ? static_cast<double>(s) : nan("");
    const double mean = moments.mean * factor, rstd = 1 / sqrt(moments.variance * factor * factor + eps);
    if (means != nullptr) means[slice] = mean;
    if (rstds != nullptr) rstds[slice] = rstd;
    maps[slice] = InstanceMap<T>(s, convert<T>(post_scale[c]), mean, rstd);
  }
};

/// A pixel's largest value so far and its channel. The first of equal values wins, and the first NaN over everything.
template <class T>
struct ChannelMaximum {
  T value;
  std::int32_t channel;

  __device__ friend ChannelMaximum operator+(const ChannelMaximum& a, const ChannelMaximum& b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value, earlier = a.channel < b.channel;
    const bool equal = (a.value == b.value) | (a_nan & b_nan);
    const bool wins = equal ? earlier : (a_nan | ((a.value > b.value) & !b_nan));
    return wins ? a : b;
  }
};

/// `lanes` neighbouring threads a pixel, which share its channels. Reads the input once. Deterministic.
template <class Stored, class Winner>
__global__ void find_channel_maxima(Stored* output /* (N, pixels) */, Winner* winners /* likewise */, const Stored* input,
                                    const InstanceMap<ComputeType<Stored>>* maps /* (N, C) */, Clamp<ComputeType<Stored>> clamp,
                                    Planes planes, Places places, int lanes) {
  using T = ComputeType<Stored>;
  const int lane = static_cast<int>(threadIdx.x) % lanes, row = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t block_pixels = cuda::default_threads / lanes, pixel_step = gridDim.x * block_pixels;
  for (std::int64_t n = blockIdx.y; n < planes.samples; n += gridDim.y) {
    const InstanceMap<T>* const sample_maps = maps + n * planes.channels;
    for (std::int64_t first = blockIdx.x * block_pixels; first < planes.pixels; first += pixel_step) {
      const std::int64_t p = first + row;
      ChannelMaximum<T> best{-std::numeric_limits<T>::infinity(), lane};
      if (p < planes.pixels) {
        const Stored* const x = input + places(n, 0, p);
#pragma unroll 4
        for (auto c = static_cast<std::int32_t>(lane); c < planes.channels; c += lanes) {
          const InstanceMap<T> map = sample_maps[c];
          best = best + ChannelMaximum<T>{clamp(map.normalized(convert<T>(x[c * places.channel]))) * map.post_scale, c};
        }
      }
      for (int mask = lanes / 2; mask > 0; mask /= 2) best = best + cuda::shuffle_xor(best, mask);
      if (p < planes.pixels && lane == 0) {
        if (output != nullptr) output[n * planes.pixels + p] = convert<Stored>(best.value);
        if (winners != nullptr) winners[n * planes.pixels + p] = static_cast<Winner>(best.channel);
      }
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
void run_typed(const KernelContext& call) {
  using T = ComputeType<Stored>;
  const auto& attributes = call.as<ChainAttributes>();
  const Tensor& input = call.inputs[0];
  Planes planes(input.shape());
  const Places places(input, planes);
  const Scratch scratch(planes, sizeof(InstanceMap<T>));
  auto* const partials = reinterpret_cast<ShiftedSums*>(call.scratch.data());
  auto* const maps = reinterpret_cast<InstanceMap<T>*>(call.scratch.data() + scratch.partials);
  auto* const output = data_or_null<Stored>(call.outputs[0]);
  auto* const winners = data_or_null<Winner>(call.outputs[1]);
  double *const means = data_or_null<double>(call.outputs[2]), *const rstds = data_or_null<double>(call.outputs[3]);
  const std::int64_t samples = planes.samples, part = samples_in_cache(input);
  const int lanes = places.channels_last() ? lanes_for(planes.channels) : 1;
  for (std::int64_t n = 0; n < samples; n += part) {
    planes.samples = std::min(part, samples - n);
    const Stored* const x = input.data<Stored>() + n * places.sample;
    const std::int64_t slice = n * planes.channels, pixel = n * planes.pixels;
    const auto at = [](auto* memory, std::int64_t offset) { return memory != nullptr ? memory + offset : nullptr; };
    const CloseInstances<Stored> close{planes.channels,     attributes.eps,   call.inputs[1].data<Stored>(), call.inputs[2].data<Stored>(),
                                       at(means, slice), at(rstds, slice), maps + slice};
    find_moments(x, SliceSplit(planes, places, planes.channels), partials, close, call.stream);
    if (planes.pixels == 0) continue;
    const std::int64_t blocks = (planes.pixels * lanes + cuda::default_threads - 1) / cuda::default_threads;
    const cuda::LaunchShape shape{dim3(static_cast<unsigned>(std::min<std::int64_t>(blocks, 1 << 16)),
                                       static_cast<unsigned>(std::min<std::int64_t>(planes.samples, 1 << 15))),
                                  dim3(cuda::default_threads)};
    cuda::launch(find_channel_maxima<Stored, Winner>, shape, call.stream, at(output, pixel), at(winners, pixel), x, maps + slice,
                 Clamp<T>(attributes.clamp()), planes, places, lanes);
  }
}

/// inputs (input, scale, post_scale), outputs (output, winner, mean, rstd)
void run(const KernelContext& call) {
  dispatch_stored(call.inputs[0].dtype(), [&]<class Stored>() {
    dispatch_winner(winner_dtype(call.inputs[0].shape()[1]), [&]<class Winner>() { run_typed<Stored, Winner>(call); });
  });
}

std::size_t scratch_bytes(const InferContext& call) {
  return Scratch(Planes(call.shape(0)), call.inputs[0].dtype == DType::f64 ? sizeof(InstanceMap<double>) : sizeof(InstanceMap<float>)).total();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(scale_instance_norm_clamp_scale_max) {
  using namespace frit::ops;
  registry.add_cuda("scale_instance_norm_clamp_scale_max", {.run = run, .halves = true, .scratch = scratch_bytes, .any_layout_inputs = {0}});
}
