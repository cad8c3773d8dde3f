#pragma once

#include <concepts>

#include "frit/ops/operator/attributes.h"
#include "frit/ops/operator/value.h"

namespace frit {

/// Dims fields as in ConvolutionOptions.
struct PoolOptions {
  Dims kernel_size;
  Dims stride = {};    ///< default: kernel_size
  Dims padding = {};   ///< at most half the kernel; default 0
  Dims dilation = {};  ///< max_pool only; default 1
  bool ceil_mode = false;
  bool count_include_pad = true;  ///< avg_pool only

  void fields(FieldVisitor& v);
};

namespace ops {

/// Called with options or with the kernel alone: max_pool2d(x, {.kernel_size = 3, .stride = 2}), max_pool2d(x, 2), max_pool2d(x, Dims{3,
/// 2}). In braces stand fields: {3, 2} is a kernel of 3 with a stride of 2.
struct Pool {
  bool maximum;
  int axes;  ///< of the image

  Value operator()(Value input, const PoolOptions& options) const;
  template <std::convertible_to<Dims> Size>
  Value operator()(Value input, const Size& kernel_size) const {
    return (*this)(input, PoolOptions{.kernel_size = kernel_size});
  }
};

}  // namespace ops

/// input (N, C, [[D,] H,] W); one axis is computed as an image with one row. The first of equal maxima has the gradient, the last NaN wins,
/// padding never does.
inline constexpr ops::Pool max_pool1d{true, 1}, max_pool2d{true, 2}, max_pool3d{true, 3};
inline constexpr ops::Pool avg_pool1d{false, 1}, avg_pool2d{false, 2}, avg_pool3d{false, 3};

/// input (N, C, ...) with 1 to 3 image axes -> image axes of these sizes, one number an axis or one for all. Output o of an axis is of
/// elements floor(o I / O) ... ceil((o + 1) I / O) - 1. Where I is no multiple of O everywhere: a mean is a product with a matrix (O, I) an
/// axis, in which what is not finite makes NaN of its line; a maximum is slices.
Value adaptive_avg_pool(Value input, const Dims& output_size);
Value adaptive_max_pool(Value input, const Dims& output_size);
/// The mean over all image axes, which are kept with size 1; emits "mean".
Value global_avg_pool(Value input);

}  // namespace frit
