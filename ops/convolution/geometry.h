#pragma once

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

/// Whether a convolution with a weight of that dtype reads an image of this one: float32 may stand with halves.
inline bool takes_image(DType image, DType weight) { return image == weight || (image == DType::f32 && is_half(weight)); }

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
