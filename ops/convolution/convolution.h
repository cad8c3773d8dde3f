#pragma once

#include "frit/ops/operator/attributes.h"
#include "frit/ops/operator/value.h"

namespace frit {

/// Dims fields hold one number an image axis; empty means the default everywhere, one number means it everywhere.
struct ConvolutionOptions {
  Dims stride = {};          ///< default 1
  Dims padding = {};         ///< zeros on both sides; default 0
  Dims output_padding = {};  ///< transposed only: extra size at the end; default 0, less than stride or dilation
  Dims dilation = {};        ///< default 1
  std::int64_t groups = 1;

  void fields(FieldVisitor& v);
};

/// Cross-correlation. input (N, C, [D,] H, W), weight (K, C / groups, [kD,] kH, kW), bias (K) or none -> (N, K, ...),
/// size floor((I + 2p - d(k-1) - 1) / s) + 1. Padding is zeros that are multiplied like numbers: an infinite weight makes NaN of them.
Value conv2d(Value input, Value weight, Value bias = {}, const ConvolutionOptions& options = {});
Value conv3d(Value input, Value weight, Value bias = {}, const ConvolutionOptions& options = {});
/// The data gradient of a convolution as an operator of its own. input (N, C, ...), weight (C, K / groups, ...), bias (K) or none ->
/// (N, K, ...), size (I-1)s - 2p + d(k-1) + output_padding + 1. Beyond the input's edge there are zeros, as with padding.
Value conv_transpose2d(Value input, Value weight, Value bias = {}, const ConvolutionOptions& options = {});
Value conv_transpose3d(Value input, Value weight, Value bias = {}, const ConvolutionOptions& options = {});
/// input (N, C, L), weight (K, C / groups, k) or transposed (C, K / groups, k), as images with one row.
Value conv1d(Value input, Value weight, Value bias = {}, const ConvolutionOptions& options = {});
Value conv_transpose1d(Value input, Value weight, Value bias = {}, const ConvolutionOptions& options = {});

}  // namespace frit
