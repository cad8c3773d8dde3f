#include "frit/ops/reduction/take_along_axis.h"

#include <algorithm>
#include <numeric>

#include "frit/core/thread_pool.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

/// A contiguous tensor as (outer, size, inner) around one axis.
struct Lines {
  std::int64_t outer = 1, size = 1, inner = 1;

  Lines(const Shape& shape, int axis) : size(shape[axis]) {
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  }

  /// Calls body(outer index, first column, columns) in parallel.
  template <class Body>
  void for_each_tile(const Body& body) const {
    constexpr std::int64_t tile = 512;
    const std::int64_t tiles = (inner + tile - 1) / tile;
    const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, size * std::min(inner, tile)));
    parallel_for(outer * tiles, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t column = i % tiles * tile;
        body(i / tiles, column, std::min(tile, inner - column));
      }
    });
  }
};

void require_indices(const InferContext& call, const Shape& expected) {
  call.require(call.inputs[1].dtype == DType::i64 && call.shape(1) == expected, "input \"indices\" must be i64 ", expected, ", got ",
               call.inputs[1]);
}

std::vector<TensorType> infer_take(const InferContext& call) {
  const auto& attributes = call.as<AxisReductionAttributes>();
  const TensorType& input = call.inputs[0];
  const int axis = normalize_axis(attributes.axis, input.shape.rank(), "take_along_axis");
  const Shape shape = reduced_shape(input.shape, {axis}, attributes.keep_dims);
  require_indices(call, shape);
  return {{input.dtype, shape}};
}

/// Elements of a line.
std::int64_t taken_from(const InferContext& call) {
  return call.shape(0)[normalize_axis(call.as<AxisReductionAttributes>().axis, call.shape(0).rank(), "take_along_axis")];
}

Values gradient_of_take(const GradientContext& call) {
  const auto& attributes = call.as<AxisReductionAttributes>();
  return {put_along_axis(call.gradients[0], call.inputs[1], attributes.axis, call.inputs[0].dim(attributes.axis), attributes.keep_dims),
          {}};
}

void take_kernel(const KernelContext& call) {
  const Tensor& input = call.inputs[0];
  const Lines lines(input.shape(), normalize_axis(call.as<AxisReductionAttributes>().axis, input.rank(), "take_along_axis"));
  const std::int64_t* const indices = call.inputs[1].data<std::int64_t>();
  dispatch_all(input.dtype(), [&]<class T>() {
    const T* const x = input.data<T>();
    T* const y = call.outputs[0].data<T>();
    lines.for_each_tile([&](std::int64_t outer, std::int64_t column, std::int64_t width) {
      for (std::int64_t j = column; j < column + width; ++j) {
        const std::int64_t place = outer * lines.inner + j;
        y[place] = x[(outer * lines.size + indices[place]) * lines.inner + j];
      }
    });
  });
}

std::vector<Sample> take_samples() {
  return {
      {.inputs = {Shape{7}, SampleInput::indices({})}},
      {.inputs = {Shape{3, 5}, SampleInput::indices({3})}, .attributes = AxisReductionAttributes{-1, false}},
      {.inputs = {Shape{2, 3, 5}, SampleInput::indices({2, 1, 5})}, .attributes = AxisReductionAttributes{1, true}},
      {.inputs = {Shape{1, 1}, SampleInput::indices({1})}, .attributes = AxisReductionAttributes{0, false}},
      {.inputs = {Shape{0, 3}, SampleInput::indices({0})}, .attributes = AxisReductionAttributes{1, false}},
  };
}

std::vector<TensorType> infer_put(const InferContext& call) {
  const auto& attributes = call.as<PutAttributes>();
  TensorType result = call.inputs[0];
  require_indices(call, result.shape);
  const int axis = normalize_axis(attributes.axis, result.shape.rank() + (attributes.keep_dims ? 0 : 1), "put_along_axis");
  if (!attributes.keep_dims) result.shape.insert(axis, 1);
  call.require(result.shape[axis] == 1, "axis ", axis, " must have size 1 (values ", call.shape(0), ")");
  result.shape[axis] = attributes.size;
  return {result};
}

Values gradient_of_put(const GradientContext& call) {
  const auto& attributes = call.as<PutAttributes>();
  return {take_along_axis(call.gradients[0], call.inputs[1], attributes.axis, attributes.keep_dims), {}};
}

void put_kernel(const KernelContext& call) {
  const Tensor& output = call.outputs[0];
  const Lines lines(output.shape(), normalize_axis(call.as<PutAttributes>().axis, output.rank(), "put_along_axis"));
  const std::int64_t* const indices = call.inputs[1].data<std::int64_t>();
  dispatch_all(output.dtype(), [&]<class T>() {
    const T* const values = call.inputs[0].data<T>();
    T* const y = output.data<T>();
    lines.for_each_tile([&](std::int64_t outer, std::int64_t column, std::int64_t width) {
      T* const line = y + outer * lines.size * lines.inner + column;
      for (std::int64_t i = 0; i < lines.size; ++i) std::fill_n(line + i * lines.inner, width, T{});
      for (std::int64_t j = 0; j < width; ++j) {
        const std::int64_t place = outer * lines.inner + column + j;
        line[indices[place] * lines.inner + j] = values[place];
      }
    });
  });
}

/// A value where the index is the place along the axis, else zero. None for data that is small.
Values put_by_place(std::span<const Value> inputs, std::span<const Value> outputs, const Attributes& attributes) {
  constexpr std::int64_t least_bytes = 1 << 20, most_places = 1 << 24;  // float32 counts so far
  const TensorType& type = outputs[0].type();
  const auto& put = attributes.as<PutAttributes>();
  if (type.bytes() < least_bytes || !is_floating(type.dtype) || put.size > most_places) return {};
  Shape kept = type.shape, line = Shape::filled(type.shape.rank(), 1);
  const int axis = normalize_axis(put.axis, kept.rank(), "put_along_axis");
  kept[axis] = 1;
  line[axis] = put.size;
  std::vector<double> places(static_cast<std::size_t>(put.size));
  std::iota(places.begin(), places.end(), 0.0);
  const DType counted = type.dtype == DType::f64 ? DType::f64 : DType::f32;
  const Value index = cast(reshape(inputs[1], kept), counted), place = index.emitter().constant(Tensor::from(places, line).to(counted));
  return {where(equal(index, place), reshape(inputs[0], kept), scalar(inputs[0], 0))};
}

std::vector<Sample> put_samples() {
  return {
      {.inputs = {Shape{}, SampleInput::indices({})}, .attributes = PutAttributes{0, 7, false}},
      {.inputs = {Shape{3}, SampleInput::indices({3})}, .attributes = PutAttributes{-1, 5, false}},
      {.inputs = {Shape{2, 1, 5}, SampleInput::indices({2, 1, 5})}, .attributes = PutAttributes{1, 3, true}},
      {.inputs = {Shape{1}, SampleInput::indices({1})}, .attributes = PutAttributes{0, 1, false}},
      {.inputs = {Shape{0}, SampleInput::indices({0})}, .attributes = PutAttributes{1, 3, false}},
  };
}

}  // namespace

Value take_along_axis(Value x, Value indices, std::int64_t axis, bool keep_dims) {
  return emit_one("take_along_axis", {x, indices}, AxisReductionAttributes{axis, keep_dims});
}

Value put_along_axis(Value values, Value indices, std::int64_t axis, std::int64_t size, bool keep_dims) {
  return emit_one("put_along_axis", {values, indices}, PutAttributes{axis, size, keep_dims});
}

}  // namespace frit::ops

FRIT_OPERATORS(take_along_axis) {
  registry.add<AxisReductionAttributes>({
      .name = "take_along_axis",
      .summary = "the element of each line along an axis that an index names",
      .inputs = {"input", "indices"},
      .infer = infer_take,
      .gradient = gradient_of_take,
      .cpu = {.run = take_kernel, .halves = true},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .index_inputs = {{1, taken_from}},
      .samples = take_samples,
  });
  registry.add<PutAttributes>({
      .name = "put_along_axis",
      .summary = "zeros, with each value where an index names its place along an axis",
      .inputs = {"values", "indices"},
      .infer = infer_put,
      .gradient = gradient_of_put,
      .pointwise = put_by_place,
      .cpu = {.run = put_kernel, .halves = true},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .index_inputs = {{1, [](const InferContext& call) { return call.as<PutAttributes>().size; }}},
      .samples = put_samples,
  });
}
