#pragma once

#include "frit/models/onnx/operators/helpers.h"

namespace frit::onnx {

/// The attributes that convolutions and pools have in common, one number an image axis. Images of one axis are taken as of two, the first
/// of size 1.
struct Window {
  Dims kernel, stride, dilation, before, after;
  bool one_axis = false;

  int rank() const { return kernel.rank(); }
  Dims extent() const;  ///< of the kernel with its dilation
  bool symmetric() const { return before == after; }
  bool is_dilated() const { return dilation != Dims::filled(rank(), 1); }
};

/// Of images of this shape, (N, C, ...); `kernel` in place of the attribute, if it is not empty. auto_pad is resolved.
Window window_of(const Call& call, const Shape& images, const Sizes& kernel = {});

/// (N, C, W) as (N, C, 1, W), where the window says so, and back.
Value with_two_axes(const Window& window, Value x);
Value as_given(const Window& window, Value x);

/// Padding of the image axes alone.
Value pad_image(Value x, const Dims& before, const Dims& after, double value);

}  // namespace frit::onnx
