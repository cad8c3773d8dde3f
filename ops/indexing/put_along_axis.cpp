#include <algorithm>
#include <cstring>
#include <numeric>

#include "frit/core/strided_loop.h"
#include "frit/ops/elementwise/arithmetic_functors.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/indexing/take_along_axis.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

std::vector<TensorType> infer_put_along_axis(const InferContext& call) {
  const auto& attributes = call.as<PutAttributes>();
  TensorType result = call.inputs[0];
  Shape& shape = result.shape;
  const int axis = normalize_axis(attributes.axis, shape.rank() + (attributes.keep_dims ? 0 : 1), "put_along_axis");
  if (!attributes.keep_dims) shape.insert(axis, 1);
  const std::int64_t count = shape[axis], indices = indexed_shape(call, shape, axis, attributes.keep_dims).first[axis];
  call.require(indices == count, "there are ", count, " values along axis ", axis, " and ", indices, " indices (values ", call.shape(0),
               ", indices ", call.shape(1), ")");
  shape[axis] = attributes.size;
  return {result};
}

Values put_along_axis_gradient(const GradientContext& call) {
  const auto& attributes = call.as<PutAttributes>();
  return {take_along_axis(call.gradients[0], call.inputs[1], attributes.axis, attributes.keep_dims), {}};
}

void fill_with_zeros(const Tensor& tensor) {
  auto* const bytes = static_cast<std::byte*>(tensor.raw());
  parallel_for(tensor.bytes(), 1 << 18,
               [&](std::int64_t begin, std::int64_t end) { std::memset(bytes + begin, 0, static_cast<std::size_t>(end - begin)); });
}

/// A tensor's strides over lines, and along one.
struct LineStrides {
  Strides lines;
  std::int64_t along;

  LineStrides(Strides strides, int axis) : lines(strides), along(strides[axis]) { lines.erase(axis); }
};

/// Each line's values are added one after another.
void run_put_along_axis(const KernelContext& call) {
  const Tensor& output = call.outputs[0];
  const auto& attributes = call.as<PutAttributes>();
  const IndexedValues values(output.shape(), attributes.axis, attributes.keep_dims, call.inputs[1]);
  const std::int64_t count = values.shape[values.axis], *const indices = call.inputs[1].data<std::int64_t>();
  const LineStrides to(output.strides(), values.axis), from(dense_strides(values.shape), values.axis), by(values.indices, values.axis);
  Shape lines = values.shape;
  lines.erase(values.axis);
  std::array<Strides, 3> strides = {to.lines, from.lines, by.lines};
  const std::int64_t grain = std::max<std::int64_t>(16, elementwise_grain / std::max<std::int64_t>(count, 1));
  fill_with_zeros(output);
  if (element_count(values.shape) == 0) return;
  collapse_axes(lines, strides);
  dispatch_arithmetic(output.dtype(), [&]<class T>() {
    const auto add_lines = [&](const auto& offsets, const auto& steps, std::int64_t run) {
      T* const y = output.data<T>() + offsets[0];
      const T* const x = call.inputs[0].data<T>() + offsets[1];
      const std::int64_t* const index = indices + offsets[2];
      // `n` values of neighbouring lines, or of one line.
      const auto add = [](T* sums, const T* terms, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) sums[i] = Add<T>{}(sums[i], terms[i]);
      };
      const bool is_row = steps[0] == 1 && steps[1] == 1 && steps[2] == 0;
      for (std::int64_t j = 0; is_row && j < count; ++j) add(y + index[j * by.along] * to.along, x + j * from.along, run);
      for (std::int64_t i = 0; !is_row && i < run; ++i) {
        for (std::int64_t j = 0; j < count; ++j) {
          add(y + i * steps[0] + index[i * steps[2] + j * by.along] * to.along, x + i * steps[1] + j * from.along, 1);
        }
      }
    };
    parallel_for(element_count(lines), grain,
                 [&](std::int64_t begin, std::int64_t end) { strided_range(lines, strides, begin, end, add_lines); });
  });
}

/// A value where the index is the place along the axis, else zero. Only of one value a line, and none for data that is small.
Values put_by_place(std::span<const Value> inputs, std::span<const Value> outputs, const Attributes& attributes) {
  constexpr std::int64_t least_bytes = 1 << 20, most_places = 1 << 24;  // float32 counts so far
  const TensorType& type = outputs[0].type();
  const auto& put = attributes.as<PutAttributes>();
  if (type.bytes() < least_bytes || !is_floating(type.dtype) || put.size > most_places) return {};
  Shape kept = type.shape, line = Shape::filled(type.shape.rank(), 1);
  const int axis = normalize_axis(put.axis, kept.rank(), "put_along_axis");
  kept[axis] = 1;
  if (inputs[0].type().elements() != element_count(kept) || inputs[1].type().elements() != element_count(kept)) return {};
  line[axis] = put.size;
  std::vector<double> places(static_cast<std::size_t>(put.size));
  std::iota(places.begin(), places.end(), 0.0);
  const DType counted = type.dtype == DType::f64 ? DType::f64 : DType::f32;
  const Value index = cast(reshape(inputs[1], kept), counted), place = index.emitter().constant(Tensor::from(places, line).to(counted));
  return {where(equal(index, place), reshape(inputs[0], kept), scalar(inputs[0], 0))};
}

std::vector<Sample> put_along_axis_samples() {
  return {
      {.inputs = {Shape{}, SampleInput::indices({})}, .attributes = PutAttributes{0, 7, false}},
      {.inputs = {Shape{3}, SampleInput::indices({3})}, .attributes = PutAttributes{-1, 5, false}},
      {.inputs = {Shape{2, 1, 5}, SampleInput::indices({2, 1, 5})}, .attributes = PutAttributes{1, 3, true}},
      {.inputs = {Shape{1}, SampleInput::indices({1})}, .attributes = PutAttributes{0, 1, false}},
      {.inputs = {Shape{0}, SampleInput::indices({0})}, .attributes = PutAttributes{1, 3, false}},
      {.inputs = {Shape{9, 6}, SampleInput::indices({9, 1})}, .attributes = PutAttributes{0, 4, true}},
      {.inputs = {Shape{2, 7, 4}, SampleInput::indices({2, 7, 4})}, .attributes = PutAttributes{1, 3, true}},
      {.inputs = {Shape{2, 3, 6}, SampleInput::indices({1, 3, 6})}, .attributes = PutAttributes{-1, 4, true}},
      {.inputs = {Shape{2, 7, 3, 5}, SampleInput::indices({2, 7, 1, 5})}, .attributes = PutAttributes{1, 4, true}},
      {.inputs = {Shape{8}, SampleInput::indices({8})}, .attributes = PutAttributes{0, 3, true}},
      {.inputs = {Shape{2, 1, 3}, SampleInput::indices({2, 1, 3})}, .attributes = PutAttributes{1, 4, true, true}},
      {.inputs = {Shape{3, 0, 2}, SampleInput::indices({3, 0, 1})}, .attributes = PutAttributes{1, 2, true}},
      {.inputs = {Shape{300, 40}, SampleInput::indices({300, 1})}, .attributes = PutAttributes{0, 5, true}, .smooth = false},
  };
}

}  // namespace

Value put_along_axis(Value values, Value indices, std::int64_t axis, std::int64_t size, bool keep_dims, bool distinct) {
  return emit_one("put_along_axis", {values, indices}, PutAttributes{axis, size, keep_dims, distinct});
}

}  // namespace frit::ops

FRIT_OPERATORS(put_along_axis) {
  registry.add<PutAttributes>({
      .name = "put_along_axis",
      .summary = "zeros, to which each value is added where an index names its place along an axis",
      .inputs = {"values", "indices"},
      .infer = infer_put_along_axis,
      .gradient = put_along_axis_gradient,
      .pointwise = put_by_place,
      .cpu = {.run = run_put_along_axis},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .index_inputs = {{1, [](const InferContext& call) { return call.as<PutAttributes>().size; }}},
      .samples = put_along_axis_samples,
  });
}
