#pragma once

#include <algorithm>
#include <array>

#include "frit/ops/operator/kernel.h"
#include "frit/ops/operator/sample.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/pool/running_maximum.h"

namespace frit::ops {

/// A pooling call in full: axes depth, height, width; two-dimensional images have depth 1.
struct PoolGeometry {
  using Axes = std::array<std::int64_t, 3>;

  std::int64_t planes = 0;  ///< batch times channels
  Axes image{1, 1, 1}, output{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, padding{}, dilation{1, 1, 1};

  FRIT_HOST_DEVICE std::int64_t image_elements() const { return image[0] * image[1] * image[2]; }
  FRIT_HOST_DEVICE std::int64_t output_elements() const { return output[0] * output[1] * output[2]; }
  /// Where the window of output o begins in the image; negative in the padding.
  FRIT_HOST_DEVICE std::int64_t window_begin(std::size_t axis, std::int64_t o) const { return o * stride[axis] - padding[axis]; }
};

/// Elements begin, ..., end - 1 of a kernel along one axis.
struct KernelRange {
  std::int64_t begin, end;
};

/// Those of the windows from output `first` to `last` that may meet the image; for a single window exactly those that do.
inline KernelRange kernel_range(const PoolGeometry& g, std::size_t axis, std::int64_t first, std::int64_t last) {
  const std::int64_t missing = std::max<std::int64_t>(0, -g.window_begin(axis, last));
  const std::int64_t room = g.image[axis] - 1 - g.window_begin(axis, first);
  return {(missing + g.dilation[axis] - 1) / g.dilation[axis], room < 0 ? 0 : std::min(g.kernel[axis], room / g.dilation[axis] + 1)};
}

/// Rows of outputs that one task of a pooling kernel computes.
std::int64_t row_grain(const PoolGeometry& geometry);

/// What the backward operators need: the forward call's options and the image size, since a gradient does not tell it.
struct PoolBackwardAttributes {
  PoolOptions options;
  Dims image;

  void fields(FieldVisitor& v) {
    options.fields(v);
    v.field("image", image);
  }
};

/// The options with every Dims field of the image's rank. A field of another rank is left for pool_geometry to refuse.
PoolOptions canonical_options(PoolOptions options, int image_rank);

/// Throws ErrorKind::argument unless the input has the form (N, C, image...) and the options fit it.
PoolGeometry pool_geometry(const Shape& input, const PoolOptions& options, int image_rank);
/// Of a call that was inferred.
inline PoolGeometry pool_geometry(const Shape& input, const PoolOptions& options) {
  return pool_geometry(input, options, input.rank() - 2);
}
/// (N, C, output...)
Shape pool_output_shape(const Shape& input, const PoolGeometry& geometry);
/// (N, C, image...) of a call of a backward operator, whose gradient must have the forward call's output shape.
Shape pool_input_shape(const InferContext& call, int image_rank);
/// The emitted backward operator's attributes.
PoolBackwardAttributes pool_backward_attributes(const Shape& input, const PoolOptions& options);
/// Samples of any pooling.
std::vector<Sample> pool_samples(int image_rank, Fill fill);

/// Columns of an output row that are computed together.
inline constexpr std::int64_t pool_block = 128;

/// Calls body(row, depth, height, begin, end) for the blocks of columns of output rows [first_row, end_row), counted over all planes.
template <class Body>
void for_each_block(const PoolGeometry& g, std::int64_t first_row, std::int64_t end_row, const Body& body) {
  for (std::int64_t row = first_row; row < end_row; ++row) {
    for (std::int64_t begin = 0; begin < g.output[2]; begin += pool_block) {
      body(row, row / g.output[1] % g.output[0], row % g.output[1], begin, std::min(begin + pool_block, g.output[2]));
    }
  }
}

/// Calls body(first, low, high) for each kernel element, in row-major order: output columns o in [low, high) of the output row (depth,
/// height) read element first + o * stride[2] of the plane. Columns outside of [begin, end) and elements in the padding are left out.
template <class Body>
void for_each_kernel_element(const PoolGeometry& g, std::int64_t depth, std::int64_t height, std::int64_t begin, std::int64_t end,
                             const Body& body) {
  const KernelRange depths = kernel_range(g, 0, depth, depth), heights = kernel_range(g, 1, height, height);
  const KernelRange widths = kernel_range(g, 2, begin, end - 1);
  const std::int64_t step = g.stride[2];
  for (std::int64_t kd = depths.begin; kd < depths.end; ++kd) {
    const std::int64_t d = g.window_begin(0, depth) + kd * g.dilation[0];
    for (std::int64_t kh = heights.begin; kh < heights.end; ++kh) {
      const std::int64_t h = g.window_begin(1, height) + kh * g.dilation[1];
      for (std::int64_t kw = widths.begin; kw < widths.end; ++kw) {
        const std::int64_t shift = g.window_begin(2, 0) + kw * g.dilation[2];
        std::int64_t low = begin, high = end;  // the divisions only where the window is cut
        if (begin * step + shift < 0) low = (-shift + step - 1) / step;
        if ((end - 1) * step + shift >= g.image[2]) high = shift < g.image[2] ? (g.image[2] - 1 - shift) / step + 1 : begin;
        if (low < high) body((d * g.image[1] + h) * g.image[2] + shift, low, high);
      }
    }
  }
}

/// Calls body with the column stride as a compile-time constant where it is 1 or 2, for loops that vectorise, and as 0 otherwise. float64,
/// where nobody waits for speed, has one loop for all strides.
template <class T, class Body>
void dispatch_column_stride(const PoolGeometry& g, const Body& body) {
  if constexpr (sizeof(T) < sizeof(double)) {
    if (g.stride[2] == 1) return body.template operator()<1>();
    if (g.stride[2] == 2) return body.template operator()<2>();
  }
  body.template operator()<0>();
}

}  // namespace frit::ops
