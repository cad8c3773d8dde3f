#include "frit/ops/chain/instances/packed/packed_group_norm_scale_max_pool_clamp.h"

#include <bit>

#include "frit/ops/chain/chain.h"
#include "frit/ops/convolution/lowerings/im2col_product.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

using OwnAttributes = PackedGroupNormPoolAttributes;
constexpr const char* chain_name = "group_norm_scale_max_pool_clamp";

// inputs (image, weight, norm_weight, norm_bias, scale, bias or none), and those of the backward operator after the gradient and in front
// of (argmax, mean, rstd, argmax_input). The convolution's bias comes last, since it may be missing.

Value bias_of(std::span<const Value> inputs) { return inputs.size() > 5 ? inputs[5] : Value(); }

/// The gradients of what the convolution gives, of the norm's weight and bias, of the scale and of the convolution's bias.
Values carried_back(std::span<const Value> kept, Value convolved, Value bias, const GroupNormScaleMaxPoolClampAttributes& chain) {
  Values gradients =
      emit(concat(chain_name, "_backward"), {kept[0], convolved, kept[3], kept[4], kept[5], kept[6], kept[7], kept[8], kept[9]}, chain);
  if (bias) gradients[4] = cast(gradients[4], bias.dtype());
  return gradients;
}

}  // namespace

Values packed_group_norm_pool_rule(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<OwnAttributes>();
  const Im2colProduct product(inputs[0], inputs[1], bias_of(inputs), a.im2col);
  return emit(chain_name, {product.convolved, inputs[2], inputs[3], inputs[4]}, a.chain);
}

/// inputs (gradient, image, weight, norm_weight, norm_bias, scale, argmax, mean, rstd, argmax_input, bias or none)
Values packed_group_norm_pool_backward_rule(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<OwnAttributes>();
  const Value bias = inputs.size() > 10 ? inputs[10] : Value();
  const Im2colProduct product(inputs[1], inputs[2], bias, a.im2col);
  const Values gradients = carried_back(inputs, product.convolved, bias, a.chain);
  return {product.weight_gradient(gradients[0]), gradients[1], gradients[2], gradients[3], gradients[4]};
}

namespace {

/// The chain as one operator, which it has become before convolutions choose their lowerings.
Values decompose(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes) {
  return {packed_group_norm_pool_rule(emitter, inputs, attributes)[0]};
}

void check(const InferContext& call, std::size_t image) {
  const Shape& shape = call.shape(image);
  call.require(shape.rank() == 4, "expected an image of rank 4, got ", shape);
  const Shape& weight = call.shape(image + 1);
  call.require(weight.rank() == 4 && product(image_of(weight)) == 1, "expected a weight (K, columns, 1, 1), got ", weight);
  const DType stored = call.inputs[image].dtype, used = call.inputs[image + 1].dtype;
  call.require(takes_image(stored, used), "image must be ", used, is_half(used) ? " or f32" : "", ", got ", stored);
}

std::vector<TensorType> infer(const InferContext& call) {
  check(call, 0);
  return InTurn(packed_group_norm_pool_rule, call.inputs, call.attributes).results();
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  check(call, 1);
  return InTurn(packed_group_norm_pool_backward_rule, call.inputs, call.attributes).results();
}

/// For the image too only where it is wanted: its gradient takes that of what the convolution gives.
Values gradient(const GradientContext& c) {
  if (!c.gradients[0]) return Values(c.inputs.size());
  const auto& a = c.as<OwnAttributes>();
  Values kept = {c.gradients[0], c.inputs[0],  c.inputs[1],  c.inputs[2],  c.inputs[3],
                 c.inputs[4],    c.outputs[1], c.outputs[2], c.outputs[3], c.outputs[4]};
  const Value bias = bias_of(c.inputs);
  if (bias) kept.push_back(bias);
  Values result;
  if (c.wanted[0]) {
    const Im2colProduct product(c.inputs[0], c.inputs[1], bias, a.im2col);
    const Values g = carried_back(kept, product.convolved, bias, a.chain);
    result = {product.image_gradient(g[0], c.inputs[0], c.inputs[1], a.im2col), product.weight_gradient(g[0]), g[1], g[2], g[3], g[4]};
  } else {
    result = emit("packed_group_norm_scale_max_pool_clamp_backward", kept, a);
    result.insert(result.begin(), Value());
  }
  result.resize(c.inputs.size());
  return result;
}

/// The nodes are im2col, the convolution and the chain.
std::optional<Attributes> fuse(std::span<const Attributes> matched, std::span<const TensorType> inputs) {
  const OwnAttributes attributes{matched[0].as<Im2colAttributes>(), matched[2].as<GroupNormScaleMaxPoolClampAttributes>()};
  const bool fits = has_packed_group_norm_pool_kernels(inputs[0], inputs[1], attributes);
  return fits ? std::optional<Attributes>(attributes) : std::nullopt;
}

std::int64_t window_elements(const InferContext& call) {
  const auto& a = call.as<OwnAttributes>();
  return GroupNormPoolGeometry(convolved_shape(call.shape(1), call.shape(2), a.im2col), a.chain).kernel_elements();
}

std::vector<Sample> samples() {
  std::vector<Sample> result;
  const auto add = [&](const Shape& image, std::int64_t out_channels, const Im2colAttributes& im2col,
                       const GroupNormScaleMaxPoolClampAttributes& chain, bool bias, Fill scale = Fill::normal) {
    const Shape weight{out_channels, im2col.kept > 0 ? im2col.kept : product(im2col.taps) * im2col.channels, 1, 1};
    std::vector<SampleInput> inputs = {image, weight, Shape{out_channels}, Shape{out_channels}, {{out_channels, 1, 1}, scale}};
    if (bias) inputs.push_back(Shape{out_channels});
    result.push_back(
        {.inputs = std::move(inputs), .attributes = OwnAttributes{im2col, chain}, .smooth = scale != Fill::zeros, .in_halves = false});
  };
  add({2, 8, 10, 11}, 64, {{3, 3}, {2, 2}, {8, 9}, 8}, {.num_groups = 16, .kernel_size = {4}, .min = 0, .max = 1}, true);
  add({1, 3, 9, 8}, 32, {{3, 3}, {1, 1}, {9, 8}, 4}, {.num_groups = 4, .kernel_size = {3, 2}, .min = -1, .max = 1}, false);
  add({2, 3, 5, 6}, 4, {{3, 2}, {1, 1}, {5, 6}, 4, true}, {.num_groups = 2, .kernel_size = {2}, .stride = {1}, .padding = {1}, .max = 1},
      true);
  add({2, 8, 6, 7}, 32, {{2, 2}, {1, 1}, {5, 6}, 8}, {.num_groups = 1, .kernel_size = {2}}, true, Fill::zeros);
  add({1, 4, 7, 9}, 32, {{3, 3}, {1, 1}, {7, 9}, 4}, {.num_groups = 2, .kernel_size = {2}, .max = 1}, false);
  add({0, 8, 6, 6}, 64, {{3, 3}, {2, 2}, {4, 4}, 8}, {.num_groups = 8, .kernel_size = {2}}, true);
  return result;
}

std::vector<Sample> backward_samples() {
  std::vector<Sample> result;
  for (const Sample& sample : samples()) {
    const auto& attributes = sample.attributes.as<OwnAttributes>();
    if (!attributes.chain.padding.empty()) continue;  // not every number is an argmax
    const Shape convolved = convolved_shape(sample.inputs[0].shape, sample.inputs[1].shape, attributes.im2col);
    const GroupNormPoolGeometry geometry(convolved, attributes.chain);
    const Shape output = pool_output_shape(convolved, geometry.pool);
    std::vector<SampleInput> inputs(sample.inputs.begin(), sample.inputs.begin() + 5);
    inputs.insert(inputs.begin(), SampleInput(output));
    inputs.push_back(SampleInput::indices(output, argmax_dtype(geometry.kernel_elements())));
    inputs.insert(inputs.end(), 2, statistics_sample({geometry.samples, geometry.groups}));
    inputs.push_back(output);
    if (sample.inputs.size() > 5) inputs.push_back(sample.inputs[5]);
    result.push_back({.inputs = std::move(inputs), .attributes = attributes, .in_halves = false});
  }
  return result;
}

}  // namespace

Shape convolved_shape(const Shape& image, const Shape& weight, const Im2colAttributes& im2col) {
  Shape shape{image[0], weight[0]};
  for (const std::int64_t size : im2col.output_size) shape.push_back(size);
  return shape;
}

bool has_packed_group_norm_pool_kernels(const TensorType& image, const TensorType& weight, const OwnAttributes& a) {
  using Kernels = PackedGroupNormPoolKernels;
  if (!is_half(weight.dtype) && weight.dtype != DType::f32) return false;
  if (!takes_image(image.dtype, weight.dtype)) return false;
  if (image.shape.rank() != 4 || product(image_of(weight.shape)) != 1) return false;
  const std::int64_t out_channels = weight.shape[0], channel_groups = out_channels / Kernels::out_channels;
  const bool whole = out_channels % Kernels::out_channels == 0 && channel_groups <= Kernels::most_channel_groups &&
                     std::has_single_bit(static_cast<std::uint64_t>(channel_groups));
  const bool columns = a.im2col.channels % Kernels::width == 0 && a.im2col.channels <= Kernels::channels &&
                       weight.shape[1] % Kernels::width == 0 && weight.shape[1] <= Kernels::columns;
  if (!whole || !columns) return false;
  const GroupNormPoolGeometry geometry(convolved_shape(image.shape, weight.shape, a.im2col), a.chain);
  const PoolGeometry& pool = geometry.pool;
  for (std::size_t axis = 1; axis <= 2; ++axis) {
    const bool adjacent = pool.stride[axis] == pool.kernel[axis] && pool.padding[axis] == 0 && pool.dilation[axis] == 1 &&
                          pool.output[axis] > 0 && pool.output[axis] * pool.kernel[axis] <= pool.image[axis];
    if (!adjacent) return false;
  }
  if (!on_tensor_cores(weight.dtype)) {
    const std::int64_t channels = image.shape[1];
    const bool whole_taps = a.im2col.taps == Dims{Kernels::strict_side, Kernels::strict_side} && channels == a.im2col.channels &&
                            channels <= Kernels::strict_channels && !a.im2col.ones && a.im2col.kept == 0;
    if (!whole_taps || pool.kernel[1] != pool.kernel[2]) return false;
  }
  const bool windows = (pool.kernel[2] == 2 || pool.kernel[2] == Kernels::widest) && pool.kernel[1] <= Kernels::highest;
  return windows && product(image_of(image.shape)) * image.shape[1] <= INT32_MAX && geometry.pixels() * out_channels <= INT32_MAX;
}

}  // namespace frit::ops

FRIT_OPERATORS(packed_group_norm_scale_max_pool_clamp) {
  using namespace frit::ops;
  registry.add<PackedGroupNormPoolAttributes>({
      .name = "packed_group_norm_scale_max_pool_clamp",
      .summary = "group_norm_scale_max_pool_clamp of the convolution of im2col(image) with weight, of size 1",
      .inputs = {"image", "weight", "norm_weight", "norm_bias", "scale", {"bias", true}},
      .outputs = {"output", "argmax", "mean", "rstd", "argmax_input"},
      .infer = infer,
      .gradient = gradient,
      .decompose = decompose,
      .fuse = fuse,
      .any_precision = {0, 2, 3, 4, 5},
      .cpu = InTurn::kernel(packed_group_norm_pool_rule, Device::cpu),
      .samples = samples,
  });
  registry.add<PackedGroupNormPoolAttributes>({
      .name = "packed_group_norm_scale_max_pool_clamp_backward",
      .summary = "the gradients of packed_group_norm_scale_max_pool_clamp, but for the image's",
      .inputs =
          {"gradient", "image", "weight", "norm_weight", "norm_bias", "scale", "argmax", "mean", "rstd", "argmax_input", {"bias", true}},
      .outputs = {"weight_gradient", "norm_weight_gradient", "norm_bias_gradient", "scale_gradient", "bias_gradient"},
      .infer = infer_backward,
      .no_gradient = "not differentiable twice",
      .any_precision = {1, 3, 4, 5, 10},
      .cpu = InTurn::kernel(packed_group_norm_pool_backward_rule, Device::cpu),
      .index_inputs = {{6, window_elements}},
      .samples = backward_samples,
  });
}
