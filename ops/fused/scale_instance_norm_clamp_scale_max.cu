// max over channels of clamp(instance_norm(input * scale)) * post_scale, forward.

#include "frit/ops/fused/held_samples_cuda.h"
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

  __device__ InstanceMap<T> map(std::int64_t slice, const DeviceMoments& moments, bool writes) const {
    const std::int64_t c = slice % channels;
    const T s = convert<T>(scale[c]);
    const double factor = isfinite(s) ? static_cast<double>(s) : nan("");
    const double mean = __dmul_rn(moments.mean, factor), rstd = 1 / sqrt(moments.variance * factor * factor + eps);
    if (writes && means != nullptr) means[slice] = mean;
    if (writes && rstds != nullptr) rstds[slice] = rstd;
    return {moments.mean, mean, rstd, s, convert<T>(post_scale[c])};
  }
  __device__ void operator()(std::int64_t slice, const DeviceMoments& moments) const { maps[slice] = map(slice, moments, true); }
};

/// A pixel's largest value so far and its channel. The first of equal values wins, and the first NaN over everything.
template <class T>
struct ChannelMaximum {
  T value = -std::numeric_limits<T>::infinity();
  std::int32_t channel;

  __device__ friend ChannelMaximum operator+(const ChannelMaximum& a, const ChannelMaximum& b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value, earlier = a.channel < b.channel;
    const bool equal = (a.value == b.value) | (a_nan & b_nan);
    const bool wins = equal ? earlier : (a_nan | ((a.value > b.value) & !b_nan));
    return wins ? a : b;
  }

  /// A value of a later channel; `plain` says that it is not NaN and neither are the bounds.
  template <bool plain>
  __device__ void take(T normalized, const Clamp<T>& clamp, T post_scale, std::int32_t later) {
    if constexpr (plain) {
      const T offered = min(max(normalized, clamp.low), clamp.high) * post_scale;
      channel = offered > value ? later : channel;
      value = offered > value ? offered : value;
    } else {
      *this = *this + ChannelMaximum{clamp(normalized) * post_scale, later};
    }
  }
  /// The maximum over `lanes` neighbouring threads, in all of them.
  __device__ void reduce(int lanes) {
    for (int mask = lanes / 2; mask > 0; mask /= 2) *this = *this + cuda::shuffle_xor(*this, mask);
  }
};

/// Where a pixel's maximum goes.
template <class Stored, class Winner>
struct MaximumOutputs {
  Stored* output;   // (N, pixels), or null
  Winner* winners;  // likewise

  __device__ void write(std::int64_t place, const ChannelMaximum<ComputeType<Stored>>& best) const {
    if (output != nullptr) output[place] = convert<Stored>(best.value);
    if (winners != nullptr) winners[place] = static_cast<Winner>(best.channel);
  }
};

/// `lanes` neighbouring threads a pixel, which share its channels. Reads the input once. Deterministic.
template <class Stored, class Winner>
__global__ void find_channel_maxima(MaximumOutputs<Stored, Winner> outputs, const Stored* input,
                                    const InstanceMap<ComputeType<Stored>>* maps /* (N, C) */, Clamp<ComputeType<Stored>> clamp,
                                    Planes planes, Places places, int lanes) {
  using T = ComputeType<Stored>;
  const int lane = static_cast<int>(threadIdx.x) % lanes, row = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t block_pixels = cuda::default_threads / lanes, pixel_step = gridDim.x * block_pixels;
  for (std::int64_t n = blockIdx.y; n < planes.samples; n += gridDim.y) {
    const InstanceMap<T>* const sample_maps = maps + n * planes.channels;
    for (std::int64_t first = blockIdx.x * block_pixels; first < planes.pixels; first += pixel_step) {
      const std::int64_t p = first + row;
      ChannelMaximum<T> best{.channel = lane};
      if (p < planes.pixels) {
        const Stored* const x = input + places(n, 0, p);
#pragma unroll 4
        for (auto c = static_cast<std::int32_t>(lane); c < planes.channels; c += lanes) {
          const InstanceMap<T> map = sample_maps[c];
          best.template take<false>(map.normalized(convert<T>(x[c * places.channel])), clamp, map.post_scale, c);
        }
      }
      best.reduce(lanes);
      if (p < planes.pixels && lane == 0) outputs.write(n * planes.pixels + p, best);
    }
  }
}

/// Of a held sample: the sums of each channel over the block's pixels, in Sum, to totals.partials. Returns how many partials there are.
template <class Sum, class Stored, bool channels_last>
__device__ int sum_held(const HeldTotals<ShiftedSums>& totals, const SampleHolder<Stored, channels_last>& holder, const HeldSamples& held,
                        unsigned turn, const Stored* sample) {
  using Holder = SampleHolder<Stored, channels_last>;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / cuda::warp_size, lane = thread % cuda::warp_size;
  const int channels = totals.channels();
  if constexpr (channels_last) {
    const int c = thread % held.lanes * Holder::width, row = thread / held.lanes, rows = HeldSamples::threads / held.lanes;
    ThreadSums<Sum> sums[Holder::width];
    int count = 0;
    for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) {
      const Stored* const elements = holder.wait(turn, chunk);
      const int pixels = c < channels ? holder.pixels_of(chunk) : 0;
      for (int p = row; p < pixels; p += rows) {
        const typename Holder::Elements x = holder.at(elements, c, p);
#pragma unroll
        for (int j = 0; j < Holder::width; ++j) {
          const Sum element = convert<Sum>(x[j]);
          if (count == 0) sums[j] = ThreadSums<Sum>(element);
          sums[j].add(element);
        }
        ++count;
      }
    }
#pragma unroll
    for (int j = 0; j < Holder::width; ++j) {
      ShiftedSums shifted;
      if (count > 0) shifted = sums[j].shifted(count, convert<Sum>(sample[c + j]));
      for (int mask = cuda::warp_size / 2; mask >= held.lanes; mask /= 2) shifted = shifted + cuda::shuffle_xor(shifted, mask);
      if (lane < held.lanes && c < channels) totals.partials[warp * channels + c + j] = shifted;
    }
    return HeldSamples::threads / cuda::warp_size;
  } else {
    const int warps = HeldSamples::threads / cuda::warp_size, parts = max(1, warps / channels), part = warp / channels;
    for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) holder.wait(turn, chunk);
    for (int c = warp % channels; part < parts && c < channels; c += warps) {
      ThreadSums<Sum> sums;
      int count = 0;
      for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) {
        const Stored* const elements = holder.elements(turn, chunk);
        const int pixels = holder.pixels_of(chunk);
        for (int p = part * cuda::warp_size + lane; p < pixels; p += parts * cuda::warp_size) {
          const Sum element = convert<Sum>(holder.one(elements, c, p));
          if (count == 0) sums = ThreadSums<Sum>(element);
          sums.add(element);
          ++count;
        }
      }
      ShiftedSums shifted;
      if (count > 0) shifted = sums.shifted(count, convert<Sum>(sample[c * held.planes.pixels]));
      shifted = cuda::warp_reduce(shifted);
      if (lane == 0) totals.partials[part * channels + c] = shifted;
    }
    return parts;
  }
}

/// Of a held sample: the maxima of the block's pixels. While it goes on, the chunks of the turn after next are asked for.
template <bool plain, class Stored, class Winner, bool channels_last, class Request>
__device__ void find_held_maxima(const MaximumOutputs<Stored, Winner>& outputs, const SampleHolder<Stored, channels_last>& holder,
                                 const HeldSamples& held, unsigned turn, std::int64_t n, const InstanceMap<ComputeType<Stored>>* maps,
                                 const Clamp<ComputeType<Stored>>& clamp, const Request& request_again) {
  using Holder = SampleHolder<Stored, channels_last>;
  using T = ComputeType<Stored>;
  const int thread = static_cast<int>(threadIdx.x), channels = static_cast<int>(held.planes.channels);
  if constexpr (channels_last) {
    const int lane = thread % held.lanes, c = lane * Holder::width, row = thread / held.lanes, rows = HeldSamples::threads / held.lanes;
    InstanceMap<T> own[Holder::width];
#pragma unroll
    for (int j = 0; j < Holder::width; ++j) own[j] = maps[min(c, channels - Holder::width) + j];
    for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) {
      const Stored* const elements = holder.elements(turn, chunk);
      const int pixels = holder.pixels_of(chunk);
      for (int first = 0; first < pixels; first += rows) {
        const int p = first + row;
        ChannelMaximum<T> best{.channel = c};
        if (p < pixels && c < channels) {
          const typename Holder::Elements x = holder.at(elements, c, p);
#pragma unroll
          for (int j = 0; j < Holder::width; ++j) {
            best.template take<plain>(own[j].normalized(convert<T>(x[j])), clamp, own[j].post_scale, c + j);
          }
        }
        best.reduce(held.lanes);
        if (p < pixels && lane == 0) outputs.write(n * held.planes.pixels + holder.begin_of(chunk) + p, best);
      }
      __syncthreads();
      request_again(chunk);
    }
  } else {
    for (int place = thread; place < HeldSamples::chunks * held.chunk_pixels; place += HeldSamples::threads) {
      const int chunk = place / held.chunk_pixels, p = place - chunk * held.chunk_pixels;
      if (p >= holder.pixels_of(chunk)) continue;
      const Stored* const elements = holder.elements(turn, chunk);
      ChannelMaximum<T> best{.channel = 0};
#pragma unroll 4
      for (int c = 0; c < channels; ++c) {
        const InstanceMap<T> map = maps[c];
        best.template take<plain>(map.normalized(convert<T>(holder.one(elements, c, p))), clamp, map.post_scale, c);
      }
      outputs.write(n * held.planes.pixels + holder.begin_of(chunk) + p, best);
    }
    __syncthreads();
    for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) request_again(chunk);
  }
}

/// A cluster a sample, as many clusters as run at a time, each going through every so manieth sample. Reads the input once, into shared
/// memory, and writes the results. Deterministic.
template <class Stored, class Winner, bool channels_last>
__global__ void __launch_bounds__(HeldSamples::threads, 1)
    find_maxima_of_held_samples(MaximumOutputs<Stored, Winner> outputs, const Stored* input, CloseInstances<Stored> close,
                                Clamp<ComputeType<Stored>> clamp, HeldSamples held) {
  using T = ComputeType<Stored>;
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier barriers[HeldSamples::most_buffers * HeldSamples::chunks];
  __shared__ cuda::ByteBarrier round_barriers[HeldTotals<ShiftedSums>::rounds];
  const int rank = static_cast<int>(blockIdx.x) % held.blocks, channels = static_cast<int>(held.planes.channels);
  const std::int64_t clusters = gridDim.x / static_cast<unsigned>(held.blocks), samples = held.planes.samples;
  HeldTotals<ShiftedSums> totals(memory + held.rest_offset, round_barriers, channels, rank, held.blocks);
  auto* const maps = reinterpret_cast<InstanceMap<T>*>(totals.end());
  const SampleHolder<Stored, channels_last> holder(input, held, memory, barriers, rank);
  const auto request = [&](unsigned turn, int chunk, std::int64_t n) {
    if (n < samples && threadIdx.x < cuda::warp_size) holder.request(turn, chunk, n);
  };

  const std::int64_t first = blockIdx.x / static_cast<unsigned>(held.blocks);
  for (int buffer = 0; buffer < held.buffers; ++buffer) {
    for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) request(static_cast<unsigned>(buffer), chunk, first + buffer * clusters);
  }
  unsigned turn = 0;
  for (std::int64_t n = first; n < samples; n += clusters, ++turn) {
    const Stored* const sample = input + n * held.planes.channels * held.planes.pixels;
    const auto pivot = [&](int c) { return static_cast<double>(convert<T>(sample[channels_last ? c : c * held.planes.pixels])); };
    // Squares that overflow in float, and infinities and NaNs, are summed once more in double. All blocks see the same sums.
    totals.exchange(sum_held<T>(totals, holder, held, turn, sample));
    bool overflow = false;
    for (int c = static_cast<int>(threadIdx.x); c < channels; c += HeldSamples::threads) overflow |= !isfinite(totals.total(c).squares);
    if (__syncthreads_or(overflow)) totals.exchange(sum_held<double>(totals, holder, held, turn, sample));
    bool plain = clamp.low == clamp.low && clamp.high == clamp.high;
    for (int c = static_cast<int>(threadIdx.x); c < channels; c += HeldSamples::threads) {
      maps[c] = close.map(n * channels + c, DeviceMoments(totals.total(c), pivot(c), held.planes.pixels), rank == 0);
      plain &= isfinite(maps[c].slope) && isfinite(maps[c].shift) && isfinite(maps[c].post_scale);
    }
    const auto request_again = [&](int chunk) { request(turn + static_cast<unsigned>(held.buffers), chunk, n + held.buffers * clusters); };
    if (__syncthreads_and(plain)) {
      find_held_maxima<true>(outputs, holder, held, turn, n, maps, clamp, request_again);
    } else {
      find_held_maxima<false>(outputs, holder, held, turn, n, maps, clamp, request_again);
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
void walk_twice(const KernelContext& call, MaximumOutputs<Stored, Winner> outputs, CloseInstances<Stored> close,
                const Clamp<ComputeType<Stored>>& clamp) {
  const Tensor& input = call.inputs[0];
  Planes planes(input.shape());
  const Places places(input, planes);
  const Scratch scratch(planes, sizeof(InstanceMap<ComputeType<Stored>>));
  auto* const partials = reinterpret_cast<ShiftedSums*>(call.scratch.data());
  close.maps = reinterpret_cast<InstanceMap<ComputeType<Stored>>*>(call.scratch.data() + scratch.partials);
  const Stored* x = input.data<Stored>();
  const std::int64_t samples = planes.samples, part = samples_in_cache(input);
  const int lanes = places.channels_last() ? lanes_for(planes.channels) : 1;
  const auto advance = [](auto*& memory, std::int64_t offset) { memory = memory != nullptr ? memory + offset : nullptr; };
  for (std::int64_t n = 0; n < samples; n += part) {
    planes.samples = std::min(part, samples - n);
    find_moments(x, SliceSplit(planes, places, planes.channels), partials, close, call.stream);
    if (planes.pixels > 0) {
      const std::int64_t blocks = (planes.pixels * lanes + cuda::default_threads - 1) / cuda::default_threads;
      const cuda::LaunchShape shape{dim3(static_cast<unsigned>(std::min<std::int64_t>(blocks, 1 << 16)),
                                         static_cast<unsigned>(std::min<std::int64_t>(planes.samples, 1 << 15))),
                                    dim3(cuda::default_threads)};
      cuda::launch(find_channel_maxima<Stored, Winner>, shape, call.stream, outputs, x, close.maps, clamp, planes, places, lanes);
    }
    x += part * places.sample;
    for (auto** const statistics : {&close.means, &close.rstds}) advance(*statistics, part * planes.channels);
    close.maps += part * planes.channels;
    advance(outputs.output, part * planes.pixels);
    advance(outputs.winners, part * planes.pixels);
  }
}

/// One walk, where the device has clusters and the samples fit into them; false if not.
template <class Stored, class Winner, bool channels_last>
bool hold_samples(const KernelContext& call, const MaximumOutputs<Stored, Winner>& outputs, const CloseInstances<Stored>& close,
                  const Clamp<ComputeType<Stored>>& clamp) {
  const Tensor& input = call.inputs[0];
  const auto held = HeldSamples::plan<Stored>(input, HeldTotals<ShiftedSums>::channel_bytes + sizeof(InstanceMap<float>), 0);
  if (held.blocks == 0) return false;
  const auto kernel = find_maxima_of_held_samples<Stored, Winner, channels_last>;
  return held.launch(kernel, call.stream, outputs, input.data<Stored>(), close, clamp, held);
}

template <class Stored, class Winner>
void run_typed(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const MaximumOutputs<Stored, Winner> outputs{data_or_null<Stored>(call.outputs[0]), data_or_null<Winner>(call.outputs[1])};
  const CloseInstances<Stored> close{.channels = call.inputs[0].shape()[1],
                                     .eps = attributes.eps,
                                     .scale = call.inputs[1].data<Stored>(),
                                     .post_scale = call.inputs[2].data<Stored>(),
                                     .means = data_or_null<double>(call.outputs[2]),
                                     .rstds = data_or_null<double>(call.outputs[3]),
                                     .maps = nullptr};
  const Clamp<ComputeType<Stored>> clamp(attributes.clamp());
  if constexpr (!std::is_same_v<Stored, double> && std::is_same_v<Winner, std::uint8_t>) {
    const bool contiguous = call.inputs[0].is_contiguous();
    if (contiguous ? hold_samples<Stored, Winner, false>(call, outputs, close, clamp)
                   : hold_samples<Stored, Winner, true>(call, outputs, close, clamp)) {
      return;
    }
  }
  walk_twice(call, outputs, close, clamp);
}

/// inputs (input, scale, post_scale), outputs (output, winner, mean, rstd)
void run(const KernelContext& call) {
  dispatch_stored(call.inputs[0].dtype(), [&]<class Stored>() {
    dispatch_winner(winner_dtype(call.inputs[0].shape()[1]), [&]<class Winner>() { run_typed<Stored, Winner>(call); });
  });
}

std::size_t scratch_bytes(const InferContext& call) {
  return Scratch(Planes(call.shape(0)), call.inputs[0].dtype == DType::f64 ? sizeof(InstanceMap<double>) : sizeof(InstanceMap<float>))
      .total();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(scale_instance_norm_clamp_scale_max) {
  using namespace frit::ops;
  registry.add_cuda("scale_instance_norm_clamp_scale_max",
                    {.run = run, .halves = true, .scratch = scratch_bytes, .any_layout_inputs = {0}});
}
