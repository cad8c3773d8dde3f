#include "frit/ops/indexing/take_along_axis.h"

#include <algorithm>

#include "frit/core/strided_loop.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {

std::pair<Shape, int> indexed_shape(const InferContext& call, const Shape& whole, std::int64_t given_axis, bool keep_dims) {
  const int axis = normalize_axis(given_axis, whole.rank(), call.op.name.c_str());
  const TensorType& indices = call.inputs[1];
  Shape shape = whole;
  if (!keep_dims) {
    shape[axis] = 1;
    const Shape lines = reduced_shape(whole, {axis}, false);
    call.require(indices.dtype == DType::i64 && indices.shape == lines, "input \"indices\" must be i64 ", lines, ", got ", indices);
    return {shape, axis};
  }
  bool fits = indices.dtype == DType::i64 && indices.shape.rank() == whole.rank();
  for (int i = 0; fits && i < whole.rank(); ++i) fits = i == axis || indices.shape[i] == whole[i] || indices.shape[i] == 1;
  call.require(fits, "input \"indices\" must be i64 of the shape ", whole, ", or with 1s in it, but for axis ", axis, ", got ", indices);
  shape[axis] = indices.shape[axis];
  return {shape, axis};
}

IndexedValues::IndexedValues(const Shape& whole, std::int64_t line_axis, bool keep_dims, const Tensor& given)
    : axis(normalize_axis(line_axis, whole.rank(), "indices")), shape(whole), indices(given.strides()) {
  Shape sizes = given.shape();
  if (!keep_dims) {
    sizes.insert(axis, 1);
    indices.insert(axis, 0);
  }
  shape[axis] = sizes[axis];
  for (int i = 0; i < whole.rank(); ++i) indices[i] = sizes[i] == 1 ? 0 : indices[i];
}

namespace {

std::vector<TensorType> infer_take_along_axis(const InferContext& call) {
  const auto& [axis, keep_dims] = call.as<AxisReductionAttributes>();
  auto [shape, place] = indexed_shape(call, call.shape(0), axis, keep_dims);
  if (!keep_dims) shape.erase(place);
  return {{call.inputs[0].dtype, shape}};
}

/// Elements of a line.
std::int64_t taken_from(const InferContext& call) {
  return call.shape(0)[normalize_axis(call.as<AxisReductionAttributes>().axis, call.shape(0).rank(), "take_along_axis")];
}

Values take_along_axis_gradient(const GradientContext& call) {
  const auto& [axis, keep_dims] = call.as<AxisReductionAttributes>();
  return {put_along_axis(call.gradients[0], call.inputs[1], axis, call.inputs[0].dim(axis), keep_dims), {}};
}

void run_take_along_axis(const KernelContext& call) {
  const Tensor& input = call.inputs[0];
  const auto& [axis, keep_dims] = call.as<AxisReductionAttributes>();
  const IndexedValues values(input.shape(), axis, keep_dims, call.inputs[1]);
  const std::int64_t* const indices = call.inputs[1].data<std::int64_t>();
  Strides lines = input.strides();
  const std::int64_t stride = std::exchange(lines[values.axis], 0);
  dispatch_all(input.dtype(), [&]<class T>() {
    const T* const x = input.data<T>();
    T* const y = call.outputs[0].data<T>();
    strided_loop<3>(values.shape, {dense_strides(values.shape), lines, values.indices},
                    [&](const auto& offsets, const auto& steps, std::int64_t count) {
                      T* const to = y + offsets[0];
                      const T* const from = x + offsets[1];
                      const std::int64_t* const index = indices + offsets[2];
                      if (steps[2] == 0 && steps[1] == 1) {
                        std::copy_n(from + *index * stride, count, to);
                        return;
                      }
                      for (std::int64_t i = 0; i < count; ++i) to[i * steps[0]] = from[i * steps[1] + index[i * steps[2]] * stride];
                    });
  });
}

std::vector<Sample> take_along_axis_samples() {
  const auto along = [](std::int64_t axis, bool keep_dims = true) { return AxisReductionAttributes{axis, keep_dims}; };
  return {
      {.inputs = {Shape{7}, SampleInput::indices({})}},
      {.inputs = {Shape{3, 5}, SampleInput::indices({3})}, .attributes = along(-1, false)},
      {.inputs = {Shape{2, 3, 5}, SampleInput::indices({2, 1, 5})}, .attributes = along(1)},
      {.inputs = {Shape{1, 1}, SampleInput::indices({1})}, .attributes = along(0, false)},
      {.inputs = {Shape{0, 3}, SampleInput::indices({0})}, .attributes = along(1, false)},
      {.inputs = {Shape{4, 6}, SampleInput::indices({9, 1})}, .attributes = along(0)},
      {.inputs = {Shape{2, 3, 4}, SampleInput::indices({2, 7, 4})}, .attributes = along(1)},
      {.inputs = {Shape{2, 3, 4}, SampleInput::indices({1, 3, 6})}, .attributes = along(-1)},
      {.inputs = {Shape{2, 4, 3, 5}, SampleInput::indices({2, 3, 1, 5})}, .attributes = along(1)},
      {.inputs = {Shape{3, 4}, SampleInput::indices({0, 1})}, .attributes = along(0)},
      {.inputs = {Shape{5, 40}, SampleInput::indices({300, 1})}, .attributes = along(0), .smooth = false},
  };
}

}  // namespace

Value take_along_axis(Value x, Value indices, std::int64_t axis, bool keep_dims) {
  return emit_one("take_along_axis", {x, indices}, AxisReductionAttributes{axis, keep_dims});
}

}  // namespace frit::ops

FRIT_OPERATORS(take_along_axis) {
  registry.add<AxisReductionAttributes>({
      .name = "take_along_axis",
      .summary = "the elements of each line along an axis that indices name",
      .inputs = {"input", "indices"},
      .infer = infer_take_along_axis,
      .gradient = take_along_axis_gradient,
      .cpu = {.run = run_take_along_axis, .halves = true, .any_layout_inputs = {0, 1}},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .index_inputs = {{1, taken_from}},
      .samples = take_along_axis_samples,
  });
}
