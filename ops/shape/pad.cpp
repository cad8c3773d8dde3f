#include <algorithm>

#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/padded_axes.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace ops {
namespace {

void check_rank(const InferContext& call, const Dims& before, const Dims& after) {
  const int rank = call.shape(0).rank();
  call.require(before.rank() == rank && after.rank() == rank, "expected ", rank, " sizes before and after, got ", before.rank(), " and ",
               after.rank(), " (input ", call.shape(0), ")");
}

/// In a mode but constant.
bool can_repeat(std::int64_t size, std::int64_t before, std::int64_t after, const std::string& mode) {
  const std::int64_t most = mode == name_of(PaddingMode::reflect) ? size - 1 : mode == name_of(PaddingMode::circular) ? size : INT64_MAX;
  return (before == 0 && after == 0) || (size > 0 && std::min(before, after) >= 0 && std::max(before, after) <= most);
}

bool is_repeating(const std::string& mode) {
  const auto modes = {PaddingMode::reflect, PaddingMode::replicate, PaddingMode::circular};
  return std::any_of(modes.begin(), modes.end(), [&](PaddingMode repeating) { return mode == name_of(repeating); });
}

std::vector<TensorType> infer_pad(const InferContext& call) {
  const auto& [before, after, value, dtype, mode] = call.as<PadAttributes>();
  TensorType result{stored_dtype(call, dtype), call.shape(0)};
  check_rank(call, before, after);
  call.require(mode == "constant" || is_repeating(mode), "mode must be constant, reflect, replicate or circular, got \"", mode, '"');
  for (int axis = 0; axis < result.shape.rank(); ++axis) {
    std::int64_t& size = result.shape[axis];
    call.require(mode != "constant" || (before[axis] >= 0 && after[axis] >= 0), "axis ", axis, " has a negative size: ", before[axis],
                 " before, ", after[axis], " after");
    call.require(mode == "constant" || can_repeat(size, before[axis], after[axis], mode), "axis ", axis, " of ", size,
                 " cannot be padded by ", before[axis], " before and ", after[axis], " after (input ", call.shape(0), ")");
    const bool overflow = __builtin_add_overflow(size, before[axis], &size) || __builtin_add_overflow(size, after[axis], &size);
    call.require(!overflow, "axis ", axis, " would be longer than 2^63 - 1");
  }
  return {result};
}

/// Axis by axis where a corner of the input is repeated very often, as a thread of a GPU reads what one element is made of in turn.
Values repeated_gradient(Value gradient, const PadAttributes& attributes) {
  constexpr double most = 64;
  double corner = 1;
  for (int axis = 0; axis < gradient.rank() && attributes.mode == name_of(PaddingMode::replicate); ++axis) {
    corner *= 1 + static_cast<double>(std::max(attributes.before[axis], attributes.after[axis]));
  }
  const PadBackwardAttributes all{attributes.before, attributes.after, attributes.mode};
  if (corner <= most) return {emit_one("pad_backward", {gradient}, all)};
  for (int axis = 0; axis < gradient.rank(); ++axis) {
    PadBackwardAttributes one{Dims::filled(gradient.rank(), 0), Dims::filled(gradient.rank(), 0), all.mode};
    one.before[axis] = all.before[axis];
    one.after[axis] = all.after[axis];
    if (one.before[axis] > 0 || one.after[axis] > 0) gradient = emit_one("pad_backward", {gradient}, one);
  }
  return {gradient};
}

Values pad_gradient(const GradientContext& call) {
  const auto& attributes = call.as<PadAttributes>();
  Value result = cast(call.gradients[0], call.inputs[0].dtype());
  if (attributes.repeats()) return repeated_gradient(result, attributes);
  for (int axis = 0; axis < result.rank(); ++axis) {
    const std::int64_t begin = attributes.before[axis];
    if (begin > 0 || attributes.after[axis] > 0) result = slice(result, axis, begin, begin + call.inputs[0].shape()[axis]);
  }
  return {result};
}

/// Fills the margins with the constant axis by axis, so that each element is written once.
void run_pad(const KernelContext& call) {
  const auto& attributes = call.as<PadAttributes>();
  const Tensor& input = call.inputs[0];
  Tensor inside = call.outputs[0];
  if (attributes.repeats()) {
    return pad_on_cpu(inside, input, repeated_margins(inside, input, attributes.before, attributes.mode, /*backward=*/false));
  }
  for (int axis = 0; axis < input.rank(); ++axis) {
    const std::int64_t begin = attributes.before[axis];
    const std::int64_t end = begin + input.shape()[axis];
    inside.slice(axis, 0, begin).fill(attributes.value);
    inside.slice(axis, end, inside.shape()[axis]).fill(attributes.value);
    inside = inside.slice(axis, begin, end);
  }
  copy(inside, input);
}

std::vector<TensorType> infer_pad_backward(const InferContext& call) {
  const auto& [before, after, mode] = call.as<PadBackwardAttributes>();
  TensorType result = call.inputs[0];
  check_rank(call, before, after);
  call.require(is_repeating(mode), "mode must be reflect, replicate or circular, got \"", mode, '"');
  for (int axis = 0; axis < result.shape.rank(); ++axis) {
    std::int64_t size = result.shape[axis];
    const bool fits = before[axis] >= 0 && after[axis] >= 0 && before[axis] <= size && after[axis] <= size - before[axis];
    if (fits) size -= before[axis] + after[axis];
    call.require(fits && can_repeat(size, before[axis], after[axis], mode), "axis ", axis, " of ", result.shape[axis],
                 " has no margins of ", before[axis], " before and ", after[axis], " after (gradient ", call.shape(0), ")");
    result.shape[axis] = size;
  }
  return {result};
}

Values gradient_of_pad_backward(const GradientContext& call) {
  const auto& [before, after, mode] = call.as<PadBackwardAttributes>();
  return {emit_one("pad", {call.gradients[0]}, PadAttributes{before, after, 0, {}, mode})};
}

void run_pad_backward(const KernelContext& call) {
  const auto& attributes = call.as<PadBackwardAttributes>();
  const Tensor &output = call.outputs[0], &gradient = call.inputs[0];
  pad_on_cpu(output, gradient, repeated_margins(output, gradient, attributes.before, attributes.mode, /*backward=*/true));
}

std::vector<Sample> constant_samples() {
  return {
      {.inputs = {Shape{5}}, .attributes = PadAttributes{{2}, {3}, 0}},
      {.inputs = {Shape{2, 3}}, .attributes = PadAttributes{{0, 1}, {1, 0}, -1.5}},
      {.inputs = {Shape{2, 3, 5}}, .attributes = PadAttributes{{0, 1, 2}, {1, 0, 1}, 0.5}},
      {.inputs = {Shape{1, 2, 3, 3}}, .attributes = PadAttributes{{0, 0, 1, 1}, {0, 0, 1, 2}, 0}},
      {.inputs = {Shape{2, 3, 4, 5}}, .attributes = PadAttributes{{0, 0, 0, 0}, {0, 1, 0, 0}, 0}},
      {.inputs = {Shape{1, 3, 37, 29}}, .attributes = PadAttributes{{0, 0, 0, 0}, {0, 1, 0, 0}, 0.5}, .smooth = false},
      {.inputs = {Shape{9, 2}}, .attributes = PadAttributes{{0, 0}, {0, 2}, -2}},
      {.inputs = {Shape{2, 8, 3, 5}}, .attributes = PadAttributes{{0, 0, 1, 2}, {0, 0, 0, 1}, -1}},
      {.inputs = {Shape{1, 2, 3, 5, 7}}, .attributes = PadAttributes{{0, 0, 1, 0, 0}, {0, 0, 2, 0, 0}, 0.5}},
      {.inputs = {Shape{3, 53}}, .attributes = PadAttributes{{1, 3}, {0, 9}, 2}},
      {.inputs = {Shape{2, 16, 3, 3}}, .attributes = PadAttributes{{0, 8, 0, 0}, {0, 16, 0, 0}, 0}},
      {.inputs = {Shape{}}, .attributes = PadAttributes{{}, {}, 1}},
      {.inputs = {Shape{1, 1}}, .attributes = PadAttributes{{0, 0}, {0, 0}, 1}},
      {.inputs = {Shape{0, 2}}, .attributes = PadAttributes{{1, 0}, {0, 1}, 7}},
  };
}

Attributes pad_with_unit_axis(const Attributes& given) {
  PadAttributes result = given.as<PadAttributes>();
  for (Dims* sizes : {&result.before, &result.after}) *sizes = {(*sizes)[0], (*sizes)[1], 0, (*sizes)[2]};
  return result;
}

struct RepeatedCase {
  Shape shape;
  Dims before, after;
  const char* mode;
  bool smooth = true;
};

/// Of images in all layouts, whose channels fill vectors or do not; of short rows and long ones, and of any axes.
std::vector<RepeatedCase> repeated_cases() {
  return {
      {{2, 8, 5, 6}, {0, 0, 2, 1}, {0, 0, 1, 3}, "reflect"},
      {{2, 8, 3, 4}, {0, 0, 0, 2}, {0, 0, 3, 1}, "replicate"},
      {{1, 16, 4, 3}, {0, 0, 4, 1}, {0, 0, 2, 3}, "circular"},
      {{1, 3, 6, 9}, {0, 0, 1, 3}, {0, 0, 1, 3}, "reflect"},
      {{1, 3, 4, 12}, {0, 0, 2, 1}, {0, 0, 0, 2}, "replicate"},
      {{2, 1, 3, 21}, {0, 0, 0, 5}, {0, 0, 1, 0}, "circular"},
      {{1, 8, 2, 3, 4}, {0, 0, 1, 2, 3}, {0, 0, 1, 1, 1}, "reflect"},
      {{2, 2, 3, 5, 7}, {0, 0, 2, 0, 0}, {0, 0, 1, 0, 0}, "circular"},
      {{2, 3, 5, 7}, {0, 0, 1, 0}, {0, 0, 4, 0}, "reflect"},
      {{1, 2, 3, 3}, {0, 0, 9, 8}, {0, 0, 2, 9}, "replicate"},
      {{2, 5, 2, 3}, {0, 2, 0, 0}, {0, 4, 0, 1}, "reflect"},
      {{2, 3, 9}, {0, 0, 4}, {0, 0, 1}, "reflect"},
      {{3, 4}, {1, 4}, {3, 4}, "circular"},
      {{7}, {6}, {6}, "reflect"},
      {{1, 1}, {3, 0}, {2, 1}, "replicate"},
      {{2, 3}, {0, 0}, {0, 0}, "reflect"},
      {{}, {}, {}, "circular"},
      {{0, 2, 3}, {0, 0, 1}, {0, 0, 2}, "reflect"},
      {{1, 8, 40, 37}, {0, 0, 3, 3}, {0, 0, 3, 3}, "reflect", false},
      {{1, 3, 61, 97}, {0, 0, 3, 3}, {0, 0, 3, 3}, "reflect", false},
      {{2, 8200}, {0, 5}, {0, 3}, "replicate", false},
  };
}

std::vector<Sample> pad_samples() {
  std::vector<Sample> samples = constant_samples();
  for (const RepeatedCase& c : repeated_cases()) {
    samples.push_back({.inputs = {c.shape}, .attributes = PadAttributes{c.before, c.after, 0, {}, c.mode}, .smooth = c.smooth});
  }
  const auto add_halves = [&](const Shape& shape, const PadAttributes& attributes) {
    samples.push_back({.inputs = {SampleInput::of(DType::f32, shape)}, .attributes = attributes, .smooth = false});
  };
  add_halves({2, 3, 2, 3}, {{0, 0, 0, 0}, {0, 5, 0, 0}, 0, DType::f16});
  add_halves({3, 7}, {{0, 2}, {0, 0}, 0.1, DType::bf16});
  add_halves({1, 3, 5, 7}, {{0, 0, 0, 0}, {0, 1, 0, 0}, 0, DType::f16});
  add_halves({2, 3, 4, 11}, {{0, 0, 2, 1}, {0, 0, 1, 1}, 0, DType::f16, "reflect"});
  add_halves({2, 8, 4, 11}, {{0, 0, 2, 1}, {0, 0, 1, 1}, 0, DType::f16, "reflect"});
  add_halves({5, 13}, {{0, 3}, {0, 2}, 0, DType::bf16, "circular"});
  return samples;
}

std::vector<Sample> pad_backward_samples() {
  std::vector<Sample> samples;
  for (const RepeatedCase& c : repeated_cases()) {
    Shape padded = c.shape;
    for (int axis = 0; axis < padded.rank(); ++axis) padded[axis] += c.before[axis] + c.after[axis];
    samples.push_back({.inputs = {padded}, .attributes = PadBackwardAttributes{c.before, c.after, c.mode}, .smooth = c.smooth});
  }
  return samples;
}

}  // namespace
}  // namespace ops

Value pad(Value x, const Dims& before, const Dims& after, double value) {
  return ops::emit_one("pad", {x}, ops::PadAttributes{before, after, value, {}});
}

Value pad(Value x, const Dims& before, const Dims& after, PaddingMode mode) {
  if (mode == PaddingMode::zeros) return pad(x, before, after, 0.0);
  const Dims none = Dims::filled(x.rank(), 0);
  if (before == none && after == none) return x;
  return ops::emit_one("pad", {x}, ops::PadAttributes{before, after, 0, {}, ops::name_of(mode)});
}

Value ops::lengthened(Value x, int axis, std::int64_t more, double value) {
  const Dims none = Dims::filled(x.rank(), 0);
  Dims after = none;
  after[normalize_axis(axis, x.rank(), "lengthened")] = more;
  return pad(x, none, after, value);
}

}  // namespace frit

FRIT_OPERATORS(pad) {
  registry.add<PadAttributes>({
      .name = "pad",
      .summary = "before[i] and after[i] elements added at the ends of axis i: a constant, or what lies inside",
      .inputs = {"input"},
      .infer = infer_pad,
      .gradient = pad_gradient,
      .absorb = absorb_cast<PadAttributes>,
      .cpu = {.run = run_pad, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .with_unit_axis = pad_with_unit_axis,
      .samples = pad_samples,
  });
  registry.add<PadBackwardAttributes>({
      .name = "pad_backward",
      .summary = "each element's gradient from those of the elements that padding made of it",
      .inputs = {"gradient"},
      .infer = infer_pad_backward,
      .gradient = gradient_of_pad_backward,
      .cpu = {.run = run_pad_backward, .strided = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
      .samples = pad_backward_samples,
  });
}
