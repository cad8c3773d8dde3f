#pragma once

#include "frit/core/random.h"
#include "frit/ops/convolution/geometry.h"

namespace frit {

/// Random tensors and what a convolution and its gradients are for them, by the defining sums in float64. The inputs are float32 numbers.
struct DirectConvolution {
  Tensor input, weight, bias, gradient;
  std::vector<double> output, data_gradient, weight_gradient;

  DirectConvolution(const Shape& input_shape, const Shape& weight_shape, const ConvolutionOptions& options)
      : input(random(input_shape, 1)), weight(random(weight_shape, 2)), bias(random({weight_shape[0]}, 3)) {
    const ops::ConvolutionGeometry g = ops::convolution_geometry(input_shape, weight_shape, options);
    Shape output_shape{input_shape[0], weight_shape[0]};
    for (int axis = 5 - input_shape.rank(); axis < 3; ++axis) output_shape.push_back(g.output[static_cast<std::size_t>(axis)]);
    gradient = random(output_shape, 4);
    output.resize(static_cast<std::size_t>(gradient.elements()));
    data_gradient.resize(static_cast<std::size_t>(input.elements()));
    weight_gradient.resize(static_cast<std::size_t>(weight.elements()));
    for (std::size_t i = 0; i < output.size(); ++i) add_terms_of(g, i);
  }

 private:
  static Tensor random(const Shape& shape, std::uint64_t stream) {
    const Tensor result = Tensor::empty(shape);
    fill_normal(result, 0.3, 1, 1, stream);
    return result.to(DType::f64);
  }

  /// Everything that one element of the output has a part in.
  void add_terms_of(const ops::ConvolutionGeometry& g, std::size_t index) {
    const auto position = static_cast<std::int64_t>(index);
    const std::int64_t plane = ops::product(g.output), channel = position / plane % (g.groups * g.out_channels);
    const std::int64_t sample = position / plane / (g.groups * g.out_channels), group = channel / g.out_channels;
    const ops::ImageAxes at = axes_of(position % plane, g.output);
    output[index] = bias.data<double>()[channel];
    for (std::int64_t k = 0; k < g.in_channels * ops::product(g.kernel); ++k) {
      const ops::ImageAxes tap = axes_of(k % ops::product(g.kernel), g.kernel);
      std::int64_t place = (sample * g.groups + group) * g.in_channels + k / ops::product(g.kernel);
      bool inside = true;
      for (std::size_t i = 0; i < 3; ++i) {
        const std::int64_t element = at[i] * g.stride[i] - g.padding[i] + tap[i] * g.dilation[i];
        inside = inside && element >= 0 && element < g.input[i];
        place = place * g.input[i] + element;
      }
      if (!inside) continue;
      const std::int64_t weight_place = channel * g.in_channels * ops::product(g.kernel) + k;
      output[index] += input.data<double>()[place] * weight.data<double>()[weight_place];
      data_gradient[static_cast<std::size_t>(place)] += gradient.data<double>()[index] * weight.data<double>()[weight_place];
      weight_gradient[static_cast<std::size_t>(weight_place)] += gradient.data<double>()[index] * input.data<double>()[place];
    }
  }

  static ops::ImageAxes axes_of(std::int64_t index, const ops::ImageAxes& sizes) {
    return {index / (sizes[1] * sizes[2]), index / sizes[2] % sizes[1], index % sizes[2]};
  }
};

}  // namespace frit
