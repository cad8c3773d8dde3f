#pragma once

#include <bit>

#include "frit/core/cuda/packed.cuh"
#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp_traversals.cuh"

namespace frit::ops {

/// A traversal as VectorTraversal, for 16 channels of halves, fewer than 2^31 pixels, and RecurringPlaces: a pair of lanes has a pixel, a
/// vector each. Such pixels come so fast that instructions count: halves are compared and converted two at a time, and one shuffle serves
/// both lanes, as each finalizes pixels of its own.
template <class Stored>
class PairTraversal {
 public:
  using T = float;
  using Places = RecurringPixelPlaces;
  static constexpr int channels = 16, at_once = 4, blocks_wanted = 4;
  static constexpr int warp_pixels = cuda::warp_size / 2;  ///< pixels that a warp's threads hold side by side

  struct Share {
    T values[channels / 2];
  };
  __device__ PairTraversal(const Stored* input, const Sharing& sharing)
      : input_(input), pixels_(static_cast<std::uint32_t>(sharing.planes.pixels)), lane_(static_cast<int>(threadIdx.x) % 2) {}

  struct Turn {
    cuda::WideVector<Stored> loaded[at_once];
    std::int64_t p;
    int left;
  };
  static constexpr int finalized = at_once / 2;

  __device__ int turns() const { return static_cast<int>((pixels_ + turn_pixels() - 1) / turn_pixels()); }
  __device__ static constexpr std::uint32_t turn_pixels() { return warp_pixels * at_once; }

  __device__ Turn turn(int number) const {
    const std::uint32_t first = static_cast<std::uint32_t>(number) * turn_pixels();
    Turn turn = {};
    turn.p = first + row_of_thread();
    turn.left = (first < pixels_ ? static_cast<int>(min(pixels_ - first, turn_pixels())) : 0) - row_of_thread();
    return turn;
  }
  __device__ bool holds(const Turn& turn, int u) const { return u * warp_pixels < turn.left; }
  __device__ std::int64_t offset_of(const Turn& turn, int u) const { return place(turn.p + u * warp_pixels); }
  __device__ void load(Turn& turn) const {
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      if (holds(turn, u)) turn.loaded[u] = cuda::load_once(input_ + offset_of(turn, u));
    }
  }
  template <class Prepare, class Prepared>
  __device__ void prepare(const Turn& turn, Prepared (&prepared)[finalized], const Prepare& prepare) const {
#pragma unroll
    for (int t = 0; t < finalized; ++t) prepared[t] = prepare(0, turn.p + (2 * t + lane_) * warp_pixels);
  }

  template <class Prepared, class Finalize, class Use>
  __device__ void finish(const Turn& turn, const Prepared (&prepared)[finalized], const Finalize& finalize, const Use& use) const {
#pragma unroll
    for (int t = 0; t < finalized; ++t) {
      const int u = 2 * t;
      Share shares[2];
      T shifts[2];
      const T result =
          finalize(prepared[t], reduce(std::bit_cast<uint4>(turn.loaded[u]), std::bit_cast<uint4>(turn.loaded[u + 1]), shares, shifts));
      if constexpr (!std::is_null_pointer_v<Use>) {
        const T others = __shfl_xor_sync(0xffffffffu, result, 1);
        if (holds(turn, u)) use(shares[0], 0, turn.p + u * warp_pixels, shifts[0], lane_ == 0 ? result : others);
        if (holds(turn, u + 1)) use(shares[1], 0, turn.p + (u + 1) * warp_pixels, shifts[1], lane_ == 0 ? others : result);
      }
    }
  }

  template <class Prepare, class Finalize, class Use>
  __device__ void run(const Prepare& prepare, const Finalize& finalize, const Use& use) const {
    constexpr int warps = cuda::default_threads / cuda::warp_size;
    const int step = static_cast<int>(gridDim.x) * warps;
    // Whole warps go on together, also past the last pixel.
    for (int number = turns() - 1 - static_cast<int>(blockIdx.x * warps + threadIdx.x / cuda::warp_size); number >= 0; number -= step) {
      Turn turn = this->turn(number);
      load(turn);
      decltype(prepare(0, std::int64_t())) prepared[finalized];
      this->prepare(turn, prepared, prepare);
      finish(turn, prepared, finalize, use);
    }
  }

  __device__ static cuda::WideVector<Stored> gradient(const Share& share, T factor) {
    cuda::Vector<std::uint32_t, channels / 4> words;
#pragma unroll
    for (int j = 0; j < channels / 4; ++j) {
      words[j] = factor == 0 ? 0 : cuda::Packed<Stored>::narrow(share.values[2 * j] * factor, share.values[2 * j + 1] * factor);
    }
    return std::bit_cast<cuda::WideVector<Stored>>(words);
  }

  __device__ void store(const Share& share, T, T factor, Stored* result, const BlockedPlaces&, std::int64_t, std::int64_t p) const {
    cuda::store_once(result + place(p), gradient(share, factor));
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
