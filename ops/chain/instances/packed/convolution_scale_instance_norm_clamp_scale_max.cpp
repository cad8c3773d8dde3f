#include "frit/ops/chain/instances/packed/convolution_scale_instance_norm_clamp_scale_max.h"

#include "frit/ops/chain/chain.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/lowerings/convolution_lowerings.h"
#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

using OwnAttributes = ConvolutionInstanceNormMaxAttributes;
constexpr const char* chain_name = "scale_instance_norm_clamp_scale_max";

Value bias_of(std::span<const Value> inputs) { return inputs.size() > 4 ? inputs[4] : Value(); }

Shape convolved_shape(const Shape& image, const Shape& weight, const ConvolutionOptions& options) {
  const ConvolutionGeometry geometry = convolution_geometry(image, weight, options);
  Shape shape{image[0], weight[0]};
  for (int axis = 5 - image.rank(); axis < 3; ++axis) shape.push_back(geometry.output[static_cast<std::size_t>(axis)]);
  return shape;
}

/// The gradients of what the convolution gives, of the two scales and of the convolution's bias.
Values carried_back(std::span<const Value> inputs, const ScaleInstanceNormClampScaleMaxAttributes& chain) {
  return emit(concat(chain_name, "_backward"), {inputs[0], inputs[2], inputs[3], inputs[4], inputs[5], inputs[6], inputs[7], inputs[8]},
              chain);
}

Value weight_gradient_of(Value gradient, Value image, const OwnAttributes& a) {
  return weight_gradient(gradient, cast(image, gradient.dtype()), a.options(), kernel_between(image.shape(), gradient.shape(), a.padding));
}

}  // namespace

/// inputs (image, weight, scale, post_scale, bias or none)
Values convolution_instance_norm_max_rule(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<OwnAttributes>();
  const Value bias = bias_of(inputs) ? cast(bias_of(inputs), inputs[1].dtype()) : Value();
  const Value convolved =
      inputs[0].rank() == 4 ? conv2d(inputs[0], inputs[1], bias, a.options()) : conv3d(inputs[0], inputs[1], bias, a.options());
  Values results = emit(chain_name, {convolved, inputs[2], inputs[3]}, a.chain);
  results.push_back(convolved);
  return results;
}

/// inputs (gradient, image, convolved, scale, post_scale, argmax, mean, rstd, argmax_input)
Values convolution_instance_norm_max_backward_rule(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<OwnAttributes>();
  const Values gradients = carried_back(inputs, a.chain);
  return {weight_gradient_of(gradients[0], inputs[1], a), gradients[1], gradients[2], gradients[3]};
}

namespace {

/// With the taps as channels, which is the lowering that stands for it among those that a convolution chooses from, and the chain as one
/// operator, which it has become before.
Values decompose(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<OwnAttributes>();
  Values operands = {inputs[0], inputs[1]};
  if (bias_of(inputs)) operands.push_back(bias_of(inputs));
  const Values convolved = im2col_lowering("", inputs[0].rank() - 2).rule(emitter, operands, a.options());
  if (convolved.empty()) return {convolution_instance_norm_max_rule(emitter, inputs, attributes)[0]};
  return {emit(chain_name, {convolved[0], inputs[2], inputs[3]}, a.chain)[0]};
}

void check(const InferContext& call, std::size_t image, std::size_t other) {
  const Shape& shape = call.shape(image);
  call.require(shape.rank() == 4 || shape.rank() == 5, "expected an image of rank 4 or 5, got ", shape);
  call.require(call.shape(other).rank() == shape.rank(), "expected ", call.op.inputs[other].name, " of rank ", shape.rank(), ", got ",
               call.shape(other));
  const DType stored = call.inputs[image].dtype, used = call.inputs[other].dtype;
  call.require(takes_image(stored, used), "image must be ", used, is_half(used) ? " or f32" : "", ", got ", stored);
  const Dims& padding = call.as<OwnAttributes>().padding;
  call.require(padding.empty() || padding.rank() == shape.rank() - 2, "expected padding of rank ", shape.rank() - 2, ", got ", padding);
}

std::vector<TensorType> infer(const InferContext& call) {
  check(call, 0, 1);
  return InTurn(convolution_instance_norm_max_rule, call.inputs, call.attributes).results();
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  check(call, 1, 2);
  for (const std::int64_t size : kernel_between(call.shape(1), call.shape(2), call.as<OwnAttributes>().padding)) {
    call.require(size > 0, "no convolution of image ", call.shape(1), " gives ", call.shape(2));
  }
  return InTurn(convolution_instance_norm_max_backward_rule, call.inputs, call.attributes).results();
}

/// For the image too only where it is wanted: its gradient takes that of what the convolution gives.
Values gradient(const GradientContext& c) {
  if (!c.gradients[0]) return Values(c.inputs.size());
  const auto& a = c.as<OwnAttributes>();
  const Values kept = {c.gradients[0], c.inputs[0],  c.outputs[5], c.inputs[2], c.inputs[3],
                       c.outputs[1],   c.outputs[2], c.outputs[3], c.outputs[4]};
  Values result;
  if (c.wanted[0]) {
    const Values g = carried_back(kept, a.chain);
    const Value of_image = cast(data_gradient(g[0], c.inputs[1], a.options(), image_of(c.inputs[0].shape())), c.inputs[0].dtype());
    result = {of_image, weight_gradient_of(g[0], c.inputs[0], a), g[1], g[2], g[3]};
  } else {
    result = emit("convolution_scale_instance_norm_clamp_scale_max_backward", kept, a);
    result.insert(result.begin(), Value());
  }
  if (const Value bias = bias_of(c.inputs)) result[4] = cast(result[4], bias.dtype());
  result.resize(c.inputs.size());
  return result;
}

/// The nodes are im2col, im2col_weight, the convolution and the chain.
std::optional<Attributes> fuse(std::span<const Attributes> matched, std::span<const TensorType> inputs) {
  OwnAttributes attributes{.chain = matched[3].as<ScaleInstanceNormClampScaleMaxAttributes>()};
  const auto& im2col = matched[0].as<Im2colAttributes>();
  const Dims kernel = image_of(inputs[1].shape);
  for (int axis = 0; axis < kernel.rank(); ++axis) attributes.padding.push_back(kernel[axis] - 1 - im2col.shift[axis]);
  const bool fits = has_convolution_instance_norm_max_kernels(inputs[0], inputs[1], attributes.padding);
  return fits ? std::optional<Attributes>(attributes) : std::nullopt;
}

std::vector<Sample> samples() {
  std::vector<Sample> result;
  const auto add = [&](const Shape& image, const Shape& weight, const Dims& padding, const ScaleInstanceNormClampScaleMaxAttributes& chain,
                       bool bias, Fill scale = Fill::normal) {
    Shape per_channel = Dims::filled(image.rank() - 1, 1);
    per_channel[0] = weight[0];
    std::vector<SampleInput> inputs = {image, weight, {per_channel, scale}, per_channel};
    if (bias) inputs.push_back(Shape{weight[0]});
    result.push_back(
        {.inputs = std::move(inputs), .attributes = OwnAttributes{padding, chain}, .smooth = scale != Fill::zeros, .in_halves = false});
  };
  add({2, 3, 5, 6, 7}, {16, 3, 3, 3, 3}, {0, 0, 0}, {.min = -1, .max = 1}, true);
  add({1, 4, 3, 3, 4}, {16, 4, 3, 2, 1}, {1, 0, 0}, {.min = -1, .max = 1}, false);
  add({1, 4, 9, 8}, {16, 4, 3, 3}, {1, 1}, {.min = -0.5, .max = 2, .keep_dims = true}, false);
  add({2, 3, 3, 4, 5}, {5, 3, 2, 1, 2}, {0, 0, 1}, {.min = std::nullopt, .max = 0.5}, true);
  add({2, 8, 6, 7}, {16, 8, 2, 2}, {1, 1}, {.min = -1, .max = 1}, true, Fill::zeros);
  add({0, 3, 5, 5, 5}, {16, 3, 3, 3, 3}, {0, 0, 0}, {.min = -1, .max = 1}, true);
  return result;
}

std::vector<Sample> backward_samples() {
  std::vector<Sample> result;
  for (const Sample& sample : samples()) {
    const auto& attributes = sample.attributes.as<OwnAttributes>();
    const Shape convolved = convolved_shape(sample.inputs[0].shape, sample.inputs[1].shape, attributes.options());
    const Shape reduced = reduced_shape(convolved, {1}, attributes.chain.keep_dims);
    std::vector<SampleInput> inputs = {reduced, sample.inputs[0], convolved, sample.inputs[2], sample.inputs[3]};
    inputs.push_back(SampleInput::indices(reduced, argmax_dtype(convolved[1])));
    inputs.insert(inputs.end(), 2, statistics_sample({convolved[0], convolved[1]}));
    inputs.push_back(reduced);
    result.push_back({.inputs = std::move(inputs), .attributes = attributes, .in_halves = false});
  }
  return result;
}

}  // namespace

bool has_convolution_instance_norm_max_kernels(const TensorType& image, const TensorType& weight, const Dims& padding) {
  using Kernels = ConvolutionInstanceNormMaxKernels;
  if (!is_half(weight.dtype) && weight.dtype != DType::f32) return false;
  if (!takes_image(image.dtype, weight.dtype)) return false;
  const Dims kernel = image_of(weight.shape);
  const int axes = kernel.rank();
  if (!on_tensor_cores(weight.dtype) && (kernel[axes - 1] != Kernels::strict_side || kernel[axes - 2] != Kernels::strict_side))
    return false;
  for (int axis = 0; axis < padding.rank(); ++axis) {
    if (padding[axis] >= kernel[axis]) return false;
  }
  const bool fits = weight.shape[0] == Kernels::out_channels && weight.shape[1] == image.shape[1] && image.shape[1] <= Kernels::channels &&
                    product(kernel) <= Kernels::taps;
  if (!fits || image.elements() == 0) return false;
  const Shape convolved = convolved_shape(image.shape, weight.shape, {.padding = padding});
  return product(image_of(convolved)) * Kernels::out_channels <= INT32_MAX && product(image_of(image.shape)) * image.shape[1] <= INT32_MAX;
}

Dims kernel_between(const Shape& image, const Shape& convolved, const Dims& padding) {
  Dims kernel;
  for (int axis = 0; axis < image.rank() - 2; ++axis) {
    kernel.push_back(image[axis + 2] + (padding.empty() ? 0 : 2 * padding[axis]) - convolved[axis + 2] + 1);
  }
  return kernel;
}

}  // namespace frit::ops

FRIT_OPERATORS(convolution_scale_instance_norm_clamp_scale_max) {
  using namespace frit::ops;
  registry.add<ConvolutionInstanceNormMaxAttributes>({
      .name = "convolution_scale_instance_norm_clamp_scale_max",
      .summary = "scale_instance_norm_clamp_scale_max of the convolution of image with weight",
      .inputs = {"image", "weight", "scale", "post_scale", {"bias", true}},
      .outputs = {"output", "argmax", "mean", "rstd", "argmax_input", "convolved"},
      .infer = infer,
      .gradient = gradient,
      .decompose = decompose,
      .fuse = fuse,
      .any_precision = {0, 2, 3, 4},
      .cpu = InTurn::kernel(convolution_instance_norm_max_rule, Device::cpu),
      .samples = samples,
  });
  registry.add<ConvolutionInstanceNormMaxAttributes>({
      .name = "convolution_scale_instance_norm_clamp_scale_max_backward",
      .summary = "the gradients of convolution_scale_instance_norm_clamp_scale_max, but for the image's",
      .inputs = {"gradient", "image", "convolved", "scale", "post_scale", "argmax", "mean", "rstd", "argmax_input"},
      .outputs = {"weight_gradient", "scale_gradient", "post_scale_gradient", "bias_gradient"},
      .infer = infer_backward,
      .no_gradient = "not differentiable twice",
      .any_precision = {1, 3, 4},
      .cpu = InTurn::kernel(convolution_instance_norm_max_backward_rule, Device::cpu),
      .index_inputs = {{5, [](const InferContext& call) { return call.shape(2)[1]; }}},
      .samples = backward_samples,
  });
}
