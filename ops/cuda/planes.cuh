#pragma once

#include <algorithm>
#include <cstdint>

#include "frit/core/cuda/divisor.cuh"
#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/reduce.cuh"
#include "frit/ops/operator/planes.h"

namespace frit::ops {

// Images (N, C, ...) as planes, on the device, in either layout.

/// Where the elements of a tensor (N, C, pixels) lie, in either layout.
struct Places {
  std::int64_t sample, channel, pixel;  ///< steps

  Places(const Tensor& tensor, const Planes& planes) : sample(planes.channels * planes.pixels), channel(planes.pixels), pixel(1) {
    if (tensor.is_contiguous()) return;
    FRIT_CHECK(tensor.is_contiguous(Layout::channels_last));
    channel = 1;
    pixel = planes.channels;
  }

  bool channels_last() const { return pixel != 1; }
  FRIT_HOST_DEVICE std::int64_t operator()(std::int64_t n, std::int64_t c, std::int64_t p) const {
    return n * sample + c * channel + p * pixel;
  }
};

/// The elements of a sample in the order of their memory.
class ElementOrder {
 public:
  ElementOrder(const Planes& planes, bool channels_last)
      : inner_(std::max<std::int64_t>(1, channels_last ? planes.channels : planes.pixels)),
        channels_last_(channels_last),
        small_(planes.channels * planes.pixels <= INT32_MAX) {}

  /// Element i's channel and pixel.
  __device__ void locate(std::int64_t i, std::int64_t& channel, std::int64_t& pixel) const {
    std::int64_t outer, inner;
    if (small_) {
      const auto rest = static_cast<std::uint32_t>(i), quotient = inner_.quotient(rest);
      outer = quotient, inner = inner_.remainder(rest, quotient);
    } else {
      const auto rest = static_cast<std::uint64_t>(i), quotient = inner_.quotient(rest);
      outer = static_cast<std::int64_t>(quotient), inner = static_cast<std::int64_t>(inner_.remainder(rest, quotient));
    }
    channel = channels_last_ ? inner : outer;
    pixel = channels_last_ ? outer : inner;
  }

 private:
  cuda::Divisor inner_;
  bool channels_last_, small_;
};

/// Blocks for a loop over the items of each sample, the samples along the grid's second axis.
inline cuda::LaunchShape sample_loop_shape(std::int64_t samples, std::int64_t items) {
  const std::int64_t rows = std::clamp<std::int64_t>(samples, 1, 1 << 12);
  const std::int64_t columns = (items + cuda::default_threads - 1) / cuda::default_threads;
  return {dim3(static_cast<unsigned>(std::clamp<std::int64_t>(columns, 1, std::max<std::int64_t>(1, (1 << 14) / rows))),
               static_cast<unsigned>(rows)),
          dim3(cuda::default_threads)};
}

/// So many elements further; null stays null.
template <class T>
FRIT_HOST_DEVICE T* moved(T* memory, std::int64_t offset) {
  return memory != nullptr ? memory + offset : nullptr;
}

/// The smallest power of 2 that is `count` or more, at most a warp.
inline int lanes_for(std::int64_t count) {
  int lanes = 1;
  while (lanes < count && lanes < cuda::warp_size) lanes *= 2;
  return lanes;
}

/// A block of `default_threads` as rows of `lanes` threads, a power of 2 up to a warp: the sum over the rows, valid in the first.
/// `shared` holds a block's warps times a warp of elements, and may be used again after a barrier.
template <class T>
__device__ T sum_rows(T value, int lanes, T* shared) {
  const int warp = static_cast<int>(threadIdx.x) / cuda::warp_size, lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  for (int mask = cuda::warp_size / 2; mask >= lanes; mask /= 2) value = value + cuda::shuffle_xor(value, mask);
  if (lane < lanes) shared[warp * cuda::warp_size + lane] = value;
  __syncthreads();
  if (warp == 0 && lane < lanes) {
    for (int other = 1; other < static_cast<int>(blockDim.x) / cuda::warp_size; ++other) {
      value = value + shared[other * cuda::warp_size + lane];
    }
  }
  return value;
}

}  // namespace frit::ops
