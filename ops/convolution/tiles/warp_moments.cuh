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

  /// Values of `count` positions of all lanes together; of this lane's two, those that are inside.
  __device__ void add(const float (&values)[2][held], const bool (&inside)[2], int count) {
    if (count == 0) return;
    float* const mine = origins_ + lane_ % 4 * held;
    if (count_ == 0) {
      __syncwarp();
      if (lane_ < 4) {  // their first positions are inside if any is
#pragma unroll
        for (int k = 0; k < held; ++k) mine[k] = values[0][k];
      }
      __syncwarp();
    }
    count_ += count;
    float differences[2][held], sums[held];
#pragma unroll
    for (int k = 0; k < held; ++k) {
#pragma unroll
      for (int h = 0; h < 2; ++h) differences[h][k] = inside[h] ? values[h][k] - mine[k] : 0;
      sums[k] = differences[0][k] + differences[1][k];
    }
    const float sum = scattered_sum(sums);
    float found = squares(differences, 1);
    double factor = 1;
    const bool large = !(found < 1e37f), small = found < 1e-30f && sum != 0;
    if (__any_sync(~0u, large || small)) {  // more, or less, than float holds
      const float scale = __any_sync(~0u, large) ? 0x1p-80f : 0x1p80f;
      found = squares(differences, scale);
      factor = 1 / (static_cast<double>(scale) * scale);
    }
    sum_ += sum;
    squares_ += factor * found;
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

  __device__ float squares(const float (&differences)[2][held], float scale) const {
    float squares[held];
#pragma unroll
    for (int k = 0; k < held; ++k) {
      const float a = differences[0][k] * scale, b = differences[1][k] * scale;
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
  double sum_ = 0, squares_ = 0;
};

/// Where nobody asks for them.
struct NoMoments {
  static constexpr bool are_found = false;

  __device__ NoMoments(float*, int) {}
  __device__ void add(const float (&)[2][WarpMoments::held], const bool (&)[2], int) {}
  __device__ void write(const PartialMoments&, int, int, int) {}
};

}  // namespace frit::ops
