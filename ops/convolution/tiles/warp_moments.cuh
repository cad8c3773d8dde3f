#pragma once

#include <cstdint>

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/operator/partial_moments.h"

// The moments of what the kernels of convolutions write, from registers: the norm that follows need not read it for them. NVRTC compiles
// this header.

namespace frit::ops {

/// Of one sample's channels, as a warp has them: lane 4 l + q has channels 8 q to 8 q + 7 of some positions, and from the sums over the
/// warp on it is the one of channel 8 q + l. Differences are from what the warp saw first: an offset costs no digits.
class WarpMoments {
 public:
  static constexpr int held = 8, channels = 4 * held;
  static constexpr bool are_found = true;

  /// `origins`: a number for each channel, in shared memory. `first_channel`: of all.
  __device__ WarpMoments(float* origins, int first_channel)
      : lane_(static_cast<int>(threadIdx.x) % 32), origins_(origins), channel_(first_channel + own()) {}

  /// Where the value of a lane's position h, of two, and channel k is.
  __device__ static constexpr int place(int h, int k) { return k / 2 * 4 + 2 * h + k % 2; }

  static constexpr int parts = 3;
  /// Takes the values of `count` positions of all lanes together, of a lane's own those that are inside, in so many parts one after the
  /// other.
  __device__ void add(int part, const float (&values)[2 * held], const bool (&inside)[2], int count) {
    if (count == 0) return;
    if (part == 0) {
      if (count_ == 0) set_origins(values);
      count_ += count;
      float sums[held];
#pragma unroll
      for (int k = 0; k < held; ++k) sums[k] = difference(values, inside, 0, k) + difference(values, inside, 1, k);
      added_ = scattered_sum(sums);
    } else if (part == 1) {
      sum_ += added_;
      added_squares_ = squares(values, inside, 1);
    } else {
      double factor = 1;
      const bool large = !(added_squares_ < 1e37f), small = added_squares_ < 1e-30f && added_ != 0;
      if (__any_sync(~0u, large || small)) {  // more, or less, than float holds
        const float scale = __any_sync(~0u, large) ? 0x1p-80f : 0x1p80f;
        added_squares_ = squares(values, inside, scale);
        factor = 1 / (static_cast<double>(scale) * scale);
      }
      squares_ += factor * added_squares_;
    }
  }

  /// Writes what there is of the sample, and begins another one.
  __device__ void write(const PartialMoments& to, int sample, int all_channels, int part) {
    if (count_ > 0 && channel_ < all_channels) {
      const double mean = sum_ / count_;
      double* const numbers = to.numbers + ((static_cast<std::int64_t>(sample) * all_channels + channel_) * to.parts + part) * to.count;
      numbers[0] = count_;
      numbers[1] = origins_[own()] + mean;
      numbers[2] = squares_ - sum_ * mean;
    }
    sum_ = squares_ = 0;
    count_ = 0;
  }

 private:
  __device__ int own() const { return lane_ % 4 * held + lane_ / 4; }

  /// From the first position, which is inside if any is.
  __device__ void set_origins(const float (&values)[2 * held]) {
    __syncwarp();
    if (lane_ < 4) {
#pragma unroll
      for (int k = 0; k < held; ++k) origins_[lane_ * held + k] = values[place(0, k)];
    }
    __syncwarp();
  }

  __device__ float difference(const float (&values)[2 * held], const bool (&inside)[2], int h, int k) const {
    return inside[h] ? values[place(h, k)] - origins_[lane_ % 4 * held + k] : 0;
  }

  __device__ float squares(const float (&values)[2 * held], const bool (&inside)[2], float scale) const {
    float squares[held];
#pragma unroll
    for (int k = 0; k < held; ++k) {
      const float a = difference(values, inside, 0, k) * scale, b = difference(values, inside, 1, k) * scale;
      squares[k] = a * a + b * b;
    }
    return scattered_sum(squares);
  }

  /// Of lane 4 l + q: the sum of element l over the lanes with its q.
  __device__ float scattered_sum(float (&elements)[held]) const {
#pragma unroll
    for (int half = held / 2; half > 0; half /= 2) {
      const bool upper = (lane_ & (4 * half)) != 0;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float kept = upper ? elements[i + half] : elements[i], given = upper ? elements[i] : elements[i + half];
        elements[i] = kept + __shfl_xor_sync(~0u, given, 4 * half);
      }
    }
    return elements[0];
  }

  int lane_;
  float* origins_;
  int channel_, count_ = 0;
  float added_ = 0, added_squares_ = 0;  // of one row
  double sum_ = 0, squares_ = 0;
};

/// Where nobody asks for them.
struct NoMoments {
  static constexpr bool are_found = false;
  static constexpr int parts = 0;

  __device__ NoMoments(float*, int) {}
  __device__ void add(int, const float (&)[2 * WarpMoments::held], const bool (&)[2], int) {}
  __device__ void write(const PartialMoments&, int, int, int) {}
};

}  // namespace frit::ops
