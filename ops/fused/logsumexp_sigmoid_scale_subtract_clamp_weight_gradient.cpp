#include "frit/ops/fused/logsumexp_sigmoid_scale_subtract_clamp_weight_gradient.h"

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/run.h"

namespace frit::ops {
namespace {

using OwnAttributes = LogsumexpWeightGradientAttributes;
using InTurn = LogsumexpWeightGradientInTurn;

constexpr std::size_t alignment = 256;

/// Bytes of the gradient between the two operators, as the first part of the scratch memory.
std::size_t between_bytes(std::int64_t bytes) { return (static_cast<std::size_t>(bytes) + alignment - 1) / alignment * alignment; }

Layout layout_of(const std::vector<Layout>& layouts, std::size_t i) { return layouts.empty() ? Layout::contiguous : layouts[i]; }

InTurn in_turn(const InferContext& call) {
  call.require(call.shape(1).rank() == 4 || call.shape(1).rank() == 5, "expected an input of rank 4 or 5, got ", call.shape(1));
  return {call.shape(1).rank() - 2, call.as<OwnAttributes>()};
}

Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<OwnAttributes>();
  const Values gradients = emit("logsumexp_sigmoid_scale_subtract_clamp_backward", {inputs[0], inputs[1], inputs[2]}, a.chain);
  return {weight_gradient(gradients[0], inputs[3], a.product.convolution, a.product.kernel_size)};
}

std::vector<Sample> samples() {
  std::vector<Sample> result;
  const auto add = [&](const Shape& input, const BlockAttributes& blocks, const Shape& image, const WeightGradientOptions& product) {
    Shape gradient = input;
    gradient[1] = 1;
    std::copy(blocks.size.begin(), blocks.size.end(), gradient.begin() + 2);
    result.push_back({.inputs = {gradient, input, Shape{1}, image}, .attributes = OwnAttributes{{-5, 5, blocks}, product}});
  };
  add({2, 128, 2, 3, 5}, {{2, 2, 2}, {1, 1, 1}, {3, 5, 9}}, {2, 32, 2, 3, 5}, {{}, {1, 1, 1}});
  add({1, 64, 9, 7}, {{2, 2}, {0, 1}, {17, 13}}, {1, 8, 9, 7}, {{}, {1, 1}});
  add({3, 32, 2, 5}, {{2, 1}, {0, 0}, {4, 5}}, {3, 4, 2, 5}, {{}, {1, 1}});
  add({2, 8, 3, 4}, {{2, 2}, {1, 1}, {5, 7}}, {2, 3, 4, 6}, {{}, {2, 3}});
  add({0, 64, 2, 2}, {{2, 2}, {0, 0}, {4, 4}}, {0, 8, 2, 2}, {{}, {1, 1}});
  return result;
}

}  // namespace

InTurn::LogsumexpWeightGradientInTurn(int image_rank, const OwnAttributes& a)
    : backward_(registry().find("logsumexp_sigmoid_scale_subtract_clamp_backward")),
      product_(registry().find(convolution_name("conv", image_rank, "_weight_gradient"))),
      of_backward_(a.chain),
      of_product_(a.product) {}

std::vector<TensorType> InTurn::infer(std::span<const TensorType> inputs) const {
  const std::vector<TensorType> gradients = backward_.infer_types(inputs.first(3), of_backward_);
  return {product_.infer_types(std::vector{gradients[0], inputs[3]}, of_product_)[0], gradients[1]};
}

std::size_t InTurn::scratch(std::span<const TensorType> inputs, const CallLayouts& layouts, Device device) const {
  const TensorType &between = inputs[1], &image = inputs[3];
  const Layout layout = layout_of(layouts.inputs, 1);
  const std::vector<TensorType> results = infer(inputs), gradients = {between, results[1]};
  const std::size_t of_backward = scratch_bytes(backward_, inputs.first(3), gradients, of_backward_, device,
                                                {{Layout::contiguous, layout, Layout::contiguous}, {layout, Layout::contiguous}});
  const std::size_t of_product = scratch_bytes(product_, std::vector{between, image}, std::vector{results[0]}, of_product_, device,
                                               {{layout, layout_of(layouts.inputs, 3)}, {layout_of(layouts.outputs, 0)}});
  return between_bytes(between.bytes()) + std::max(of_backward, of_product);
}

void InTurn::run(const KernelContext& call) const {
  const Tensor& input = call.inputs[1];
  const Layout layout = input.is_contiguous() ? Layout::contiguous : Layout::channels_last;
  const Tensor between = Tensor::over(call.scratch.data(), input.shape(), input.dtype(), input.device(), nullptr, layout);
  const std::span<std::byte> rest = call.scratch.subspan(between_bytes(between.bytes()));
  const Tensor gradients[] = {between, call.outputs[1]}, factors[] = {between, call.inputs[3]}, results[] = {call.outputs[0]};
  invoke(backward_, of_backward_, call.inputs.first(3), gradients, rest);
  if (results[0].defined()) invoke(product_, of_product_, factors, results, rest);
}

}  // namespace frit::ops

FRIT_OPERATORS(logsumexp_sigmoid_scale_subtract_clamp_weight_gradient) {
  using namespace frit::ops;
  registry.add<OwnAttributes>({
      .name = "logsumexp_sigmoid_scale_subtract_clamp_weight_gradient",
      .summary =
          "the weight gradient of the convolution before logsumexp_sigmoid_scale_subtract_clamp, and the gradient of that one's bias",
      .inputs = {"gradient", "input", "bias", "image"},
      .outputs = {"weight_gradient", "bias_gradient"},
      .infer = [](const InferContext& call) { return in_turn(call).infer(call.inputs); },
      .no_gradient = "not differentiable twice",
      .decompose = decompose,
      .cpu = {.run = [](const KernelContext& call) { InTurn(call.inputs[1].rank() - 2, call.as<OwnAttributes>()).run(call); },
              .scratch = [](const InferContext& call) { return in_turn(call).scratch(call.inputs, call.layouts, Device::cpu()); }},
      .samples = samples,
  });
}
