#include "frit/ops/convolution/convolution.h"

#include "frit/ops/convolution/averaged_convolution.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/cpu/convolution_kernel.h"
#include "frit/ops/convolution/lowerings/convolution_lowerings.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace ops {
namespace {

Value emit_convolution(int image_rank, Value input, Value weight, Value bias, ConvolutionOptions options) {
  options = canonical(options, image_rank);
  if (options.output_padding == Dims::filled(image_rank, 0)) options.output_padding = {};
  return emit_one(convolution_name("conv", image_rank), {input, weight, bias}, options);
}

Values convolution_gradient(const GradientContext& c) {
  const auto& options = c.as<ConvolutionOptions>();
  const Value input = c.inputs[0], weight = c.inputs[1], gradient = c.gradients[0];
  Values result(c.inputs.size());
  if (c.wanted[0]) result[0] = cast(data_gradient(gradient, weight, options, image_of(input.shape())), input.dtype());
  if (c.wanted[1]) result[1] = weight_gradient(gradient, cast(input, gradient.dtype()), options, image_of(weight.shape()));
  if (c.inputs.size() > 2 && c.wanted[2]) result[2] = bias_gradient(gradient);
  return result;
}

std::vector<Sample> samples(int image_rank) {
  if (image_rank == 2) {
    return {{{Shape{2, 3, 5, 7}, Shape{4, 3, 3, 2}, Shape{4}}},
            {{Shape{2, 4, 6, 5}, Shape{6, 2, 2, 3}}, ConvolutionOptions{.stride = {2}, .padding = {1, 2}, .groups = 2}},
            {{Shape{1, 3, 7, 7}, Shape{3, 1, 3, 3}, Shape{3}}, ConvolutionOptions{.padding = {2}, .dilation = {2, 1}, .groups = 3}},
            {{Shape{2, 8, 5, 9}, Shape{8, 1, 3, 3}, Shape{8}}, ConvolutionOptions{.padding = {1}, .groups = 8}},
            {{Shape{1, 4, 6, 7}, Shape{4, 1, 3, 4}}, ConvolutionOptions{.stride = {2}, .padding = {1, 2}, .groups = 4}},
            {{Shape{1, 4, 2, 9}, Shape{4, 1, 1, 9}}, ConvolutionOptions{.padding = {0, 4}, .groups = 4}},
            {{Shape{0, 4, 4, 4}, Shape{4, 1, 3, 3}, Shape{4}}, ConvolutionOptions{.groups = 4}},
            {{Shape{3, 5, 2, 2}, Shape{7, 5, 1, 1}, Shape{7}}},
            {{Shape{3, 8, 2, 5}, Shape{4, 8, 1, 1}, Shape{4}}},
            {{Shape{1, 1, 1, 1}, Shape{1, 1, 1, 1}}},
            {{Shape{1, 2, 3, 3}, Shape{2, 2, 3, 3}}, ConvolutionOptions{.stride = {4, 3}, .padding = {4}, .dilation = {3}}},
            {{Shape{0, 2, 4, 4}, Shape{3, 2, 3, 3}, Shape{3}}}};
  }
  return {{{Shape{2, 2, 3, 4, 3}, Shape{3, 2, 2, 3, 2}, Shape{3}}},
          {{Shape{1, 2, 5, 3, 4}, Shape{4, 1, 3, 2, 2}}, ConvolutionOptions{.stride = {2, 1, 3}, .padding = {1}, .groups = 2}},
          {{Shape{2, 1, 3, 3, 3}, Shape{2, 1, 2, 2, 2}, Shape{2}}, ConvolutionOptions{.padding = {0, 1, 2}, .dilation = {2, 3, 1}}},
          {{Shape{1, 4, 3, 4, 3}, Shape{4, 1, 3, 2, 3}, Shape{4}}, ConvolutionOptions{.stride = {1, 2, 1}, .padding = {1}, .groups = 4}},
          {{Shape{1, 1, 1, 1, 1}, Shape{2, 1, 1, 1, 1}, Shape{2}}},
          {{Shape{0, 2, 3, 3, 3}, Shape{3, 2, 3, 3, 3}, Shape{3}}}};
}

Sample typical(int image_rank) {
  const ConvolutionOptions same{.padding = {1}};
  if (image_rank == 2) return {{Shape{1, 64, 56, 56}, Shape{64, 64, 3, 3}}, same};
  return {{Shape{1, 64, 16, 32, 32}, Shape{64, 64, 3, 3, 3}}, same};
}

}  // namespace

Value convolution(Value input, Value weight, ConvolutionOptions options, Value bias) {
  options.output_padding = {};
  return emit_convolution(input.rank() - 2, input, weight, bias, options);
}

Values fold_into_weight(std::span<const Value> inputs, const ChannelAffine& affine, int axis, std::int64_t groups) {
  Value weight = inputs[1], bias = bias_or_none(inputs);
  if (affine.factor) {
    // (groups, channels of a group, ...) where they lie along axis 1.
    Shape split = weight.shape(), factor = Dims::filled(weight.rank() + axis, 1);
    if (axis == 1) split[0] /= groups, split.insert(0, groups);
    factor[0] = axis == 1 ? groups : split[0];
    if (axis == 1) factor[2] = split[2];
    weight = reshape(reshape(weight, split) * reshape(affine.factor, factor), weight.shape());
    if (bias) bias = bias * affine.factor;
  }
  if (affine.order) {
    if (axis != 0 || groups != 1) return {};
    weight = affine.order(weight);
    if (bias) bias = affine.order(bias);
  }
  if (affine.addend) bias = bias ? bias + affine.addend : affine.addend;
  return bias ? Values{inputs[0], weight, bias} : Values{inputs[0], weight};
}

/// A linear layer is a convolution with one tap, which libraries compute as fast where pixels are vectors of memory.
Value linear_along_channels(const Operator& other, std::span<const Value> inputs, int image_rank) {
  constexpr std::int64_t vector_bytes = 16;
  if (other.name != "linear" || inputs[0].rank() != image_rank + 2) return {};
  Shape weight = inputs[1].shape();
  const auto bytes = static_cast<std::int64_t>(size_of(inputs[1].dtype()));
  if (weight[0] * bytes % vector_bytes != 0 || weight[1] * bytes % vector_bytes != 0) return {};
  while (weight.rank() < inputs[0].rank()) weight.push_back(1);
  return convolution(inputs[0], reshape(inputs[1], weight), {}, bias_or_none(inputs));
}

Value bias_gradient(Value gradient) {
  Dims axes{0};
  for (int axis = 2; axis < gradient.rank(); ++axis) axes.push_back(axis);
  return sum(gradient, axes);
}

}  // namespace ops

Value conv2d(Value input, Value weight, Value bias, const ConvolutionOptions& options) {
  return ops::emit_convolution(2, input, weight, bias, options);
}

Value conv3d(Value input, Value weight, Value bias, const ConvolutionOptions& options) {
  return ops::emit_convolution(3, input, weight, bias, options);
}

}  // namespace frit

FRIT_OPERATORS(convolution) {
  for (const int image_rank : {2, 3}) {
    registry.add<ConvolutionOptions>({
        .name = convolution_name("conv", image_rank),
        .summary = "output[n, k, o] = bias[k] + sum over c, t of weight[k, c, t] input[n, c, o stride - padding + t dilation]",
        .inputs = {"input", "weight", {"bias", true}},
        .infer = [image_rank](const InferContext& call) { return infer_convolution(call, image_rank); },
        .gradient = convolution_gradient,
        .fold_channel_affine =
            [](std::span<const Value> inputs, const Attributes& a, const ChannelAffine& affine) {
              return fold_into_weight(inputs, affine, 0, a.as<ConvolutionOptions>().groups);
            },
        .lowerings = {whole_images("whole images"), im2col_lowering("first taps as channels", 1),
                      few_channels_in_vectors("few channels in vectors"), blocks_as_channels("blocks as channels"),
                      im2col_lowering("all taps as channels", image_rank), padded_channels("channels padded to 4", 4),
                      padded_channels("channels padded to 8", 8), dense_groups("groups as one")},
        .average = average_of_convolution,
        .staged_output = true,
        .samples_in = samples_of_input_0,
        .precision = Precision::half,
        .any_precision = {0},
        .cpu = convolution_kernel([](const Shape& image, const Shape& weight,
                                     const Attributes& a) { return convolution_geometry(image, weight, a.as<ConvolutionOptions>()); },
                                  /*back=*/false),
        .linear_inputs = {{2, LinearInput::addend, 1}},
        .along_channels = [image_rank](const Operator& other,
                                       std::span<const Value> inputs) { return linear_along_channels(other, inputs, image_rank); },
        .samples = [image_rank] { return samples(image_rank); },
        .multiplications = [](const InferContext& call, const TensorType& output) { return multiplications_of(output, call.inputs[1]); },
        .typical = typical(image_rank),
    });
  }
}
