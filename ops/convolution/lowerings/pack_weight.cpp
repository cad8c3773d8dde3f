#include "frit/ops/convolution/lowerings/pack_weight.h"

#include "frit/ops/operator/registry.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

using Pack = PackWeightAttributes;
using PackBackward = PackWeightBackwardAttributes;

void check_pack(const InferContext& call, std::int64_t in_channels, int axes, const Pack& a) {
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
  call.require(a.packed >= taken, "packed must be at least ", taken, ", got ", a.packed);
}

std::vector<TensorType> infer(const InferContext& call) {
  const auto& a = call.as<Pack>();
  const Shape& weight = call.shape(0);
  call.require(weight.rank() >= 3, "expected a weight (K, C, ...) of rank 3 to 5, got ", weight);
  check_pack(call, weight[1], weight.rank() - 2, a);
  Shape packed = weight;
  packed[1] = a.packed;
  for (int axis = 0; axis < a.taps.rank(); ++axis) {
    call.require(a.taps[axis] == 1 || a.taps[axis] == weight[axis + 2], "taps must be 1 or the kernel's, ", image_of(weight), ", got ",
                 a.taps);
    packed[axis + 2] /= a.taps[axis];
  }
  return {{converted_dtype(call, a.dtype), packed}};
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  const auto& a = call.as<PackBackward>();
  Shape weight = call.shape(0);
  call.require(weight.rank() >= 3, "expected a gradient (K, C, ...) of rank 3 to 5, got ", weight);
  check_pack(call, a.in_channels, weight.rank() - 2, a);
  call.require(weight[1] == a.packed, "gradient must have ", a.packed, " channels, got ", weight);
  weight[1] = a.in_channels;
  for (int axis = 0; axis < a.taps.rank(); ++axis) {
    std::int64_t& size = weight[axis + 2];
    call.require(a.taps[axis] == 1 || size == 1, "an axis of the gradient with taps as channels must be 1, got ", call.shape(0));
    size *= a.taps[axis];
  }
  return {{converted_dtype(call, a.dtype), weight}};
}

Values gradient(const GradientContext& c) {
  Pack pack = c.as<Pack>();
  pack.dtype.reset();
  return {pack_weight_backward(cast(c.gradients[0], c.inputs[0].dtype()), {pack, c.inputs[0].dim(1)})};
}

Values gradient_of_backward(const GradientContext& c) {
  Pack pack = c.as<PackBackward>();
  pack.dtype.reset();
  return {pack_weight(cast(c.gradients[0], c.inputs[0].dtype()), pack)};
}

/// Calls body(the elements of the kernel that one tap meets, their place among the packed channels): two views of one shape.
template <class Body>
void for_each_tap(const Tensor& weight, const Tensor& packed, const Pack& a, const Body& body) {
  for_each_index(a.taps, [&](const Dims& tap, std::int64_t number) {
    Tensor elements = weight;
    for (int axis = 0; axis < tap.rank(); ++axis) {
      const std::int64_t last = a.taps[axis] - 1 - tap[axis];
      if (a.taps[axis] > 1) elements = elements.slice(axis + 2, last, last + 1);
    }
    body(elements, packed.slice(1, number * a.channels, number * a.channels + weight.dim(1)));
  });
}

void run(const KernelContext& call) {
  call.outputs[0].fill(0);
  for_each_tap(call.inputs[0], call.outputs[0], call.as<Pack>(),
               [](const Tensor& elements, const Tensor& places) { copy(places, elements); });
}

void run_backward(const KernelContext& call) {
  for_each_tap(call.outputs[0], call.inputs[0], call.as<PackBackward>(),
               [](const Tensor& elements, const Tensor& places) { copy(elements, places); });
}

Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<Pack>();
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
  after[1] = a.packed - all.dim(1);
  return {pad(all, none, after)};
}

std::vector<Sample> samples() {
  return {{{Shape{2, 3, 3, 2}}, Pack{{3, 1}, 4, 16}},
          {{Shape{3, 2, 3, 2, 3}}, Pack{{3, 2, 3}, 2, 40}},
          {{Shape{2, 3, 3, 3, 3}}, Pack{{3, 1, 1}, 3, 9}},
          {{Shape{4, 1, 2, 3, 1}}, Pack{{1, 3, 1}, 1, 8}},
          {{Shape{2, 2, 3}}, Pack{{3}, 4, 12}},
          {{SampleInput::of(DType::f32, {3, 3, 3, 3, 3})}, Pack{{3, 3, 3}, 4, 112, DType::f16}, /*smooth=*/false},
          {{Shape{0, 3, 3, 3}}, Pack{{3, 3}, 4, 36}}};
}

std::vector<Sample> backward_samples() {
  return {{{Shape{2, 16, 1, 2}}, PackBackward{{{3, 1}, 4, 16}, 3}},
          {{Shape{3, 40, 1, 1, 1}}, PackBackward{{{3, 2, 3}, 2, 40}, 2}},
          {{Shape{2, 9, 1, 3, 3}}, PackBackward{{{3, 1, 1}, 3, 9}, 3}},
          {{SampleInput::of(DType::f16, {3, 112, 1, 1, 1})}, PackBackward{{{3, 3, 3}, 4, 112, DType::f32}, 3}, /*smooth=*/false},
          {{SampleInput::of(DType::bf16, {3, 16, 1, 3, 3})}, PackBackward{{{3, 1, 1}, 4, 16, DType::f32}, 4}, /*smooth=*/false},
          {{Shape{0, 36, 1, 1}}, PackBackward{{{3, 3}, 4, 36}, 3}}};
}

}  // namespace

Value pack_weight(Value weight, const PackWeightAttributes& attributes) { return emit_one("pack_weight", {weight}, attributes); }

Value pack_weight_backward(Value gradient, const PackWeightBackwardAttributes& attributes) {
  return emit_one("pack_weight_backward", {gradient}, attributes);
}

}  // namespace frit::ops

FRIT_OPERATORS(pack_weight) {
  registry.add<PackWeightAttributes>({
      .name = "pack_weight",
      .summary = "output[k, u channels + c] = weight[k, c, taps - 1 - u], on the axes that have taps",
      .inputs = {"weight"},
      .infer = infer,
      .gradient = gradient,
      .decompose = decompose,
      .absorb = absorb_cast<Pack>,
      .cpu = {.run = run, .strided = true, .halves = true},
      .samples = samples,
  });
  registry.add<PackWeightBackwardAttributes>({
      .name = "pack_weight_backward",
      .summary = "the gradient of pack_weight's weight",
      .inputs = {"gradient"},
      .infer = infer_backward,
      .gradient = gradient_of_backward,
      .absorb = absorb_cast<PackBackward>,
      .cpu = {.run = run_backward, .strided = true, .halves = true},
      .samples = backward_samples,
  });
}
