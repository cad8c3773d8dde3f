#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/chain/stages/slice_moments.cuh"

namespace frit::ops {

// What one thread makes of the vectors of channels that it reads.

/// Sums of each channel, around the first elements that the thread sees.
template <class Stored, class Sum>
struct VectorSums {
  static constexpr int width = cuda::vector_width<Stored>;
  ThreadSums<Sum> sums[width];
  int count = 0;

  /// Before `more` elements are added, of which x is one.
  __device__ void begin(const cuda::WideVector<Stored>& x, int more) {
    if (count == 0) {
#pragma unroll
      for (int j = 0; j < width; ++j) sums[j] = ThreadSums<Sum>(convert<Sum>(x[j]));
    }
    count += more;
  }
  /// What the sums are around.
  __device__ cuda::WideVector<Stored> pivots() const {
    cuda::WideVector<Stored> result;
#pragma unroll
    for (int j = 0; j < width; ++j) result[j] = convert<Stored>(sums[j].pivot());
    return result;
  }
  __device__ void add(const cuda::WideVector<Stored>& x) {
#pragma unroll
    for (int j = 0; j < width; ++j) sums[j].add(convert<Sum>(x[j]));
  }
};

/// Each channel's maximum, or where it is turned its minimum, over the elements of a window, and which of them it is: of equals the first.
/// A 32-bit word holds one float or two halves, which are compared at once. What is not finite is of no concern: see keeps_order.
/// `numbered`: which of them is asked for.
template <class Stored, bool numbered>
class VectorMaxima {
 public:
  static constexpr int width = cuda::vector_width<Stored>;
  using Elements = cuda::WideVector<Stored>;
  using Words = cuda::Vector<std::uint32_t, 4>;

  /// `signs`: what the elements are to be xored with, the sign bit where a channel is turned.
  template <bool turned, int count>
  __device__ void find(const Words (&elements)[count], const Words& signs) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const Words& words = elements[i];
#pragma unroll
      for (int w = 0; w < 4; ++w) take(w, turned ? words[w] ^ signs[w] : words[w], static_cast<std::uint32_t>(i));
    }
  }
  /// As they were compared, with turned signs.
  __device__ Stored value(int j) const { return std::bit_cast<Elements>(values_)[j]; }
  __device__ std::uint8_t number(int j) const { return static_cast<std::uint8_t>(numbers_[j / per_word] >> j % per_word * 16); }
  __device__ static Words signs(const bool (&turned)[width]) {
    Words words{};
#pragma unroll
    for (int j = 0; j < width; ++j) words[j / per_word] |= turned[j] ? 1u << ((j % per_word + 1) * 32 / per_word - 1) : 0u;
    return words;
  }

 private:
  static constexpr int per_word = width / 4;
  using Pair = std::conditional_t<std::is_same_v<Stored, Half>, __half2, __nv_bfloat162>;

  __device__ void take(int w, std::uint32_t offered, std::uint32_t number) {
    if (number == 0) {
      values_[w] = offered;
      numbers_[w] = 0;
    } else if constexpr (!numbered) {
      values_[w] = greatest(offered, values_[w]);
    } else if constexpr (is_half_type<Stored>) {
      const std::uint32_t wins = greater(offered, values_[w]);
      values_[w] = (offered & wins) | (values_[w] & ~wins);
      numbers_[w] = ((number << 16 | number) & wins) | (numbers_[w] & ~wins);
    } else {
      const bool wins = std::bit_cast<float>(offered) > std::bit_cast<float>(values_[w]);
      values_[w] = wins ? offered : values_[w];
      numbers_[w] = wins ? number : numbers_[w];
    }
  }

  __device__ static std::uint32_t greatest(const std::uint32_t& a, const std::uint32_t& b) {
    if constexpr (is_half_type<Stored>) {
      const Pair result = __hmax2(reinterpret_cast<const Pair&>(a), reinterpret_cast<const Pair&>(b));
      return reinterpret_cast<const std::uint32_t&>(result);
    } else {
      return std::bit_cast<std::uint32_t>(fmaxf(std::bit_cast<float>(a), std::bit_cast<float>(b)));
    }
  }
  /// Two halves each: all bits of those of which the first is greater.
  __device__ static std::uint32_t greater(const std::uint32_t& a, const std::uint32_t& b) {
    return __hgt2_mask(reinterpret_cast<const Pair&>(a), reinterpret_cast<const Pair&>(b));
  }

  Words values_, numbers_;
};

}  // namespace frit::ops
