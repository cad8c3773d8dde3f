#include "frit/ops/chain/instances/packed/subpixel_logsumexp_sigmoid_scale_subtract_clamp.h"

#include <bit>
#include <utility>

#include "frit/ops/convolution/lowerings/im2col_product.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

using OwnAttributes = SubpixelLogsumexpAttributes;
constexpr const char* chain_name = "logsumexp_sigmoid_scale_subtract_clamp";

/// The gradients of what the convolution gives and of the bias.
Values carried_back(Value gradient, const Im2colProduct& product, Value bias, const OwnAttributes& a) {
  return emit(concat(chain_name, "_backward"), {gradient, product.convolved, bias}, a.chain);
}

}  // namespace

/// inputs (image, weight, bias)
Values subpixel_logsumexp_rule(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<OwnAttributes>();
  return emit(chain_name, {Im2colProduct(inputs[0], inputs[1], {}, a.im2col).convolved, inputs[2]}, a.chain);
}

/// inputs (gradient, image, weight, bias)
Values subpixel_logsumexp_backward_rule(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<OwnAttributes>();
  const Im2colProduct product(inputs[1], inputs[2], {}, a.im2col);
  const Values gradients = carried_back(inputs[0], product, inputs[3], a);
  return {product.weight_gradient(gradients[0]), gradients[1]};
}

namespace {

/// The chain as one operator, which it has become before convolutions choose their lowerings.
Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  auto [im2col, chain] = attributes.as<OwnAttributes>();
  const Value spread = depth_to_space(Im2colProduct(inputs[0], inputs[1], {}, im2col).convolved, std::exchange(chain.blocks, {}));
  return emit(chain_name, {spread, inputs[2]}, chain);
}

void check(const InferContext& call, std::size_t image) {
  const int rank = call.shape(image).rank();
  call.require(rank == 4 || rank == 5, "expected an image of rank 4 or 5, got ", call.shape(image));
  call.require(call.as<OwnAttributes>().chain.blocked(), "expected a block, got none");
  const DType stored = call.inputs[image].dtype, used = call.inputs[image + 1].dtype;
  call.require(takes_image(stored, used), "image must be ", used, is_half(used) ? " or f32" : "", ", got ", stored);
}

std::vector<TensorType> infer(const InferContext& call) {
  check(call, 0);
  return InTurn(subpixel_logsumexp_rule, call.inputs, call.attributes).results();
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  check(call, 1);
  return InTurn(subpixel_logsumexp_backward_rule, call.inputs, call.attributes).results();
}

/// For the image too only where it is wanted: its gradient takes that of what the convolution gives.
Values gradient(const GradientContext& c) {
  if (!c.gradients[0]) return Values(c.inputs.size());
  const auto& a = c.as<OwnAttributes>();
  const Value image = c.inputs[0], weight = c.inputs[1], bias = c.inputs[2];
  if (!c.wanted[0]) {
    Values result = emit("subpixel_logsumexp_sigmoid_scale_subtract_clamp_backward", {c.gradients[0], image, weight, bias}, a);
    result.insert(result.begin(), Value());
    return result;
  }
  const Im2colProduct product(image, weight, {}, a.im2col);
  const Values gradients = carried_back(c.gradients[0], product, bias, a);
  return {product.image_gradient(gradients[0], image, weight, a.im2col), product.weight_gradient(gradients[0]), gradients[1]};
}

/// The nodes are im2col, the convolution, depth_to_space and the chain.
std::optional<Attributes> fuse(std::span<const Attributes> matched, std::span<const TensorType> inputs) {
  OwnAttributes attributes{matched[0].as<Im2colAttributes>(), matched[3].as<LogsumexpSigmoidScaleSubtractClampAttributes>()};
  attributes.chain.blocks = matched[2].as<BlockAttributes>();
  return has_subpixel_logsumexp_kernels(inputs[0], inputs[1], attributes) ? std::optional<Attributes>(attributes) : std::nullopt;
}

std::vector<Sample> samples(bool backward) {
  std::vector<Sample> result;
  const auto add = [&](const Shape& image, std::int64_t channels, const Im2colAttributes& im2col, const Dims& block, const Dims& offset) {
    BlockAttributes blocks{block, offset, im2col.output_size};
    Shape output{image[0], 1};
    for (int axis = 0; axis < block.rank(); ++axis) {
      blocks.size[axis] = im2col.output_size[axis] * block[axis] - offset[axis] - (axis == 0 ? 0 : 1);  // the last row is cut off
      output.push_back(blocks.size[axis]);
    }
    Shape weight = Shape::filled(image.rank(), 1);
    weight[0] = product(block) * channels;
    weight[1] = product(im2col.taps) * im2col.channels;
    std::vector<SampleInput> inputs = {image, weight, Shape{1}};
    if (backward) inputs.insert(inputs.begin(), output);
    result.push_back({.inputs = std::move(inputs), .attributes = OwnAttributes{im2col, {-5, 5, blocks}}});
  };
  add({2, 3, 2, 3, 5}, 16, {{2, 2, 2}, {0, 0, 0}, {2, 3, 5}, 4, true}, {2, 2, 2}, {1, 1, 1});
  add({2, 5, 7, 19}, 16, {{2, 2}, {1, 0}, {6, 20}, 8, true}, {2, 2}, {0, 1});
  add({1, 4, 1, 9, 37}, 16, {{2, 1, 2}, {0, 0, 1}, {1, 8, 34}, 8, false}, {2, 2, 1}, {0, 0, 0});
  add({1, 2, 3, 4}, 3, {{2, 3}, {0, 1}, {4, 5}, 4, true}, {2, 3}, {1, 0});
  add({0, 3, 2, 2, 2}, 16, {{2, 2, 2}, {0, 0, 0}, {2, 2, 2}, 4, true}, {2, 2, 2}, {0, 0, 0});
  return result;
}

}  // namespace

bool has_subpixel_logsumexp_kernels(const TensorType& image, const TensorType& weight, const SubpixelLogsumexpAttributes& a) {
  using Kernels = SubpixelLogsumexpKernels;
  const std::int64_t places = a.chain.block(), groups = places / Kernels::group_places;
  const bool dtypes = on_tensor_cores(weight.dtype) && takes_image(image.dtype, weight.dtype);
  const bool whole_groups = places % Kernels::group_places == 0 && groups <= Kernels::most_groups &&
                            std::has_single_bit(static_cast<std::uint64_t>(groups)) && weight.shape[0] == places * Kernels::channels;
  const bool columns = a.im2col.kept == 0 && a.im2col.channels % Kernels::width == 0 && weight.shape[1] <= Kernels::columns;
  return dtypes && whole_groups && columns && product(image_of(image.shape)) * image.shape[1] <= INT32_MAX;
}

}  // namespace frit::ops

FRIT_OPERATORS(subpixel_logsumexp_sigmoid_scale_subtract_clamp) {
  using namespace frit::ops;
  registry.add<SubpixelLogsumexpAttributes>({
      .name = "subpixel_logsumexp_sigmoid_scale_subtract_clamp",
      .summary = "logsumexp_sigmoid_scale_subtract_clamp of the convolution of im2col(image) with weight, of size 1",
      .inputs = {"image", "weight", "bias"},
      .infer = infer,
      .gradient = gradient,
      .decompose = decompose,
      .fuse = fuse,
      .any_precision = {0, 2},
      .cpu = InTurn::kernel(subpixel_logsumexp_rule, Device::cpu),
      .samples = [] { return samples(false); },
  });
  registry.add<SubpixelLogsumexpAttributes>({
      .name = "subpixel_logsumexp_sigmoid_scale_subtract_clamp_backward",
      .summary = "the gradients of the weight and the bias of subpixel_logsumexp_sigmoid_scale_subtract_clamp",
      .inputs = {"gradient", "image", "weight", "bias"},
      .outputs = {"weight_gradient", "bias_gradient"},
      .infer = infer_backward,
      .no_gradient = "not differentiable twice",
      .any_precision = {1, 3},
      .cpu = InTurn::kernel(subpixel_logsumexp_backward_rule, Device::cpu),
      .samples = [] { return samples(true); },
  });
}
