#include "frit/ops/operator/registry.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace ops {
namespace {

std::vector<TensorType> infer_pad(const InferContext& call) {
  const auto& [before, after, value, dtype] = call.as<PadAttributes>();
  TensorType result{stored_dtype(call, dtype), call.shape(0)};
  const int rank = result.shape.rank();
  call.require(before.rank() == rank && after.rank() == rank, "expected ", rank, " sizes before and after, got ", before.rank(), " and ",
               after.rank(), " (input ", result.shape, ")");
  for (int axis = 0; axis < rank; ++axis) {
    call.require(before[axis] >= 0 && after[axis] >= 0, "axis ", axis, " has a negative size: ", before[axis], " before, ", after[axis],
                 " after");
    std::int64_t& size = result.shape[axis];
    const bool overflow = __builtin_add_overflow(size, before[axis], &size) || __builtin_add_overflow(size, after[axis], &size);
    call.require(!overflow, "axis ", axis, " would be longer than 2^63 - 1");
  }
  return {result};
}

Values pad_gradient(const GradientContext& call) {
  const auto& attributes = call.as<PadAttributes>();
  Value result = cast(call.gradients[0], call.inputs[0].dtype());
  for (int axis = 0; axis < result.rank(); ++axis) {
    const std::int64_t begin = attributes.before[axis];
    if (begin > 0 || attributes.after[axis] > 0) result = slice(result, axis, begin, begin + call.inputs[0].shape()[axis]);
  }
  return {result};
}

/// Fills the margins axis by axis, so that each element is written once.
void run_pad(const KernelContext& call) {
  const auto& attributes = call.as<PadAttributes>();
  const Tensor& input = call.inputs[0];
  Tensor inside = call.outputs[0];
  for (int axis = 0; axis < input.rank(); ++axis) {
    const std::int64_t begin = attributes.before[axis];
    const std::int64_t end = begin + input.shape()[axis];
    inside.slice(axis, 0, begin).fill(attributes.value);
    inside.slice(axis, end, inside.shape()[axis]).fill(attributes.value);
    inside = inside.slice(axis, begin, end);
  }
  copy(inside, input);
}

std::vector<Sample> pad_samples() {
  return {
      {.inputs = {Shape{5}}, .attributes = PadAttributes{{2}, {3}, 0}},
      {.inputs = {Shape{2, 3}}, .attributes = PadAttributes{{0, 1}, {1, 0}, -1.5}},
      {.inputs = {Shape{2, 3, 5}}, .attributes = PadAttributes{{0, 1, 2}, {1, 0, 1}, 0.5}},
      {.inputs = {SampleInput::of(DType::f32, {2, 3, 2, 3})},
       .attributes = PadAttributes{{0, 0, 0, 0}, {0, 5, 0, 0}, 0, DType::f16},
       .smooth = false},
      {.inputs = {SampleInput::of(DType::f32, {3, 7})}, .attributes = PadAttributes{{0, 2}, {0, 0}, 0.1, DType::bf16}, .smooth = false},
      {.inputs = {Shape{1, 2, 3, 3}}, .attributes = PadAttributes{{0, 0, 1, 1}, {0, 0, 1, 2}, 0}},
      {.inputs = {Shape{2, 3, 4, 5}}, .attributes = PadAttributes{{0, 0, 0, 0}, {0, 1, 0, 0}, 0}},
      {.inputs = {Shape{1, 3, 37, 29}}, .attributes = PadAttributes{{0, 0, 0, 0}, {0, 1, 0, 0}, 0.5}, .smooth = false},
      {.inputs = {SampleInput::of(DType::f32, {1, 3, 5, 7})},
       .attributes = PadAttributes{{0, 0, 0, 0}, {0, 1, 0, 0}, 0, DType::f16},
       .smooth = false},
      {.inputs = {Shape{9, 2}}, .attributes = PadAttributes{{0, 0}, {0, 2}, -2}},
      {.inputs = {Shape{2, 8, 3, 5}}, .attributes = PadAttributes{{0, 0, 1, 2}, {0, 0, 0, 1}, -1}},
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

}  // namespace
}  // namespace ops

Value pad(Value x, const Dims& before, const Dims& after, double value) {
  return ops::emit_one("pad", {x}, ops::PadAttributes{before, after, value, {}});
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
      .summary = "before[i] and after[i] elements of a constant added at the ends of axis i",
      .inputs = {"input"},
      .infer = infer_pad,
      .gradient = pad_gradient,
      .absorb = absorb_cast<PadAttributes>,
      .cpu = {.run = run_pad, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .with_unit_axis = pad_with_unit_axis,
      .samples = pad_samples,
  });
}
