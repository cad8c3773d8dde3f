#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/image_axes.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace ops {

SliceRange resolve(const Shape& shape, const SliceAttributes& attributes) {
  const int axis = normalize_axis(attributes.axis, shape.rank(), "slice");
  const std::int64_t size = shape[axis];
  const auto clip = [size](std::int64_t bound) { return std::clamp<std::int64_t>(bound < 0 ? bound + size : bound, 0, size); };
  const std::int64_t begin = clip(attributes.begin);
  const std::int64_t end = std::max(begin, clip(attributes.end));
  const std::int64_t step = std::min(attributes.step, std::max<std::int64_t>(size, 1));  // a longer one gives the same
  return {axis, begin, end, step, (end - begin + step - 1) / step};
}

namespace {

std::vector<TensorType> infer_slice(const InferContext& call) {
  const auto& attributes = call.as<SliceAttributes>();
  call.require(attributes.step > 0, "step must be positive, got ", attributes.step);
  const SliceRange range = resolve(call.shape(0), attributes);
  TensorType result{converted_dtype(call, attributes.dtype), call.shape(0)};
  result.shape[range.axis] = range.count;
  return {result};
}

Values slice_gradient(const GradientContext& call) {
  const Shape& shape = call.inputs[0].shape();
  const SliceRange range = resolve(shape, call.as<SliceAttributes>());
  const Value gradient = cast(call.gradients[0], call.inputs[0].dtype());
  return {emit_one("slice_backward", {gradient}, SliceBackwardAttributes{range.axis, range.begin, range.step, shape[range.axis]})};
}

Tensor part(const Tensor& input, const Attributes& attributes) {
  const SliceRange range = resolve(input.shape(), attributes.as<SliceAttributes>());
  return input.slice(range.axis, range.begin, range.end, range.step);
}

void run_slice(const KernelContext& call) { copy(call.outputs[0], part(call.inputs[0], call.attributes)); }

std::vector<Sample> slice_samples() {
  return {
      {.inputs = {SampleInput::of(DType::f16, {16, 4, 3, 3})}, .attributes = SliceAttributes{1, 0, 3, 1, DType::f32}, .smooth = false},
      {.inputs = {Shape{7}}, .attributes = SliceAttributes{0, 2, 5, 1}},
      {.inputs = {Shape{3, 5}}, .attributes = SliceAttributes{-1, -4, -1, 1}},
      {.inputs = {Shape{2, 7, 3}}, .attributes = SliceAttributes{1, 1, INT64_MAX, 3}},
      {.inputs = {Shape{2, 4, 3, 5}}, .attributes = SliceAttributes{1, 0, 3, 1}},
      {.inputs = {Shape{2, 16, 3, 2}}, .attributes = SliceAttributes{1, 8, 16, 1}},
      {.inputs = {Shape{5, 2}}, .attributes = SliceAttributes{0, 3, 3, 1}},
      {.inputs = {Shape{1, 1}}, .attributes = SliceAttributes{0, -9, 9, 9}},
      {.inputs = {Shape{0, 3}}, .attributes = SliceAttributes{1, 1, 2, 1}},
  };
}

std::int64_t span_of(std::int64_t count, std::int64_t step) { return count == 0 ? 0 : (count - 1) * step + 1; }

std::vector<TensorType> infer_slice_backward(const InferContext& call) {
  const auto& attributes = call.as<SliceBackwardAttributes>();
  TensorType result = call.inputs[0];
  const int axis = normalize_axis(attributes.axis, result.shape.rank(), "slice_backward");
  const std::int64_t count = result.shape[axis];
  const bool fits = attributes.begin >= 0 && attributes.begin <= attributes.size && attributes.step > 0 &&
                    (count == 0 || (count - 1) <= (attributes.size - 1 - attributes.begin) / attributes.step);
  call.require(fits, count, " elements from ", attributes.begin, " on in steps of ", attributes.step, " do not fit an axis of ",
               attributes.size);
  result.shape[axis] = attributes.size;
  return {result};
}

Values gradient_of_slice_backward(const GradientContext& call) {
  const auto& attributes = call.as<SliceBackwardAttributes>();
  const std::int64_t count = call.inputs[0].dim(attributes.axis);
  return {slice(call.gradients[0], attributes.axis, attributes.begin, attributes.begin + span_of(count, attributes.step), attributes.step)};
}

void run_slice_backward(const KernelContext& call) {
  const auto& attributes = call.as<SliceBackwardAttributes>();
  const Tensor& gradient = call.inputs[0];
  const Tensor& output = call.outputs[0];
  const std::int64_t span = span_of(gradient.dim(attributes.axis), attributes.step);
  const std::int64_t end = attributes.begin + span;
  output.slice(attributes.axis, 0, attributes.begin).fill(0);
  output.slice(attributes.axis, end, attributes.size).fill(0);
  const Tensor middle = output.slice(attributes.axis, attributes.begin, end);
  if (attributes.step > 1) middle.fill(0);
  copy(middle.slice(attributes.axis, 0, span, attributes.step), gradient);
}

std::vector<Sample> slice_backward_samples() {
  return {
      {.inputs = {Shape{3}}, .attributes = SliceBackwardAttributes{0, 2, 1, 7}},
      {.inputs = {Shape{2, 2, 3}}, .attributes = SliceBackwardAttributes{1, 1, 3, 7}},
      {.inputs = {Shape{3, 5}}, .attributes = SliceBackwardAttributes{-1, 0, 1, 5}},
      {.inputs = {Shape{2, 8, 3, 4}}, .attributes = SliceBackwardAttributes{2, 1, 1, 6}},
      {.inputs = {Shape{2, 8, 3, 5}}, .attributes = SliceBackwardAttributes{1, 8, 1, 24}},
      {.inputs = {Shape{1, 3, 4, 27}}, .attributes = SliceBackwardAttributes{3, 3, 1, 33}},
      {.inputs = {Shape{2, 8, 3, 4}}, .attributes = SliceBackwardAttributes{3, 1, 2, 9}},
      {.inputs = {Shape{0, 2}}, .attributes = SliceBackwardAttributes{0, 5, 1, 5}},
  };
}

}  // namespace
}  // namespace ops

Value slice(Value x, std::int64_t axis, std::int64_t begin, std::int64_t end, std::int64_t step) {
  return ops::emit_one("slice", {x}, ops::SliceAttributes{normalize_axis(axis, x.rank(), "slice"), begin, end, step, {}});
}

Value select(Value x, std::int64_t given_axis, std::int64_t index) {
  const int axis = normalize_axis(given_axis, x.rank(), "select");
  const std::int64_t size = x.dim(axis), begin = index < 0 ? index + size : index;
  require(begin >= 0 && begin < size, "select: index ", index, " is outside [", -size, ", ", size, ") of axis ", axis, " of ", x.shape());
  const Value one = slice(x, axis, begin, begin + 1);
  // The axis goes into its neighbour, which holds for any sizes of the others.
  return x.rank() == 1 ? reshape(one, {}) : flatten(one, std::max(axis - 1, 0), std::max(axis, 1));
}

Value Value::operator[](std::int64_t index) const { return select(*this, 0, index); }

}  // namespace frit

FRIT_OPERATORS(slice) {
  registry.add<SliceAttributes>({
      .name = "slice",
      .summary = "elements begin, begin + step, ... below end of one axis; bounds as in Python",
      .inputs = {"input"},
      .infer = infer_slice,
      .gradient = slice_gradient,
      .absorb = absorb_cast<SliceAttributes>,
      .cpu = {.run = run_slice, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .part = part,
      .with_unit_axis = axis_around_unit_axis<SliceAttributes>,
      .samples = slice_samples,
  });
  registry.add<SliceBackwardAttributes>({
      .name = "slice_backward",
      .summary = "zeros, with the gradient where the slice was taken",
      .inputs = {"gradient"},
      .infer = infer_slice_backward,
      .gradient = gradient_of_slice_backward,
      .cpu = {.run = run_slice_backward, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .samples = slice_backward_samples,
  });
}
