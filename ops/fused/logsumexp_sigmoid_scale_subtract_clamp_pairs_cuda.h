#pragma once

#include "frit/core/cuda/packed.h"
#include "frit/ops/fused/logsumexp_sigmoid_scale_subtract_clamp_walks_cuda.h"

namespace frit::ops {

/// A walk as VectorWalk, for 16 channels of halves, fewer than 2^31 pixels, and RecurringPlaces: a pair of lanes has a pixel, a vector
/// each. Such pixels come so fast that instructions count: halves are compared and converted two at a time, and one shuffle serves both
/// lanes, as each closes pixels of its own.
template <class Stored>
class PairWalk {
 public:
  using T = float;
  static constexpr int channels = 16, at_once = 4, blocks_wanted = 4;
  static constexpr int rows = cuda::warp_size / 2;  ///< pixels that a warp's threads hold side by side

  struct Share {
    T values[channels / 2];
  };
  /// -1 also behind the last pixel.
  class Places {
   public:
    __device__ explicit Places(const Sharing& sharing)
        : places_(sharing.output_places, row_of_thread()), pixels_(static_cast<std::uint32_t>(sharing.planes.pixels)) {}
    __device__ int operator()(std::int64_t, std::int64_t p) const {
      const int place = places_(static_cast<std::uint32_t>(p));
      return p < pixels_ ? place : -1;
    }

   private:
    RecurringPlaces places_;
    std::uint32_t pixels_;
  };

  __device__ PairWalk(const Stored* input, const Sharing& sharing)
      : input_(input), pixels_(static_cast<std::uint32_t>(sharing.planes.pixels)), lane_(static_cast<int>(threadIdx.x) % 2) {}

  template <class Prepare, class Close, class Use>
  __device__ void run(const Prepare& prepare, const Close& close, const Use& use) const {
    constexpr std::uint32_t warps = cuda::default_threads / cuda::warp_size, warp_pixels = rows * at_once, closed = at_once / 2;
    const int turns = static_cast<int>((pixels_ + warp_pixels - 1) / warp_pixels), step = static_cast<int>(gridDim.x * warps);
    // Whole warps walk on together, also past the last pixel.
    for (int turn = turns - 1 - static_cast<int>(blockIdx.x * warps + threadIdx.x / cuda::warp_size); turn >= 0; turn -= step) {
      const std::uint32_t first = static_cast<std::uint32_t>(turn) * warp_pixels;
      const std::int64_t p = first + row_of_thread();
      const int left = static_cast<int>(min(pixels_ - first, warp_pixels)) - row_of_thread();
      uint4 words[at_once] = {};
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        if (u * rows < left) words[u] = __ldcs(reinterpret_cast<const uint4*>(input_ + place(p + u * rows)));
      }
      decltype(prepare(0, p)) prepared[closed];
#pragma unroll
      for (int t = 0; t < closed; ++t) prepared[t] = prepare(0, p + (2 * t + lane_) * rows);
#pragma unroll
      for (int t = 0; t < closed; ++t) {
        const int u = 2 * t;
        Share shares[2];
        T shifts[2];
        const T result = close(prepared[t], reduce(words[u], words[u + 1], shares, shifts));
        if constexpr (!std::is_null_pointer_v<Use>) {
          const T others = __shfl_xor_sync(0xffffffffu, result, 1);
          if (u * rows < left) use(shares[0], 0, p + u * rows, shifts[0], lane_ == 0 ? result : others);
          if ((u + 1) * rows < left) use(shares[1], 0, p + (u + 1) * rows, shifts[1], lane_ == 0 ? others : result);
        }
      }
    }
  }

  __device__ void store(const Share& share, T, T factor, Stored* result, const BlockedPlaces&, std::int64_t, std::int64_t p) const {
    std::uint32_t words[channels / 4];
#pragma unroll
    for (int j = 0; j < channels / 4; ++j) {
      words[j] = factor == 0 ? 0 : cuda::Packed<Stored>::narrow(share.values[2 * j] * factor, share.values[2 * j + 1] * factor);
    }
    __stcs(reinterpret_cast<uint4*>(result + place(p)), uint4{words[0], words[1], words[2], words[3]});
  }

 private:
  __device__ static int row_of_thread() { return static_cast<int>(threadIdx.x) % cuda::warp_size / 2; }
  __device__ std::int64_t place(std::int64_t p) const { return p * channels + lane_ * (channels / 2); }

  /// exp(x - shift). Products of float16 are far from float32's limits: the factor of the exponent may come first, and the difference costs
  /// nothing; what rounding takes from the product, it takes from all elements alike.
  __device__ static T exponential(T x, T shift) {
    if constexpr (std::is_same_v<Stored, Half>) return power_of_two(fmaf(x, log2_e, -(shift * log2_e)));
    return fast_exponential(x - shift);
  }

  /// Two pixels, of which the lane gets the sums of its own. Leaves the shares with their exponentials.
  __device__ PixelSum<Stored> reduce(const uint4& a, const uint4& b, Share (&shares)[2], T (&shifts)[2]) const {
    using Pair = cuda::Packed<Stored>;
    const std::uint32_t greatest_a = Pair::greater(Pair::greater(a.x, a.y), Pair::greater(a.z, a.w));
    const std::uint32_t greatest_b = Pair::greater(Pair::greater(b.x, b.y), Pair::greater(b.z, b.w));
    std::uint32_t greatest = Pair::greater(__byte_perm(greatest_a, greatest_b, 0x5410), __byte_perm(greatest_a, greatest_b, 0x7632));
    greatest = Pair::greater(greatest, __shfl_xor_sync(0xffffffffu, greatest, 1));
    const float2 largest = Pair::widen(greatest);
    shifts[0] = shift_of(largest.x);
    shifts[1] = shift_of(largest.y);
    const T sums[2] = {exponentiate(a, shifts[0], shares[0]), exponentiate(b, shifts[1], shares[1])};
    const bool second = lane_ != 0;
    const T others = __shfl_xor_sync(0xffffffffu, second ? sums[0] : sums[1], 1);
    return {second ? shifts[1] : shifts[0], (second ? sums[1] : sums[0]) + others};
  }

  __device__ static T exponentiate(const uint4& elements, T shift, Share& share) {
    const std::uint32_t words[] = {elements.x, elements.y, elements.z, elements.w};
    T sums[2];
#pragma unroll
    for (int j = 0; j < channels / 4; ++j) {
      const float2 pair = cuda::Packed<Stored>::widen(words[j]);
      const T low = share.values[2 * j] = exponential(pair.x, shift), high = share.values[2 * j + 1] = exponential(pair.y, shift);
      sums[0] = j == 0 ? low : sums[0] + low;
      sums[1] = j == 0 ? high : sums[1] + high;
    }
    return sums[0] + sums[1];
  }

  const Stored* input_;
  std::uint32_t pixels_;
  int lane_;
};

}  // namespace frit::ops
