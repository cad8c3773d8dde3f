// Convolutions whose taps become channels first: along the first image axis, which leaves a convolution of one axis less, or along
// all, which leaves a product of matrices.

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/lowerings/convolution_lowerings.h"
#include "frit/ops/convolution/lowerings/im2col_weight.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

/// A vector access, and what the library's kernels want the bytes of the channels to be a multiple of.
constexpr std::int64_t vector_bytes = 16;

/// A convolution with taps as channels.
struct Im2colConvolution {
  Im2colAttributes image;
  Im2colWeightAttributes weight = {};
  ConvolutionOptions options;
  Dims kernel;  ///< what is left of it
};

/// Nothing if it does not apply: tap u of position q is input q + kernel - 1 - padding - u, so that there are neither stride nor dilation.
std::optional<Im2colConvolution> im2col_convolution(const TensorType& input, const Dims& kernel, const ConvolutionOptions& given,
                                                    int axes) {
  const int rank = kernel.rank();
  const std::int64_t in_channels = input.shape[1];
  Im2colConvolution p{.image = {.taps = Dims::filled(rank, 1), .shift = Dims::filled(rank, 0), .output_size = image_of(input.shape)},
                      .options = canonical(given, rank),
                      .kernel = kernel};
  if (p.options.groups != 1 || in_channels > most_channels) return std::nullopt;
  for (int axis = 0; axis < std::min(axes, rank); ++axis) {
    std::int64_t& padding = p.options.padding[axis];
    if (p.options.stride[axis] != 1 || p.options.dilation[axis] != 1 || padding >= kernel[axis]) return std::nullopt;
    p.image.taps[axis] = kernel[axis];
    p.image.shift[axis] = kernel[axis] - 1 - padding;
    p.image.output_size[axis] += 2 * padding - (kernel[axis] - 1);
    p.kernel[axis] = 1;
    padding = 0;
  }
  const std::int64_t taps = product(p.image.taps), channels = in_channels < 3 ? in_channels : round_up(in_channels, 4);
  if (taps == 1 || taps * channels > most_im2col_channels) return std::nullopt;
  const std::int64_t im2col_channels = round_up(taps * channels, vector_bytes / static_cast<std::int64_t>(size_of(input.dtype)));
  p.weight = {.taps = p.image.taps, .channels = channels, .im2col_channels = im2col_channels};
  p.image.channels = channels;
  if (im2col_channels > taps * channels) {  // with further taps, which meet zeros of the weight
    p.image.kept = im2col_channels;
    const std::int64_t of_first = taps / p.image.taps[0] * channels;
    p.image.taps[0] = round_up(im2col_channels, of_first) / of_first;
    if (p.image.taps[0] * of_first == im2col_channels) p.image.kept = 0;
  }
  return p;
}

Values convolution_of(std::span<const Value> inputs, const Attributes& attributes, int axes) {
  const Value image = cast(inputs[0], inputs[1].dtype());
  const auto p = im2col_convolution(image.type(), image_of(inputs[1].shape()), attributes.as<ConvolutionOptions>(), axes);
  if (!p) return {};
  const Value columns = im2col(image, p->image), weight = im2col_weight(inputs[1], p->weight);
  return {convolution(columns, weight, p->options, bias_or_none(inputs))};
}

Values weight_gradient_of(std::span<const Value> inputs, const Attributes& attributes, int axes) {
  const auto& options = attributes.as<WeightGradientOptions>();
  const ImageAxes kernel = weight_gradient_geometry(inputs[0].shape(), inputs[1].shape(), options).kernel;
  const std::size_t rank = static_cast<std::size_t>(inputs[1].rank() - 2);
  const auto p = im2col_convolution(inputs[1].type(), Dims(std::span(kernel).last(rank)), options.convolution, axes);
  if (!p) return {};
  const Value gradient = weight_gradient(inputs[0], im2col(inputs[1], p->image), p->options, p->kernel);
  return {im2col_weight_backward(gradient, {p->weight, inputs[1].dim(1)})};
}

}  // namespace

// Two-dimensional images of more than 4 channels, and few, are fastest as products of matrices.
Lowering im2col_lowering(const char* name, int axes) {
  return {.name = name,
          .rule = [axes](Emitter&, std::span<const Value> inputs, const Attributes& a) { return convolution_of(inputs, a, axes); },
          .likely_fastest =
              [axes](std::span<const TensorType> inputs) {
                const auto& [dtype, shape] = inputs[0];
                return axes == 2 && shape.rank() == 4 && on_tensor_cores(dtype) && shape[1] > 4 && shape[1] <= 8;
              }};
}

Lowering im2col_weight_gradient(const char* name, int axes) {
  return {.name = name,
          .rule = [axes](Emitter&, std::span<const Value> inputs, const Attributes& a) { return weight_gradient_of(inputs, a, axes); }};
}

}  // namespace frit::ops
