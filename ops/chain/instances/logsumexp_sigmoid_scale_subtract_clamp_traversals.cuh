#pragma once

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp.cuh"
#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/planes.cuh"

// How threads traverse pixels and find the logsumexp of each one's channels. A traversal has
//   run(prepare, finalize, use)  calls, in one thread a pixel, finalize(prepare(sample, pixel), logsumexp), and then, in all threads that
//                                share the pixel, use(their share of it, sample, pixel, shift, what finalize gave)
//                                or nothing if use is null
//   store(...)                   writes the gradient of a share, from within use

namespace frit::ops {

inline constexpr float log2_e = 1.4426950408889634f;

__device__ inline float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// exp(x) for x <= 0 or infinite. Errs by a unit or two in the last place near 0, where the terms that count lie, and by more only where
/// they are small; what float holds with less than its full digits becomes 0.
__device__ inline float fast_exponential(float x) { return power_of_two(x * log2_e); }
__device__ inline double fast_exponential(double x) { return exp(x); }

/// Errs by some 1e-7, also where the logarithm is near 0.
__device__ inline float rough_logarithm(float x) {
  constexpr float log_2 = 0.6931471805599453f;
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result * log_2;
}

/// Keeps the compiler from making one indexed access to local memory of a choice between the elements of an array.
__device__ inline float in_register(float x) {
  asm("" : "+f"(x));
  return x;
}
__device__ inline double in_register(double x) {
  asm("" : "+d"(x));
  return x;
}

/// How threads share out a tensor: `lanes` neighbours to a pixel.
struct Sharing {
  Planes planes;
  BlockedPlaces places, gradient_places;
  OutputPlaces output_places;
  int lanes;

  /// Where a pixel lies in the output.
  __device__ std::int64_t place(std::int64_t n, std::int64_t p) const { return output_places(n * planes.pixels + p); }
};

/// The logsumexp of a pixel, and what its gradient needs.
template <class Stored>
struct PixelSum {
  using T = Computed<Stored>;
  T shift, sum;  ///< shift is the largest element where that is finite, else 0; sum is that of exp(element - shift)

  __device__ T value() const {
    if constexpr (is_half_type<Stored>) return rough_logarithm(sum) + shift;
    return log(sum) + shift;
  }
};

/// The largest of a pixel's elements, NaNs aside, becomes its shift.
template <class T>
__device__ T shift_of(T largest) {
  return isfinite(largest) ? largest : T(0);
}

/// exponential * factor, which is 0 for the factor 0: a pixel that is cut off may be infinite.
template <class T>
__device__ T scaled(T exponential, T factor) {
  return factor == 0 ? T(0) : exponential * factor;
}

/// For channels that lie side by side in vectors, at most one to a lane, and pixels without gaps between them. A warp's pixels follow each
/// other. A group of lanes takes `at_once` of them at a time, no more than it has lanes: several loads are under way, and each pixel is
/// finalized by a lane of its own, which prepares for that before it looks at what was loaded. It goes from the last pixels to the
/// first: what a convolution wrote last is still in the cache.
template <class Stored, int at_once>
class VectorTraversal {
 public:
  using T = Computed<Stored>;
  static constexpr int width = cuda::vector_width<Stored>, blocks_wanted = width == 4 ? 4 : 3;

  struct Share {
    T values[width];
    std::int64_t offset;
  };

  __device__ VectorTraversal(const Stored* input, const Sharing& sharing)
      : input_(input),
        pixels_(sharing.planes.pixels),
        channels_(static_cast<int>(sharing.planes.channels)),
        lanes_(sharing.lanes),
        lane_(static_cast<int>(threadIdx.x) % lanes_),
        warp_pixels_(cuda::warp_size / lanes_),
        apart_(warp_pixels_ * channels_),
        holds_channels_(lane_ * width < channels_) {}

  template <class Prepare, class Finalize, class Use>
  __device__ void run(const Prepare& prepare, const Finalize& finalize, const Use& use) const {
    constexpr int warps = cuda::default_threads / cuda::warp_size;
    const int turn_pixels = warp_pixels_ * at_once;  // of a warp
    const std::int64_t turns = (pixels_ + turn_pixels - 1) / turn_pixels;
    // Whole warps go on together, also past the last pixel.
    for (std::int64_t turn = turns - 1 - (blockIdx.x * warps + threadIdx.x / cuda::warp_size); turn >= 0; turn -= gridDim.x * warps) {
      const std::int64_t p = turn * turn_pixels + static_cast<int>(threadIdx.x) % cuda::warp_size / lanes_;
      const int left = static_cast<int>(min(pixels_ - p, static_cast<std::int64_t>(turn_pixels)));  // from p on, perhaps none
      const auto holds = [&](int u) { return u * warp_pixels_ < left; };
      // Where vector u is. Another pixel's takes the place of one that is not there. Lanes without channels have the first ones.
      const auto offset_of = [&](int u) -> std::int64_t {
        const std::int64_t own = (left > 0 ? p * channels_ : 0) + (holds_channels_ ? lane_ * width : 0);
        return own + (holds(u) ? u * apart_ : 0);
      };
      cuda::WideVector<Stored> loaded[at_once];
#pragma unroll
      for (int u = 0; u < at_once; ++u) loaded[u] = cuda::load_once(input_ + offset_of(u));
      const bool finalizes = lane_ < at_once && holds(lane_);
      decltype(prepare(p, p)) prepared = {};
      if (finalizes) prepared = prepare(0, p + lane_ * warp_pixels_);
      Share shares[at_once];
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        shares[u].offset = offset_of(u);
#pragma unroll
        for (int j = 0; j < width; ++j) shares[u].values[j] = convert<T>(loaded[u][j]);
      }
      PixelSum<Stored> sums[at_once];
      reduce(shares, sums);
      PixelSum<Stored> own = sums[0];
#pragma unroll
      for (int u = 1; u < at_once; ++u) {
        const T shift = in_register(sums[u].shift), sum = in_register(sums[u].sum);
        own.shift = u == lane_ ? shift : own.shift;
        own.sum = u == lane_ ? sum : own.sum;
      }
      const T result = finalizes ? finalize(prepared, own) : T(0);
      if constexpr (!std::is_null_pointer_v<Use>) {
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          const T told = __shfl_sync(0xffffffffu, result, u, lanes_);
          if (holds(u) && holds_channels_) use(shares[u], 0, p + u * warp_pixels_, sums[u].shift, told);
        }
      }
    }
  }

  __device__ void store(const Share& share, T, T factor, Stored* result, const BlockedPlaces&, std::int64_t, std::int64_t) const {
    cuda::WideVector<Stored> elements;
#pragma unroll
    for (int j = 0; j < width; ++j) elements[j] = convert<Stored>(scaled(share.values[j], factor));
    cuda::store_once(result + share.offset, elements);
  }

 private:
  /// Leaves the shares with their exponentials.
  __device__ void reduce(Share (&shares)[at_once], PixelSum<Stored> (&sums)[at_once]) const {
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      sums[u].shift = shares[u].values[0];
#pragma unroll
      for (int j = 1; j < width; ++j) sums[u].shift = max(sums[u].shift, shares[u].values[j]);
    }
    for (int mask = lanes_ / 2; mask > 0; mask /= 2) {
#pragma unroll
      for (int u = 0; u < at_once; ++u) sums[u].shift = max(sums[u].shift, __shfl_xor_sync(0xffffffffu, sums[u].shift, mask));
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      sums[u].shift = shift_of(sums[u].shift);
      T sum = 0;
#pragma unroll
      for (int j = 0; j < width; ++j) sum += shares[u].values[j] = fast_exponential(shares[u].values[j] - sums[u].shift);
      sums[u].sum = holds_channels_ ? sum : T(0);
    }
    for (int mask = lanes_ / 2; mask > 0; mask /= 2) {
#pragma unroll
      for (int u = 0; u < at_once; ++u) sums[u].sum += __shfl_xor_sync(0xffffffffu, sums[u].sum, mask);
    }
  }

  const Stored* input_;
  std::int64_t pixels_;
  int channels_, lanes_, lane_;
  int warp_pixels_, apart_;  ///< pixels that a warp's threads hold side by side, and their elements
  bool holds_channels_;
};

/// For any layout and any number of channels: a lane has every `lanes`-th channel. `small` says that a share holds all that a lane has of a
/// pixel; otherwise the channels are reread from the cache when they are needed. The pixels of a warp follow each other.
template <class Stored, bool small>
class PixelTraversal {
 public:
  using T = Computed<Stored>;
  static constexpr int kept = 16, blocks_wanted = 1;

  /// What a thread holds of one pixel's channels, -infinity where there are none.
  struct Share {
    T values[kept];

    /// NaNs aside.
    __device__ T largest() const {
      T result = values[0];
#pragma unroll
      for (int k = 1; k < kept; ++k) result = max(result, values[k]);
      return result;
    }
    /// Replaces the values by their exponentials and returns the sum.
    __device__ T exponentiate(T shift) {
      T sum = 0;
#pragma unroll
      for (int k = 0; k < kept; ++k) sum += values[k] = fast_exponential(values[k] - shift);
      return sum;
    }
  };

  __device__ PixelTraversal(const Stored* input, const Sharing& sharing)
      : input_(input),
        planes_(sharing.planes),
        places_(sharing.places),
        lanes_(sharing.lanes),
        lane_(static_cast<int>(threadIdx.x) % lanes_),
        left_(planes_.channels - lane_) {}

  template <class Prepare, class Finalize, class Use>
  __device__ void run(const Prepare& prepare, const Finalize& finalize, const Use& use) const {
    const std::int64_t block_pixels = cuda::default_threads / lanes_, step = gridDim.x * block_pixels;
    for (std::int64_t n = blockIdx.y; n < planes_.samples; n += gridDim.y) {
      // Whole warps go on together, also past the last pixel.
      for (std::int64_t first = blockIdx.x * block_pixels; first < planes_.pixels; first += step) {
        const std::int64_t p = first + static_cast<int>(threadIdx.x) / lanes_;
        const bool inside = p < planes_.pixels;
        Share share;
        const PixelSum<Stored> sums = reduce(share, n, p);
        T result = 0;
        if (inside && lane_ == 0) result = finalize(prepare(n, p), sums);
        if constexpr (!std::is_null_pointer_v<Use>) {
          result = __shfl_sync(0xffffffffu, result, 0, lanes_);
          if (inside) use(share, n, p, sums.shift, result);
        }
      }
    }
  }

  /// exp(element - shift) * factor goes to the elements' places in `result`.
  __device__ void store(Share& share, T shift, T factor, Stored* result, const BlockedPlaces& places, std::int64_t n,
                        std::int64_t p) const {
    Stored* const own = result + places(n, lane_, p);
    for (std::int64_t done = 0; done < (small ? 1 : left_); done += lanes_ * kept) {
      if constexpr (!small) {
        load(share, n, p, done);
        share.exponentiate(shift);
      }
      Stored* const first = own + done * places.channel;
      const std::int64_t left = left_ - done, step = lanes_ * places.channel;
#pragma unroll
      for (int k = 0; k < kept; ++k) {
        if (k * lanes_ < left) first[k * step] = convert<Stored>(scaled(share.values[k], factor));
      }
    }
  }

 private:
  /// Of the channels after `done` of them. Where there are none, it reads anything: loads without conditions are under way together.
  __device__ void load(Share& share, std::int64_t n, std::int64_t p, std::int64_t done) const {
    const Stored* const first = input_ + places_(n, lane_ + done, p);
    const std::int64_t left = p < planes_.pixels ? left_ - done : 0, step = lanes_ * places_.channel;
#pragma unroll
    for (int k = 0; k < kept; ++k) {
      const bool there = k * lanes_ < left;
      const Stored element = *(there ? first + k * step : input_);
      share.values[k] = there ? convert<T>(element) : -std::numeric_limits<T>::infinity();
    }
  }

  /// The share, which holds the first channels, comes back with their exponentials if they are all.
  __device__ PixelSum<Stored> reduce(Share& share, std::int64_t n, std::int64_t p) const {
    load(share, n, p, 0);
    T shift = share.largest(), sum = 0;
    if constexpr (!small) {
      for (std::int64_t done = lanes_ * kept; done < planes_.channels; done += lanes_ * kept) {
        load(share, n, p, done);
        shift = max(shift, share.largest());
      }
    }
    for (int mask = lanes_ / 2; mask > 0; mask /= 2) shift = max(shift, __shfl_xor_sync(0xffffffffu, shift, mask));
    shift = shift_of(shift);
    if constexpr (small) {
      sum = share.exponentiate(shift);
    } else {
      for (std::int64_t done = 0; done < planes_.channels; done += lanes_ * kept) {
        load(share, n, p, done);
        sum += share.exponentiate(shift);
      }
    }
    for (int mask = lanes_ / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    return {shift, sum};
  }

  const Stored* input_;
  Planes planes_;
  BlockedPlaces places_;
  int lanes_, lane_;
  std::int64_t left_;  ///< channels from the thread's first on
};

}  // namespace frit::ops
