#pragma once

#include "frit/ops/fused/held_samples_cuda.h"
#include "frit/ops/fused/scale_instance_norm_clamp_scale_max_cuda.h"

namespace frit::ops {

/// A block's work on the samples that its cluster holds: statistics, and then the maxima of its pixels. `known_lanes` is held.lanes where
/// that is known when this is compiled and all of them have channels, else 0.
template <class Stored, bool channels_last, int known_lanes>
class HeldMaxima {
 public:
  using T = ComputeType<Stored>;
  using Holder = SampleHolder<Stored, channels_last>;
  using Totals = HeldTotals<ShiftedSums>;
  using Outputs = MaximumOutputs<Stored, std::uint8_t>;
  static constexpr std::size_t channel_bytes = Totals::channel_bytes + sizeof(InstanceMap<float>) + 3 * sizeof(float);

  __device__ HeldMaxima(const Stored* input, const CloseInstances<Stored>& close, const Clamp<T>& clamp, const HeldSamples& held,
                        std::byte* memory, cuda::ByteBarrier* chunk_barriers, cuda::ByteBarrier* round_barriers)
      : held_(held),
        close_(close),
        clamp_(clamp),
        input_(input),
        rank_(static_cast<int>(blockIdx.x) % held.blocks),
        channels_(static_cast<int>(held.planes.channels)),
        lanes_(known_lanes > 0 ? known_lanes : held.lanes),
        share_(1 / static_cast<double>(held.planes.pixels)),
        holder_(input, held, memory, chunk_barriers, rank_),
        totals_(memory + held.rest_offset, round_barriers, channels_, rank_, held.blocks),
        maps_(reinterpret_cast<InstanceMap<T>*>(totals_.end())),
        scales_(reinterpret_cast<T*>(maps_ + channels_)),
        post_scales_(scales_ + channels_),
        pivots_(post_scales_ + channels_) {}

  /// Everything: see find_maxima_of_held_samples.
  __device__ void run(const Outputs& outputs) {
    const std::int64_t first = blockIdx.x / static_cast<unsigned>(held_.blocks), step = gridDim.x / static_cast<unsigned>(held_.blocks);
    for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) request(chunk, first);
    if (thread() < channels_) {
      scales_[thread()] = convert<T>(close_.scale[thread()]);
      post_scales_[thread()] = convert<T>(close_.post_scale[thread()]);
    }
    unsigned turn = 0;
    for (std::int64_t n = first; n < held_.planes.samples; n += step, ++turn) {
      if (make_maps(n, turn)) {
        find_maxima<true>(outputs, n, n + step);
      } else {
        find_maxima<false>(outputs, n, n + step);
      }
    }
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int warp() { return thread() / cuda::warp_size; }
  __device__ static int lane() { return thread() % cuda::warp_size; }
  /// Channels-last: rows of threads, `lanes_` of them to a pixel, each with a vector of its channels.
  __device__ int rows() const { return HeldSamples::threads / lanes_; }
  __device__ int row() const { return thread() / lanes_; }
  __device__ int own_channel() const { return thread() % lanes_ * Holder::width; }
  __device__ void request(int chunk, std::int64_t n) const {
    if (n < held_.planes.samples && warp() == 0) holder_.request(chunk, n);
  }
  __device__ const Stored* channel_of(std::int64_t n, int c) const {
    return input_ + n * channels_ * held_.planes.pixels + c * (channels_last ? 1 : held_.planes.pixels);
  }

  /// From the statistics of sample n. Returns whether all is finite, so that no NaN can come of it.
  __device__ bool make_maps(std::int64_t n, unsigned turn) {
    const int c = min(thread(), channels_ - 1);
    const T pivot = convert<T>(*channel_of(n, c));
    for (int chunk = 0; !channels_last && chunk < HeldSamples::chunks; ++chunk) holder_.wait(turn, chunk);
    if (thread() < channels_) pivots_[c] = pivot;
    ShiftedSums sums = sums_of_cluster<T>(turn);
    // Squares that overflow in float, and infinities and NaNs, are summed once more in double. All blocks see the same sums.
    if (__syncthreads_or(!isfinite(sums.squares))) sums = sums_of_cluster<double>(turn);
    bool finite = clamp_.low == clamp_.low && clamp_.high == clamp_.high;
    if (thread() < channels_) {
      const DeviceMoments moments(sums, static_cast<double>(pivot), share_);
      const InstanceMap<T> map = close_.map(n * channels_ + c, moments, scales_[c], post_scales_[c], rank_ == 0);
      finite &= isfinite(map.slope) && isfinite(map.shift) && isfinite(map.post_scale);
      maps_[c] = map;
    }
    return __syncthreads_and(finite);
  }

  /// What a warp has added up of a channel.
  template <class Sum>
  struct Part {
    ThreadSums<Sum> sums;
    int count;
  };
  /// (warps, C), in the memory of as many sums.
  template <class Sum>
  __device__ Part<Sum>* parts() const {
    static_assert(sizeof(Part<float>) <= sizeof(ShiftedSums));
    return reinterpret_cast<Part<Sum>*>(totals_.partials);
  }

  /// The sums of the thread's channel.
  template <class Sum>
  __device__ ShiftedSums sums_of_cluster(unsigned turn) {
    const int count = sum<Sum>(turn);
    totals_.exchange(count, [this](int part, int c) {
      if constexpr (std::is_same_v<Sum, double>) {
        return totals_.partials[part * channels_ + c];
      } else {
        const Part<Sum> own = parts<Sum>()[part * channels_ + c];
        return own.sums.shifted(own.count, pivots_[c]);
      }
    });
    return totals_.total(min(thread(), channels_ - 1));
  }
  template <class Sum>
  __device__ void keep(int warp, int c, const ThreadSums<Sum>& sums, int count) const {
    if constexpr (std::is_same_v<Sum, double>) {
      totals_.partials[warp * channels_ + c] = sums.shifted(count, static_cast<double>(pivots_[c]));
    } else {
      parts<Sum>()[warp * channels_ + c] = {sums, count};
    }
  }

  /// Adds up each channel over the block's pixels. Returns how many warps have a part of a channel. A warp's threads sum around one of the
  /// elements that they add.
  template <class Sum>
  __device__ int sum(unsigned turn) const {
    if constexpr (channels_last) {
      sum_rows<Sum>(turn);
      return HeldSamples::warps;
    } else {
      const int parts = max(1, HeldSamples::warps / channels_), part = warp() / channels_;
      for (int c = warp() % channels_; part < parts && c < channels_; c += HeldSamples::warps) sum_channel<Sum>(c, part, parts);
      return parts;
    }
  }

  template <class Sum>
  __device__ void sum_rows(unsigned turn) const {
    const int c = own_channel(), first_row = (thread() - lane()) / lanes_;
    const bool works = c < channels_ && first_row < holder_.pixels();
    holder_.wait(turn, 0);
    ThreadSums<Sum> sums[Holder::width];
    if (works) {
      const typename Holder::Elements x = holder_.at(c, first_row);
#pragma unroll
      for (int j = 0; j < Holder::width; ++j) sums[j] = ThreadSums<Sum>(convert<Sum>(x[j]));
    }
    int p = row(), count = 0;
    for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) {
      holder_.wait(turn, chunk);
      const int end = works ? holder_.chunk_end(chunk) : 0;
#pragma unroll 4
      for (; p < end; p += rows()) {
        const typename Holder::Elements x = holder_.at(c, p);
#pragma unroll
        for (int j = 0; j < Holder::width; ++j) sums[j].add(convert<Sum>(x[j]));
        ++count;
      }
    }
#pragma unroll
    for (int mask = cuda::warp_size / 2; mask > 0; mask /= 2) {
      if (mask < lanes_) break;
      count += cuda::shuffle_xor(count, mask);
#pragma unroll
      for (int j = 0; j < Holder::width; ++j) sums[j].add_lane(mask);
    }
    if (lane() >= lanes_ || c >= channels_) return;
#pragma unroll
    for (int j = 0; j < Holder::width; ++j) keep(warp(), c + j, sums[j], count);
  }

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

  /// The maxima of the block's pixels. Each chunk that is done with is asked for again, of sample `next`.
  template <bool finite>
  __device__ void find_maxima(const Outputs& outputs, std::int64_t n, std::int64_t next) const {
    const std::int64_t first = n * held_.planes.pixels + holder_.begin();
    if constexpr (channels_last) {
      const int c = own_channel();
      InstanceMap<T> maps[Holder::width];
#pragma unroll
      for (int j = 0; j < Holder::width; ++j) maps[j] = maps_[min(c, channels_ - Holder::width) + j];
      int begin = 0;  // of the rows of threads, so that whole warps walk on together
      for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) {
        for (const int end = holder_.chunk_end(chunk); begin < end; begin += rows()) {
          const int p = begin + row();
          const ChannelMaximum<T> best = maximum_of_rows<finite>(maps, c, p);
          if (thread() % lanes_ == 0 && p < holder_.pixels()) outputs.write(first + p, best);
        }
        __syncthreads();
        request(chunk, next);
      }
    } else {
      for (int p = thread(); p < holder_.pixels(); p += HeldSamples::threads) outputs.write(first + p, maximum_of_pixel<finite>(p));
      __syncthreads();
      for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) request(chunk, next);
    }
  }

  /// What the maximum is taken of. Where all is finite, clamp needs no care for NaN.
  template <bool finite>
  __device__ T value(const InstanceMap<T>& map, Stored x) const {
    const T normalized = map.normalized(convert<T>(x));
    return (finite ? min(max(normalized, clamp_.low), clamp_.high) : clamp_(normalized)) * map.post_scale;
  }

  /// Of pixel p, by the lanes that share it; it may be one past the last.
  template <bool finite>
  __device__ ChannelMaximum<T> maximum_of_rows(const InstanceMap<T> (&maps)[Holder::width], int c, int p) const {
    const bool idle = known_lanes == 0 && c >= channels_;
    const typename Holder::Elements x = holder_.at(idle ? 0 : c, min(p, holder_.pixels() - 1));
    T values[Holder::width];
#pragma unroll
    for (int j = 0; j < Holder::width; ++j) values[j] = idle ? -std::numeric_limits<T>::infinity() : value<finite>(maps[j], x[j]);
    if constexpr (finite) {  // the largest first, and then the first channel that has it
      ChannelMaximum<T> best{values[0], INT32_MAX};
#pragma unroll
      for (int j = 1; j < Holder::width; ++j) best.value = max(best.value, values[j]);
      for (int mask = lanes_ / 2; mask > 0; mask /= 2) best.value = max(best.value, cuda::shuffle_xor(best.value, mask));
#pragma unroll
      for (int j = Holder::width - 1; j >= 0; --j) best.channel = values[j] == best.value ? c + j : best.channel;
      for (int mask = lanes_ / 2; mask > 0; mask /= 2) best.channel = min(best.channel, cuda::shuffle_xor(best.channel, mask));
      return best;
    } else {
      ChannelMaximum<T> best{values[0], c};
#pragma unroll
      for (int j = 1; j < Holder::width; ++j) best.take(values[j], c + j);
      best.reduce(lanes_);
      return best;
    }
  }

  template <bool finite>
  __device__ ChannelMaximum<T> maximum_of_pixel(int p) const {
    ChannelMaximum<T> best{value<finite>(maps_[0], holder_.one(0, p)), 0};
#pragma unroll 4
    for (int c = 1; c < channels_; ++c) {
      const T offered = value<finite>(maps_[c], holder_.one(c, p));
      if constexpr (finite) {
        best.channel = offered > best.value ? c : best.channel;
        best.value = max(offered, best.value);
      } else {
        best.take(offered, c);
      }
    }
    return best;
  }

  const HeldSamples& held_;
  const CloseInstances<Stored>& close_;
  const Clamp<T> clamp_;
  const Stored* input_;
  int rank_, channels_, lanes_;
  double share_;  ///< of a pixel in a mean
  Holder holder_;
  Totals totals_;
  InstanceMap<T>* maps_;  ///< (C), as the scales
  T *scales_, *post_scales_;
  T* pivots_;  ///< each channel's first element, around which its sums are
};

/// A cluster a sample, as many clusters as run at a time, each going through every so manieth sample. Reads the input once, into shared
/// memory, and writes the results. Deterministic.
template <class Stored, bool channels_last, int known_lanes>
__global__ void __launch_bounds__(HeldSamples::threads, HeldSamples::most_resident)
    find_maxima_of_held_samples(MaximumOutputs<Stored, std::uint8_t> outputs, const Stored* input, CloseInstances<Stored> close,
                                Clamp<ComputeType<Stored>> clamp, HeldSamples held) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier chunk_barriers[HeldSamples::chunks];
  __shared__ cuda::ByteBarrier round_barriers[HeldTotals<ShiftedSums>::rounds];
  HeldMaxima<Stored, channels_last, known_lanes>(input, close, clamp, held, memory, chunk_barriers, round_barriers).run(outputs);
}

}  // namespace frit::ops
