#pragma once

#include "frit/ops/chain/instances/group_norm_scale_max_pool_clamp.h"
#include "frit/ops/chain/stages/chain_outputs.cuh"
#include "frit/ops/cuda/parameter.cuh"

namespace frit::ops {

/// ScaledGroupChannel for the device: the norm in one channel of one sample as (x - reference) * slope + shift, and the factor after it.
/// The reference is the mean, rounded: the difference keeps the digits of data far from zero, and is 0 where all elements are equal.
template <class T>
struct GroupMap {
  T reference, rest, slope, shift, scale;  ///< the mean is reference + rest

  GroupMap() = default;
  __device__ GroupMap(double mean, double rstd, T weight, T bias, T scale_)
      : reference(static_cast<T>(mean)),
        rest(static_cast<T>(mean - static_cast<double>(reference))),
        slope(static_cast<T>(rstd * static_cast<double>(weight))),
        scale(scale_) {
    const double moved = (mean - static_cast<double>(reference)) * rstd * static_cast<double>(weight);
    shift = isfinite(slope) ? static_cast<T>(static_cast<double>(bias) - moved) : bias;
  }

  __device__ T centered(T x) const { return x - reference - rest; }
  __device__ T normalized(T x) const { return (x - reference) * slope + shift; }
  __device__ T operator()(T x) const { return normalized(x) * scale; }
};

/// One image axis of a pool's windows; with its padding it has less than 2^31 elements.
struct WindowAxis {
  std::int32_t image, output, kernel, stride, padding, dilation;
  cuda::Divisor images, strides, dilations;

  WindowAxis(const PoolGeometry& pool, std::size_t axis)
      : image(static_cast<std::int32_t>(pool.image[axis])),
        output(static_cast<std::int32_t>(pool.output[axis])),
        kernel(static_cast<std::int32_t>(pool.kernel[axis])),
        stride(static_cast<std::int32_t>(std::min<std::int64_t>(pool.stride[axis], INT32_MAX))),
        padding(static_cast<std::int32_t>(pool.padding[axis])),
        dilation(static_cast<std::int32_t>(std::min<std::int64_t>(pool.dilation[axis], INT32_MAX))),
        images(std::max(1, image)),
        strides(stride),
        dilations(dilation) {
    FRIT_CHECK(pool.image[axis] + pool.padding[axis] <= INT32_MAX);
  }

  /// Windows lie next to each other without gaps, all inside the image.
  bool side_by_side() const {
    return stride == kernel && padding == 0 && dilation == 1 && static_cast<std::int64_t>(output) * kernel <= image;
  }
  /// The place of kernel element k of window o; outside of [0, image) in the padding.
  __device__ std::int64_t place(std::int32_t o, std::int32_t k) const {
    return static_cast<std::int64_t>(o) * stride - padding + static_cast<std::int64_t>(k) * dilation;
  }
  __device__ bool inside(std::int64_t place) const { return place >= 0 && place < image; }
  /// The first and last window that may hold a place.
  __device__ std::int32_t first_window(std::int32_t place) const {
    const std::int64_t beyond = static_cast<std::int64_t>(place) + padding - static_cast<std::int64_t>(kernel - 1) * dilation;
    return beyond <= 0 ? 0 : static_cast<std::int32_t>(strides.quotient(static_cast<std::uint32_t>(beyond - 1)) + 1);
  }
  __device__ std::int32_t last_window(std::int32_t place) const {
    return min(static_cast<std::int32_t>(strides.quotient(static_cast<std::uint32_t>(place + padding))), output - 1);
  }
  /// Which element of window o the place is; -1 if none. `o` lies between first_window and last_window.
  __device__ std::int32_t element(std::int32_t o, std::int32_t place) const {
    const auto distance = static_cast<std::uint32_t>(place + padding - o * stride), result = dilations.quotient(distance);
    return dilations.remainder(distance, result) == 0 ? static_cast<std::int32_t>(result) : -1;
  }
};

/// What the maps are made of in addition to the statistics.
template <class Stored>
struct GroupParameters {
  using T = Computed<Stored>;
  Parameter<Stored> weight, bias, scale;

  /// Those inputs, from the first of them on.
  GroupParameters(const KernelContext& call, std::size_t first)
      : weight(call.inputs[first]), bias(call.inputs[first + 1]), scale(call.inputs[first + 2]) {}
  __device__ GroupMap<T> map(std::int64_t c, double mean, double rstd) const { return {mean, rstd, weight[c], bias[c], scale[c]}; }
  /// -1 where the map falls, so that the maximum is that of the smallest element.
  __device__ T sign(std::int64_t c) const { return (weight[c] < 0) != (scale[c] < 0) ? T(-1) : T(1); }
};

/// One window's maximum, its place in the window and the element that it comes from.
template <class T>
struct FoundMaximum {
  T value;
  std::int32_t number;
  T element;
};

/// Element by element: of equals the first, of NaNs the last. `x` is the plane, whose pixels are `step` apart.
template <class Stored>
__device__ FoundMaximum<Computed<Stored>> find_window_maximum(const GroupMap<Computed<Stored>>& map, const Stored* x, std::int64_t step,
                                                              const WindowAxis& height, const WindowAxis& width, std::int32_t row,
                                                              std::int32_t column) {
  using T = Computed<Stored>;
  FoundMaximum<T> best{-std::numeric_limits<T>::infinity(), -1, 0};
  for (std::int32_t kh = 0; kh < height.kernel; ++kh) {
    const std::int64_t h = height.place(row, kh);
    if (!height.inside(h)) continue;
#pragma unroll 4
    for (std::int32_t kw = 0; kw < width.kernel; ++kw) {
      const std::int64_t w = width.place(column, kw);
      if (!width.inside(w)) continue;
      const T element = convert<T>(x[(h * width.image + w) * step]), value = map(element);
      const bool wins = best.number < 0 || replaces_maximum(value, best.value);
      best.value = wins ? value : best.value;
      best.number = wins ? kh * width.kernel + kw : best.number;
      best.element = wins ? element : best.element;
    }
  }
  return best;
}

}  // namespace frit::ops
