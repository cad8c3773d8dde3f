#pragma once

#include "frit/ops/fused/group_norm_scale_max_pool_clamp.h"
#include "frit/ops/fused/slice_moments_cuda.h"

namespace frit::ops {

/// ScaledGroupChannel for the device: the norm in one channel of one sample as (x - reference) * slope + shift, and the factor behind it.
/// The reference is the mean, rounded: the difference keeps the digits of data far from zero, and is 0 where all elements are equal.
template <class T>
struct GroupMap {
  T reference, rest, slope, shift, scale;  ///< the mean is reference + rest

  GroupMap() = default;
  __device__ GroupMap(double mean, double rstd, T weight, T bias, T scale_)
      : reference(static_cast<T>(mean)),
        rest(static_cast<T>(mean - static_cast<double>(reference))),
        slope(static_cast<T>(rstd * static_cast<double>(weight))),
        shift(static_cast<T>(static_cast<double>(bias) - (mean - static_cast<double>(reference)) * rstd * static_cast<double>(weight))),
        scale(scale_) {}

  __device__ T centered(T x) const { return x - reference - rest; }
  __device__ T normalized(T x) const { return (x - reference) * slope + shift; }
  __device__ T operator()(T x) const { return normalized(x) * scale; }
};

/// One image axis of a pool's windows; an image has less than 2^31 elements.
struct WindowAxis {
  std::int32_t image, output, kernel, stride, padding, dilation;

  WindowAxis(const PoolGeometry& pool, std::size_t axis)
      : image(static_cast<std::int32_t>(pool.image[axis])),
        output(static_cast<std::int32_t>(pool.output[axis])),
        kernel(static_cast<std::int32_t>(pool.kernel[axis])),
        stride(static_cast<std::int32_t>(std::min<std::int64_t>(pool.stride[axis], INT32_MAX))),
        padding(static_cast<std::int32_t>(pool.padding[axis])),
        dilation(static_cast<std::int32_t>(std::min<std::int64_t>(pool.dilation[axis], INT32_MAX))) {}

  /// The place of kernel element k of window o; outside of [0, image) in the padding.
  __device__ std::int64_t place(std::int32_t o, std::int32_t k) const {
    return static_cast<std::int64_t>(o) * stride - padding + static_cast<std::int64_t>(k) * dilation;
  }
  __device__ bool inside(std::int64_t place) const { return place >= 0 && place < image; }
  /// The first and last window that may hold a place.
  __device__ std::int32_t first_window(std::int32_t place) const {
    const std::int64_t beyond = static_cast<std::int64_t>(place) + padding - static_cast<std::int64_t>(kernel - 1) * dilation;
    return beyond <= 0 ? 0 : static_cast<std::int32_t>((beyond + stride - 1) / stride);
  }
  __device__ std::int32_t last_window(std::int32_t place) const {
    return static_cast<std::int32_t>(min((static_cast<std::int64_t>(place) + padding) / stride, static_cast<std::int64_t>(output) - 1));
  }
  /// Which element of window o the place is; -1 if none. `o` lies between first_window and last_window.
  __device__ std::int32_t element(std::int32_t o, std::int32_t place) const {
    const std::int64_t distance = static_cast<std::int64_t>(place) + padding - static_cast<std::int64_t>(o) * stride;
    return distance % dilation == 0 ? static_cast<std::int32_t>(distance / dilation) : -1;
  }
};

}  // namespace frit::ops
