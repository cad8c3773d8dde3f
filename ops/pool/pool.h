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

/// input (N, C, [D,] H, W). The first of equal maxima has the gradient, the last NaN wins, padding never does.
Value max_pool2d(Value input, const PoolOptions& options);
Value max_pool3d(Value input, const PoolOptions& options);
Value avg_pool2d(Value input, const PoolOptions& options);
Value avg_pool3d(Value input, const PoolOptions& options);
/// input (N, C, L), as images with one row.
Value max_pool1d(Value input, const PoolOptions& options);
Value avg_pool1d(Value input, const PoolOptions& options);
// The kernel alone: max_pool2d(x, 2), max_pool2d(x, Dims{3, 2}). In braces stand fields: {3, 2} is a kernel of 3 with a stride of 2.
template <std::convertible_to<Dims> Size>
Value max_pool1d(Value input, const Size& kernel_size) {
  return max_pool1d(input, PoolOptions{.kernel_size = kernel_size});
}
template <std::convertible_to<Dims> Size>
Value avg_pool1d(Value input, const Size& kernel_size) {
  return avg_pool1d(input, PoolOptions{.kernel_size = kernel_size});
}
template <std::convertible_to<Dims> Size>
Value max_pool2d(Value input, const Size& kernel_size) {
  return max_pool2d(input, PoolOptions{.kernel_size = kernel_size});
}
template <std::convertible_to<Dims> Size>
Value max_pool3d(Value input, const Size& kernel_size) {
  return max_pool3d(input, PoolOptions{.kernel_size = kernel_size});
}
template <std::convertible_to<Dims> Size>
Value avg_pool2d(Value input, const Size& kernel_size) {
  return avg_pool2d(input, PoolOptions{.kernel_size = kernel_size});
}
template <std::convertible_to<Dims> Size>
Value avg_pool3d(Value input, const Size& kernel_size) {
  return avg_pool3d(input, PoolOptions{.kernel_size = kernel_size});
}

/// input (N, C, ...) with 1 to 3 image axes -> image axes of these sizes, one number an axis or one for all. Output o of an axis is of
/// elements floor(o I / O) ... ceil((o + 1) I / O) - 1. Where I is no multiple of O everywhere: a mean is a product with a matrix (O, I) an
/// axis, in which what is not finite makes NaN of its line; a maximum is slices.
Value adaptive_avg_pool(Value input, const Dims& output_size);
Value adaptive_max_pool(Value input, const Dims& output_size);
/// The mean over all image axes, which are kept with size 1; emits "mean".
Value global_avg_pool(Value input);

}  // namespace frit
