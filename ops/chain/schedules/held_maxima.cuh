#pragma once

#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max.cuh"
#include "frit/ops/chain/schedules/held_samples.cuh"

namespace frit::ops {

/// A block's work on the samples that its cluster holds: statistics, and then the maxima of its pixels. Each warp sums up and finishes with
/// chunks of its own, and asks for the next sample's as soon as it is done with one. `known_channels` are the channels where that is known
/// when this is compiled, few enough that a thread has the maps of all in registers; else 0.
template <class Stored, bool channels_last, int known_channels>
class HeldMaxima {
 public:
  using T = Computed<Stored>;
  using Held = WarpHeldSamples;
  using Holder = SampleHolder<Stored, channels_last, Held, known_channels>;
  using Totals = HeldTotals<ShiftedSums, Held>;
  using Outputs = MaximumOutputs<Stored, std::uint8_t>;
  static constexpr std::size_t channel_bytes =
      Totals::channel_bytes + sizeof(SaturatingMap) + sizeof(InstanceMap<float>) + 3 * sizeof(float);

  /// How the maxima of a sample are to be found.
  enum class Way { recompute, saturating, careful };  // `recompute`: squares overflow in float

  __device__ HeldMaxima(const Stored* input, const FinalizeInstances<Stored>& finalize, const Clamp<T>& clamp, const Held& held,
                        std::byte* memory, cuda::ByteBarrier* chunk_barriers, cuda::ByteBarrier* round_barriers, Way* way)
      : held_(held),
        finalize_(finalize),
        clamp_(clamp),
        input_(input),
        rank_(static_cast<int>(blockIdx.x) % held.blocks),
        channels_(known_channels > 0 ? known_channels : static_cast<int>(held.planes.channels)),
        holder_(input, held, memory, chunk_barriers, rank_),
        totals_(memory + held.rest_offset, round_barriers, channels_, rank_, held.blocks),
        saturating_(reinterpret_cast<T*>(totals_.end())),
        maps_(reinterpret_cast<InstanceMap<T>*>(saturating_ + SaturatingMap::numbers * channels_)),
        scales_(reinterpret_cast<T*>(maps_ + channels_)),
        post_scales_(scales_ + channels_),
        pivots_(post_scales_ + channels_),
        way_(way) {}

  /// Everything: see find_maxima_of_held_samples. Begins with the last sample, which was written last and may still be in the cache.
  __device__ void run(const Outputs& outputs) {
    const std::int64_t cluster = blockIdx.x / static_cast<unsigned>(held_.blocks), step = gridDim.x / static_cast<unsigned>(held_.blocks);
    const std::int64_t last = held_.planes.samples - 1 - cluster;
    for (int chunk = warp(); has(chunk); chunk += Held::warps) holder_.request(chunk, last);
    if (thread() < channels_) {
      scales_[thread()] = finalize_.scale[thread()];
      post_scales_[thread()] = finalize_.post_scale[thread()];
    }
    unsigned turn = 0;
    for (std::int64_t n = last; n >= 0; n -= step, ++turn) {
      Way way = make_maps<T>(n, n - step, turn);
      if (way == Way::recompute) way = make_maps<double>(n, n - step, turn);
      find_maxima(outputs, way, n, n - step);
    }
  }

 private:
  static constexpr int width = Held::width;

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int warp() { return static_cast<int>(threadIdx.x / cuda::warp_size); }
  __device__ static int lane() { return static_cast<int>(threadIdx.x % cuda::warp_size); }
  __device__ bool has(int chunk) const { return holder_.chunk_begin(chunk) < holder_.pixels(); }

  /// From the statistics of sample n, when it is here. The device's memory would now be idle: the sample `next`, for which there is no room
  /// yet, is brought nearer.
  template <class Sum>
  __device__ Way make_maps(std::int64_t n, std::int64_t next, unsigned turn) {
    constexpr bool first_time = std::is_same_v<Sum, T>;
    T pivot = 0;
    if (first_time && thread() < channels_) {
      const std::int64_t first = n * channels_ * held_.planes.pixels;
      pivot = convert<T>(input_[first + thread() * (channels_last ? 1 : held_.planes.pixels)]);
    }
    const int parts = sum<Sum>(turn);
    if (warp() == Held::warps - 1 && next >= 0) holder_.prefetch(next);
    if (first_time && thread() < channels_) pivots_[thread()] = pivot;
    totals_.send(parts, [this](int part, int c) {
      if constexpr (std::is_same_v<Sum, double>) {
        return totals_.partials[part * channels_ + c];
      } else {
        const Part own = this->parts()[part * channels_ + c];
        return own.sums.shifted(own.count, pivots_[c]);
      }
    });
    if (warp() == 0) {
      totals_.wait();
      const Way way = finalize_sample<first_time>(n);
      if (lane() == 0) *way_ = way;
    }
    __syncthreads();
    return *way_;
  }

  /// By a warp, when the sums are there. All blocks see the same ones.
  template <bool first_time>
  __device__ Way finalize_sample(std::int64_t n) const {
    const double share = 1 / static_cast<double>(held_.planes.pixels);
    bool saturating = first_time, overflow = false;
#pragma unroll 1
    for (int c = lane(); c < channels_; c += cuda::warp_size) {
      const ShiftedSums sums = totals_.total(c);
      const DeviceMoments moments(sums, static_cast<double>(pivots_[c]), share);
      const InstanceMap<T> map = finalize_.map(n * channels_ + c, moments, scales_[c], post_scales_[c], rank_ == 0);
      const SaturatingMap clamped(map, clamp_);
      overflow |= !isfinite(sums.squares);
      saturating &= clamped.replaces(map, clamp_, moments.variance);
      maps_[c] = map;
      saturating_[c] = clamped.slope;
      saturating_[channels_ + c] = clamped.shift;
      saturating_[2 * channels_ + c] = clamped.factor;
      saturating_[3 * channels_ + c] = clamped.offset;
    }
    // Squares that overflow in float, and infinities and NaNs, are summed once more in double.
    if (first_time && __any_sync(0xffffffffu, overflow)) return Way::recompute;
    return __all_sync(0xffffffffu, saturating) ? Way::saturating : Way::careful;
  }

  /// What a warp has added up of a channel in float.
  struct Part {
    ThreadSums<T> sums;
    int count;
  };
  /// (warps, C), in the memory of as many sums.
  __device__ Part* parts() const {
    static_assert(sizeof(Part) <= sizeof(ShiftedSums));
    return reinterpret_cast<Part*>(totals_.partials);
  }
  template <class Sum>
  __device__ void keep(int part, int c, const ThreadSums<Sum>& sums, int count) const {
    if constexpr (std::is_same_v<Sum, double>) {
      totals_.partials[part * channels_ + c] = sums.shifted(count, static_cast<double>(pivots_[c]));
    } else {
      parts()[part * channels_ + c] = {sums, count};
    }
  }

  /// Adds up each channel over the block's pixels. Returns how many warps have a part of a channel. A warp's threads
  /// sum around one of the elements that they add.
  template <class Sum>
  __device__ int sum(unsigned turn) const {
    if constexpr (channels_last) {
      sum_rows<Sum>(turn);
      return Held::warps;
    } else {
      for (int chunk = 0; has(chunk); ++chunk) holder_.wait(turn, chunk);
      const int parts = max(1, Held::warps / channels_), part = warp() / channels_;
      for (int c = warp() % channels_; part < parts && c < channels_; c += Held::warps) sum_channel<Sum>(c, part, parts);
      return parts;
    }
  }

  /// Of the warp's chunks: rows of threads, so many of them to a pixel, each with a vector of its channels.
  template <class Sum>
  __device__ void sum_rows(unsigned turn) const {
    constexpr int at_once = 4;
    const int lanes = known_channels > 0 ? known_channels / width : held_.lanes, rows = cuda::warp_size / lanes, row = lane() / lanes;
    const int own = lane() % lanes * width, c = min(own, channels_ - width);
    ThreadSums<Sum> sums[width];
    int count = 0;
    const auto add = [&](const typename Holder::Elements& x) {
#pragma unroll
      for (int j = 0; j < width; ++j) sums[j].add(convert<Sum>(x[j]));
    };
    for (int chunk = warp(); has(chunk); chunk += Held::warps) {
      const int begin = holder_.chunk_begin(chunk), end = holder_.chunk_end(chunk);
      holder_.wait(turn, chunk);
      if (count == 0) {
        const typename Holder::Elements x = holder_.at(c, begin);
#pragma unroll
        for (int j = 0; j < width; ++j) sums[j] = ThreadSums<Sum>(convert<Sum>(x[j]));
      }
      count += end - begin;
      int p = begin + row;
      for (; p + (at_once - 1) * rows < end; p += at_once * rows) {
        typename Holder::Elements x[at_once];
#pragma unroll
        for (int u = 0; u < at_once; ++u) x[u] = holder_.at(c, p + u * rows);
#pragma unroll
        for (int u = 0; u < at_once; ++u) add(x[u]);
      }
#pragma unroll 1
      for (; p < end; p += rows) add(holder_.at(c, p));
    }
#pragma unroll
    for (int mask = cuda::warp_size / 2; mask > 0; mask /= 2) {
      if (mask < lanes) break;
#pragma unroll
      for (int j = 0; j < width; ++j) sums[j].add_lane(mask);
    }
    if (row > 0 || own >= channels_) return;
#pragma unroll
    for (int j = 0; j < width; ++j) keep(warp(), c + j, sums[j], count);
  }

  /// Of the warp's part of all pixels.
  template <class Sum>
  __device__ void sum_channel(int c, int part, int parts) const {
    const int first = part * cuda::warp_size, pixels = holder_.pixels();
    ThreadSums<Sum> sums(first < pixels ? convert<Sum>(holder_.one(c, first)) : Sum(0));
    int count = 0;
#pragma unroll 4
    for (int p = first + lane(); p < pixels; p += parts * cuda::warp_size) {
      sums.add(convert<Sum>(holder_.one(c, p)));
      ++count;
    }
#pragma unroll
    for (int mask = cuda::warp_size / 2; mask > 0; mask /= 2) {
      count += cuda::shuffle_xor(count, mask);
      sums.add_lane(mask);
    }
    if (lane() == 0) keep(part, c, sums, count);
  }

  __device__ void find_maxima(const Outputs& outputs, Way way, std::int64_t n, std::int64_t next) const {
    if constexpr (known_channels > 0) {
      if (way == Way::saturating) {
        return outputs.has_argmax() ? find_saturated_maxima<true>(outputs, n, next) : find_saturated_maxima<false>(outputs, n, next);
      }
    }
    const std::int64_t first = n * held_.planes.pixels + holder_.begin();
    go_through_chunks(next, [&](int p) { outputs.write(first + p, careful_maximum(p), [&](int c) { return holder_.one(c, p); }); });
  }
  /// Calls find(p) for the pixels of the warp's chunks. Each chunk that is done with is requested of sample `next`.
  template <class Find>
  __device__ void go_through_chunks(std::int64_t next, const Find& find) const {
    for (int chunk = warp(); has(chunk); chunk += Held::warps) {
      const int end = holder_.chunk_end(chunk);
#pragma unroll 1
      for (int p = holder_.chunk_begin(chunk) + lane(); p < end; p += cuda::warp_size) find(p);
      if (next >= 0) holder_.request(chunk, next);
    }
  }

  /// Of pixel p, whatever comes. Where the lanes' pixels begin in the same bank of the memory, they begin with different channels.
  __device__ ChannelMaximum<T> careful_maximum(int p) const {
    ChannelMaximum<T> best{.channel = INT32_MAX};
    int c = channels_last ? lane() * channels_ / cuda::warp_size : 0;
#pragma unroll 4
    for (int i = 0; i < channels_; ++i) {
      const InstanceMap<T> map = maps_[c];
      best.take(clamp_(map.normalized(convert<T>(holder_.one(c, p)))) * map.post_scale, c);
      c = c + 1 == channels_ ? 0 : c + 1;
    }
    return best;
  }

  /// A thread a pixel, with the maps of all channels in registers. The threads begin with different vectors of channels, as
  /// above.
  template <bool has_argmax>
  __device__ void find_saturated_maxima(const Outputs& outputs, std::int64_t n, std::int64_t next) const {
    constexpr unsigned vectors = known_channels / width, all_banks = 128;  // bytes
    const unsigned turned = channels_last ? threadIdx.x % cuda::warp_size * known_channels * sizeof(Stored) / all_banks : 0;
    const auto first_channel = [&](unsigned vector) { return static_cast<int>((vector ^ turned) % vectors) * width; };
    const std::int64_t first = n * held_.planes.pixels + holder_.begin();
    SaturatingMap maps[known_channels];
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v) {
      const auto row = [&](int number) {
        return *reinterpret_cast<const cuda::Vector<T, width>*>(saturating_ + number * known_channels + first_channel(v));
      };
      const auto slope = row(0), shift = row(1), factor = row(2), offset = row(3);
#pragma unroll
      for (int j = 0; j < width; ++j) {
        SaturatingMap& map = maps[v * width + j];
        map.slope = slope[j], map.shift = shift[j], map.factor = factor[j], map.offset = offset[j];
      }
    }
    go_through_chunks(next, [&](int p) {
      T values[known_channels];
      ChannelMaximum<T> best{.channel = INT32_MAX};
#pragma unroll
      for (unsigned v = 0; v < vectors; ++v) {
        const auto x = holder_.vector(first_channel(v), p);
        T* const own = values + v * width;
#pragma unroll
        for (int j = 0; j < width; ++j) own[j] = maps[v * width + j](convert<T>(x[j]));
        const T largest = max(max(own[0], own[1]), max(own[2], own[3]));
        best.value = v == 0 ? largest : max(best.value, largest);
      }
#pragma unroll
      for (unsigned v = 0; has_argmax && v < vectors; ++v) {
        int within = known_channels;
#pragma unroll
        for (int j = width - 1; j >= 0; --j) within = values[v * width + j] == best.value ? j : within;
        best.channel = min(best.channel, first_channel(v) + within);
      }
      outputs.write(first + p, best, [&](int c) { return holder_.one(c, p); });
    });
  }

  const Held& held_;
  const FinalizeInstances<Stored>& finalize_;
  const Clamp<T> clamp_;
  const Stored* input_;
  int rank_, channels_;
  Holder holder_;
  Totals totals_;
  T* saturating_;         ///< (numbers, C)
  InstanceMap<T>* maps_;  ///< (C), as the rest
  T *scales_, *post_scales_;
  T* pivots_;  ///< each channel's first element, around which its sums are
  Way* way_;
};

/// A cluster a sample, as many clusters as run at a time, which loop over the samples with that stride. Reads the input once, into shared
/// memory, and writes the results. Deterministic.
template <class Stored, bool channels_last, int known_channels>
__global__ void __launch_bounds__(WarpHeldSamples::threads, WarpHeldSamples::most_resident)
    find_maxima_of_held_samples(MaximumOutputs<Stored, std::uint8_t> outputs, const Stored* input, FinalizeInstances<Stored> finalize,
                                Clamp<Computed<Stored>> clamp, WarpHeldSamples held) {
  using Maxima = HeldMaxima<Stored, channels_last, known_channels>;
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier chunk_barriers[WarpHeldSamples::chunks];
  __shared__ cuda::ByteBarrier round_barriers[Maxima::Totals::rounds];
  __shared__ typename Maxima::Way way;
  Maxima(input, finalize, clamp, held, memory, chunk_barriers, round_barriers, &way).run(outputs);
}

}  // namespace frit::ops
