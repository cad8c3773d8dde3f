#include "frit/ops/indexing/take_along_axis.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/extremum_lanes.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/shape/image_axes.h"

namespace frit {

namespace {

Value extremum(const char* one_axis, const char* several_axes, Value x, const Dims& axes, bool keep_dims) {
  if (axes.rank() != 1) return ops::emit_reduction(several_axes, x, axes, keep_dims);
  return ops::emit_one(one_axis, {x}, ops::AxisReductionAttributes{normalize_axis(axes[0], x.rank(), one_axis), keep_dims});
}

}  // namespace

Value max(Value x, const Dims& axes, bool keep_dims) { return extremum("max", "amax", x, axes, keep_dims); }

Value min(Value x, const Dims& axes, bool keep_dims) { return extremum("min", "amin", x, axes, keep_dims); }

Value argmax(Value x, std::int64_t axis, bool keep_dims) {
  return ops::emit_one("argmax", {x}, ops::AxisReductionAttributes{normalize_axis(axis, x.rank(), "argmax"), keep_dims});
}

Value argmin(Value x, std::int64_t axis, bool keep_dims) {
  return ops::emit("min", {x}, ops::AxisReductionAttributes{normalize_axis(axis, x.rank(), "argmin"), keep_dims})[1];
}

namespace ops {
namespace {

/// The first of the greatest (or least) elements and its place.
template <class Order, class T, class Index>
struct ExtremumTile {
  T value[tile_width];
  Index index[tile_width];

  void clear(int width) {
    std::fill_n(value, width, Order::template start<T>());
    std::fill_n(index, width, Index{0});
  }
  void add(const Rows& rows, const T* x) {
    for (std::int64_t row = 0; row < rows.count; ++row) {
      const T* const line = x + rows.offset + row * rows.stride;
      const auto place = static_cast<Index>(rows.position + row * rows.step);
      for (int i = 0; i < rows.width; ++i) {
        const T candidate = line[i], best = value[i];
        const Index best_place = index[i];
        const bool replace = replaces<Order>(candidate, best);
        value[i] = replace ? candidate : best;
        index[i] = replace ? place : best_place;
      }
    }
  }
  void merge(const ExtremumTile& later, int width) {
    for (int i = 0; i < width; ++i) {
      if (!replaces<Order>(later.value[i], value[i])) continue;
      value[i] = later.value[i];
      index[i] = later.index[i];
    }
  }
  void fold() {
    const T best = extremum_of_lanes<Order>(value);
    Index places[tile_lanes], first[tile_lanes];
    for (int i = 0; i < tile_lanes; ++i) {
      const auto place = static_cast<Index>(index[i] + i);
      places[i] = first[i] = ties(value[i], best) ? place : std::numeric_limits<Index>::max();
    }
    fold_lanes([&](int a, int b) { first[a] = first[a] < first[b] ? first[a] : first[b]; });
    index[0] = first[0];
    value[0] = value[std::find(places, places + tile_lanes, first[0]) - places];  // zeros tie whatever their signs
  }
};

std::vector<TensorType> infer_argmax(const InferContext& call) { return {{DType::i64, extremum_shape<AxisReductionAttributes>(call)}}; }

/// The whole gradient goes to the element that was chosen.
Values gradient(const GradientContext& call) {
  const auto& attributes = call.as<AxisReductionAttributes>();
  return {put_along_axis(call.gradients[0], call.outputs[1], attributes.axis, call.inputs[0].dim(attributes.axis), attributes.keep_dims)};
}

std::size_t scratch(const InferContext& call) {
  const ReductionPlan plan = reduction_plan<AxisReductionAttributes>(call);
  return dispatch_arithmetic(call.inputs[0].dtype,
                             [&]<class T>() { return plan.scratch_bytes(sizeof(ExtremumTile<MaximumOrder, T, std::int64_t>)); });
}

/// Either result may be undefined.
template <class Order>
void run_extremum(const KernelContext& call, const Tensor& values, const Tensor& indices) {
  const Tensor& input = call.inputs[0];
  const ReductionPlan plan = reduction_plan<AxisReductionAttributes>(call, input);
  const auto with_types = [&]<class T, class Index>() {
    const T* const x = input.data<T>();
    T* const value = data_or_null<T>(values);
    std::int64_t* const index = data_or_null<std::int64_t>(indices);
    reduce_elements<ExtremumTile<Order, T, Index>>(plan, call.scratch, x, [&](const auto& tile, const Block& block) {
      block.store(value, tile.value);
      block.store(index, tile.index);
    });
  };
  dispatch_arithmetic(input.dtype(), [&]<class T>() {
    // Narrow indices let the loop over narrow elements use whole vectors.
    if (sizeof(T) < 8 && plan.count() <= INT32_MAX) {
      with_types.template operator()<T, std::int32_t>();
    } else {
      with_types.template operator()<T, std::int64_t>();
    }
  });
}

template <class Order>
void kernel(const KernelContext& call) {
  run_extremum<Order>(call, call.outputs[0], call.outputs[1]);
}

void argmax_kernel(const KernelContext& call) { run_extremum<MaximumOrder>(call, {}, call.outputs[0]); }

std::vector<Sample> samples() {
  const auto input = [](Shape shape) { return SampleInput(std::move(shape), Fill::distinct); };
  return {
      {.inputs = {input({7})}},
      {.inputs = {input({3, 5})}, .attributes = AxisReductionAttributes{1, false}},
      {.inputs = {input({2, 3, 5})}, .attributes = AxisReductionAttributes{1, true}},
      {.inputs = {input({2, 3, 2, 3})}, .attributes = AxisReductionAttributes{-4, false}},
      {.inputs = {input({1, 1})}, .attributes = AxisReductionAttributes{-1, true}},
      {.inputs = {input({0, 3})}, .attributes = AxisReductionAttributes{1, false}},
      {.inputs = {input({2, 16, 3, 4})}, .attributes = AxisReductionAttributes{1, false}},
      {.inputs = {input({5, 16})}, .attributes = AxisReductionAttributes{0, true}},
      {.inputs = {input({2, 8200})}, .attributes = AxisReductionAttributes{1, false}, .smooth = false},
  };
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(max) {
  const std::vector<DType> dtypes(std::begin(all_dtypes), std::end(all_dtypes));
  for (const bool greatest : {true, false}) {
    registry.add<AxisReductionAttributes>({
        .name = greatest ? "max" : "min",
        .summary = greatest ? "the first of the greatest elements along an axis, NaN first, and its index"
                            : "the first of the least elements along an axis, NaN first, and its index",
        .inputs = {"input"},
        .outputs = {"output", "indices"},
        .infer = infer_extremum<AxisReductionAttributes>,
        .gradient = gradient,
        .staged_inputs = {{0}},
        .cpu = {.run = greatest ? kernel<MaximumOrder> : kernel<MinimumOrder>, .scratch = scratch, .any_layout_inputs = {0}},
        .dtypes = dtypes,
        .with_unit_axis = axis_around_unit_axis<AxisReductionAttributes>,
        .samples = samples,
    });
  }
  registry.add<AxisReductionAttributes>({
      .name = "argmax",
      .summary = "the index of the first of the greatest elements along an axis, NaN first",
      .inputs = {"input"},
      .infer = infer_argmax,
      .no_gradient = "integer result",
      .cpu = {.run = argmax_kernel, .scratch = scratch, .any_layout_inputs = {0}},
      .dtypes = dtypes,
      .with_unit_axis = axis_around_unit_axis<AxisReductionAttributes>,
      .samples = samples,
  });
}
