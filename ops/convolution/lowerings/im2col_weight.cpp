#include "frit/ops/convolution/lowerings/im2col_weight.h"

#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

using Im2colWeight = Im2colWeightAttributes;
using Im2colWeightBackward = Im2colWeightBackwardAttributes;

void check(const InferContext& call, std::int64_t in_channels, int axes, const Im2colWeight& a) {
  constexpr std::int64_t most = 1 << 20;  // keeps products within 64 bits
  const bool positive = std::all_of(a.taps.begin(), a.taps.end(), [](std::int64_t taps) { return taps > 0 && taps <= most; });
  call.require(axes >= 1 && axes <= 3 && a.taps.rank() == axes && positive, "expected positive taps, as many as the kernel's axes, got ",
               a.taps);
  call.require(in_channels >= 0 && a.channels >= in_channels && a.channels <= most, "channels must be at least the weight's ", in_channels,
               ", got ", a.channels);
  std::int64_t taken = a.channels;
  for (const std::int64_t taps : a.taps) {
    call.require(!__builtin_mul_overflow(taken, taps, &taken), "there would be 2^63 channels or more");
  }
  call.require(a.im2col_channels >= taken, "im2col_channels must be at least ", taken, ", got ", a.im2col_channels);
}

std::vector<TensorType> infer(const InferContext& call) {
  const auto& a = call.as<Im2colWeight>();
  const Shape& weight = call.shape(0);
  call.require(weight.rank() >= 3, "expected a weight (K, C, ...) of rank 3 to 5, got ", weight);
  check(call, weight[1], weight.rank() - 2, a);
  Shape output = weight;
  output[1] = a.im2col_channels;
  for (int axis = 0; axis < a.taps.rank(); ++axis) {
    call.require(a.taps[axis] == 1 || a.taps[axis] == weight[axis + 2], "taps must be 1 or the kernel's, ", image_of(weight), ", got ",
                 a.taps);
    output[axis + 2] /= a.taps[axis];
  }
  return {{converted_dtype(call, a.dtype), output}};
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  const auto& a = call.as<Im2colWeightBackward>();
  Shape weight = call.shape(0);
  call.require(weight.rank() >= 3, "expected a gradient (K, C, ...) of rank 3 to 5, got ", weight);
  check(call, a.in_channels, weight.rank() - 2, a);
  call.require(weight[1] == a.im2col_channels, "gradient must have ", a.im2col_channels, " channels, got ", weight);
  weight[1] = a.in_channels;
  for (int axis = 0; axis < a.taps.rank(); ++axis) {
    std::int64_t& size = weight[axis + 2];
    call.require(a.taps[axis] == 1 || size == 1, "an axis of the gradient with taps as channels must be 1, got ", call.shape(0));
    size *= a.taps[axis];
  }
  return {{converted_dtype(call, a.dtype), weight}};
}

Values gradient(const GradientContext& c) {
  Im2colWeight attributes = c.as<Im2colWeight>();
  attributes.dtype.reset();
  return {im2col_weight_backward(cast(c.gradients[0], c.inputs[0].dtype()), {attributes, c.inputs[0].dim(1)})};
}

Values gradient_of_backward(const GradientContext& c) {
  Im2colWeight attributes = c.as<Im2colWeightBackward>();
  attributes.dtype.reset();
  return {im2col_weight(cast(c.gradients[0], c.inputs[0].dtype()), attributes)};
}

/// Calls body(the elements of the kernel that one tap meets, their place among the channels of im2col): two views of one shape.
template <class Body>
void for_each_tap(const Tensor& weight, const Tensor& columns, const Im2colWeight& a, const Body& body) {
  for_each_index(a.taps, [&](const Dims& tap, std::int64_t number) {
    Tensor elements = weight;
    for (int axis = 0; axis < tap.rank(); ++axis) {
      const std::int64_t last = a.taps[axis] - 1 - tap[axis];
      if (a.taps[axis] > 1) elements = elements.slice(axis + 2, last, last + 1);
    }
    body(elements, columns.slice(1, number * a.channels, number * a.channels + weight.dim(1)));
  });
}

void run(const KernelContext& call) {
  call.outputs[0].fill(0);
  for_each_tap(call.inputs[0], call.outputs[0], call.as<Im2colWeight>(),
               [](const Tensor& elements, const Tensor& places) { copy(places, elements); });
}

void run_backward(const KernelContext& call) {
  for_each_tap(call.outputs[0], call.inputs[0], call.as<Im2colWeightBackward>(),
               [](const Tensor& elements, const Tensor& places) { copy(elements, places); });
}

Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<Im2colWeight>();
  const Value weight = cast(inputs[0], a.dtype.value_or(inputs[0].dtype()));
  const Dims none = Dims::filled(weight.rank(), 0);
  Dims after = none;
  after[1] = a.channels - weight.dim(1);
  Values taps;
  for_each_index(a.taps, [&](const Dims& tap, std::int64_t) {
    Value part = weight;
    for (int axis = 0; axis < tap.rank(); ++axis) {
      const std::int64_t last = a.taps[axis] - 1 - tap[axis];
      if (a.taps[axis] > 1) part = slice(part, axis + 2, last, last + 1);
    }
    taps.push_back(pad(part, none, after));
  });
  const Value all = concatenate(taps, 1);
  after[1] = a.im2col_channels - all.dim(1);
  return {pad(all, none, after)};
}

std::vector<Sample> samples() {
  return {{{Shape{2, 3, 3, 2}}, Im2colWeight{{3, 1}, 4, 16}},
          {{Shape{3, 2, 3, 2, 3}}, Im2colWeight{{3, 2, 3}, 2, 40}},
          {{Shape{2, 3, 3, 3, 3}}, Im2colWeight{{3, 1, 1}, 3, 9}},
          {{Shape{4, 1, 2, 3, 1}}, Im2colWeight{{1, 3, 1}, 1, 8}},
          {{Shape{2, 2, 3}}, Im2colWeight{{3}, 4, 12}},
          {{SampleInput::of(DType::f32, {3, 3, 3, 3, 3})}, Im2colWeight{{3, 3, 3}, 4, 112, DType::f16}, /*smooth=*/false},
          {{Shape{0, 3, 3, 3}}, Im2colWeight{{3, 3}, 4, 36}}};
}

std::vector<Sample> backward_samples() {
  return {{{Shape{2, 16, 1, 2}}, Im2colWeightBackward{{{3, 1}, 4, 16}, 3}},
          {{Shape{3, 40, 1, 1, 1}}, Im2colWeightBackward{{{3, 2, 3}, 2, 40}, 2}},
          {{Shape{2, 9, 1, 3, 3}}, Im2colWeightBackward{{{3, 1, 1}, 3, 9}, 3}},
          {{SampleInput::of(DType::f16, {3, 112, 1, 1, 1})}, Im2colWeightBackward{{{3, 3, 3}, 4, 112, DType::f32}, 3}, /*smooth=*/false},
          {{SampleInput::of(DType::bf16, {3, 16, 1, 3, 3})}, Im2colWeightBackward{{{3, 1, 1}, 4, 16, DType::f32}, 4}, /*smooth=*/false},
          {{Shape{0, 36, 1, 1}}, Im2colWeightBackward{{{3, 3}, 4, 36}, 3}}};
}

}  // namespace

Value im2col_weight(Value weight, const Im2colWeightAttributes& attributes) { return emit_one("im2col_weight", {weight}, attributes); }

Value im2col_weight_backward(Value gradient, const Im2colWeightBackwardAttributes& attributes) {
  return emit_one("im2col_weight_backward", {gradient}, attributes);
}

}  // namespace frit::ops

FRIT_OPERATORS(im2col_weight) {
  registry.add<Im2colWeightAttributes>({
      .name = "im2col_weight",
      .summary = "output[k, u channels + c] = weight[k, c, taps - 1 - u], on the axes that have taps",
      .inputs = {"weight"},
      .infer = infer,
      .gradient = gradient,
      .decompose = decompose,
      .absorb = absorb_cast<Im2colWeight>,
      .cpu = {.run = run, .strided = true, .halves = true},
      .samples = samples,
  });
  registry.add<Im2colWeightBackwardAttributes>({
      .name = "im2col_weight_backward",
      .summary = "the gradient of im2col_weight's weight",
      .inputs = {"gradient"},
      .infer = infer_backward,
      .gradient = gradient_of_backward,
      .absorb = absorb_cast<Im2colWeightBackward>,
      .cpu = {.run = run_backward, .strided = true, .halves = true},
      .samples = backward_samples,
  });
}
