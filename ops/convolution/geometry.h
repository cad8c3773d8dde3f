#pragma once

#include <algorithm>

#include "frit/ops/convolution/convolution.h"
#include "frit/ops/libraries/convolution_geometry.h"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// Attributes of conv2d_data_gradient and conv3d_data_gradient; output_padding is no part of them.
struct DataGradientOptions {
  ConvolutionOptions convolution;
  Dims input_size;  ///< the image axes of the convolution's input, which its output does not tell for a stride above 1

  void fields(FieldVisitor& v);
};

/// Attributes of conv2d_weight_gradient and conv3d_weight_gradient.
struct WeightGradientOptions {
  ConvolutionOptions convolution;
  Dims kernel_size;

  void fields(FieldVisitor& v);
};

/// One number an image axis in every field, so that equal settings are equal attributes.
ConvolutionOptions canonical(ConvolutionOptions options, int image_rank);

/// The sizes after the first two.
Dims image_of(const Shape& shape);

/// From row to row, channel to channel and tap to tap of a weight (K, C / groups, taps) that is dense in either layout, in elements.
struct WeightSteps {
  std::int64_t row, channel, tap;

  explicit WeightSteps(const Tensor& weight) : row(weight.elements() / std::max<std::int64_t>(1, weight.dim(0))) {
    const std::int64_t channels = std::max<std::int64_t>(1, weight.dim(1));
    channel = weight.is_contiguous() ? row / channels : 1;
    tap = weight.is_contiguous() ? 1 : channels;
  }
};

/// Whether a convolution with a weight of that dtype reads an image of this one: float32 may stand with halves.
inline bool takes_image(DType image, DType weight) { return image == weight || (image == DType::f32 && is_half(weight)); }

/// A product of matrices for each pixel: one tap, and as many pixels of the output.
inline bool is_pointwise(const ConvolutionGeometry& g) {
  constexpr ImageAxes one = {1, 1, 1}, none = {0, 0, 0};
  return g.kernel == one && g.stride == one && g.padding == none && g.groups == 1 && g.input == g.output;
}

// The geometry of a call whose shapes were checked.
ConvolutionGeometry convolution_geometry(const Shape& input, const Shape& weight, const ConvolutionOptions& options);
ConvolutionGeometry transposed_geometry(const Shape& input, const Shape& weight, const ConvolutionOptions& options);
ConvolutionGeometry data_gradient_geometry(const Shape& gradient, const Shape& weight, const DataGradientOptions& options);
ConvolutionGeometry weight_gradient_geometry(const Shape& gradient, const Shape& input, const WeightGradientOptions& options);

// The inference rules; `image_rank` is 2 or 3.
std::vector<TensorType> infer_convolution(const InferContext& call, int image_rank);
std::vector<TensorType> infer_transposed(const InferContext& call, int image_rank);
std::vector<TensorType> infer_data_gradient(const InferContext& call, int image_rank);
std::vector<TensorType> infer_weight_gradient(const InferContext& call, int image_rank);

}  // namespace frit::ops
