#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/extremum_lanes.h"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {
namespace {

/// The greatest (or least) element and, if anybody reads that, how many are equal to it.
template <class Order, class T, bool counts = true>
struct SharedExtremumTile {
  T value[tile_width];
  std::int64_t count[tile_width];

  void clear(int width) {
    std::fill_n(value, width, Order::template start<T>());
    std::fill_n(count, width, std::int64_t{0});
  }
  void add(const Rows& rows, const T* x) {
    for (std::int64_t row = 0; row < rows.count; ++row) {
      const T* const line = x + rows.offset + row * rows.stride;
      for (int i = 0; i < rows.width; ++i) take(i, line[i], 1);
    }
  }
  void merge(const SharedExtremumTile& later, int width) {
    for (int i = 0; i < width; ++i) take(i, later.value[i], later.count[i]);
  }
  void fold() {
    const T best = extremum_of_lanes<Order>(value);
    if constexpr (counts) {
      for (int i = 0; i < tile_lanes; ++i) count[i] &= -static_cast<std::int64_t>(ties(value[i], best));
      fold_lanes([&](int a, int b) { count[a] += count[b]; });
    }
    value[0] = best;
  }

 private:
  void take(int column, T candidate, std::int64_t copies) {
    const T best = value[column];
    const bool replace = replaces<Order>(candidate, best);
    value[column] = replace ? candidate : best;
    if constexpr (!counts) return;
    const std::int64_t equal = count[column];
    count[column] = replace ? copies : equal + copies * static_cast<std::int64_t>(ties(candidate, best));
  }
};

std::size_t scratch(const InferContext& call) {
  return dispatch_arithmetic(call.inputs[0].dtype,
                             [&]<class T>() { return reduction_plan(call).scratch_bytes(sizeof(SharedExtremumTile<MaximumOrder, T>)); });
}

template <class Order>
void kernel(const KernelContext& call) {
  const Tensor& input = call.inputs[0];
  dispatch_arithmetic(input.dtype(), [&]<class T>() {
    const T* const x = input.data<T>();
    T* const value = data_or_null<T>(call.outputs[0]);
    std::int64_t* const count = data_or_null<std::int64_t>(call.outputs[1]);
    const auto finish = [=](const auto& tile, const Block& block) {
      block.store(value, tile.value);
      block.store(count, tile.count);
    };
    count != nullptr ? reduce_elements<SharedExtremumTile<Order, T, true>>(reduction_plan(call, input), call.scratch, x, finish)
                     : reduce_elements<SharedExtremumTile<Order, T, false>>(reduction_plan(call, input), call.scratch, x, finish);
  });
}

Values gradient(const GradientContext& call) {
  return {emit_one("extremum_backward", {call.gradients[0], call.inputs[0], call.outputs[0], call.outputs[1]}, call.attributes)};
}

std::vector<Sample> samples() {
  const auto input = [](Shape shape) { return SampleInput(std::move(shape), Fill::distinct); };
  return {
      {.inputs = {input({7})}},
      {.inputs = {input({3, 5})}, .attributes = ReductionAttributes{{0, 1}, true}},
      {.inputs = {input({2, 3, 5})}, .attributes = ReductionAttributes{{0, 2}, false}},
      {.inputs = {input({2, 3, 2, 3})}, .attributes = ReductionAttributes{{-1, 1}, true}},
      {.inputs = {input({})}},
      {.inputs = {input({0, 3})}, .attributes = ReductionAttributes{{1}, false}},
      {.inputs = {input({2, 16, 3, 4})}, .attributes = ReductionAttributes{{1}, false}},
      {.inputs = {input({5, 16})}, .attributes = ReductionAttributes{{0}, true}},
      {.inputs = {input({2, 8200})}, .attributes = ReductionAttributes{{1}, false}, .smooth = false},
  };
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  const TensorType& input = call.inputs[1];
  const Shape shape = reduction_shape({call.op, call.inputs.subspan(1), call.attributes});
  call.require(call.inputs[0] == TensorType{input.dtype, shape} && call.inputs[2] == call.inputs[0] &&
                   call.inputs[3] == TensorType{DType::i64, shape},
               "gradient ", call.inputs[0], ", output ", call.inputs[2], " and count ", call.inputs[3], " do not belong to input ", input);
  return {input};
}

/// Equal extrema share the gradient evenly, NaNs too.
void backward_kernel(const KernelContext& call) {
  const Tensor& input = call.inputs[1];
  dispatch_floating(input.dtype(), [&]<class T>() {
    const T* const gradient = call.inputs[0].data<T>();
    const T* const x = input.data<T>();
    const T* const extremum = call.inputs[2].data<T>();
    const std::int64_t* const count = call.inputs[3].data<std::int64_t>();
    T* const y = call.outputs[0].data<T>();
    visit(
        reduction_plan(call, input), y,
        [&](std::int64_t result) { return std::pair(extremum[result], gradient[result] / static_cast<T>(count[result])); },
        [x](std::int64_t place, T best, T share) { return ties(x[place], best) ? share : T{0}; });
  });
}

std::vector<Sample> backward_samples() {
  const auto sample = [](Shape input, Shape output, ReductionAttributes attributes) {
    return Sample{.inputs = {output, SampleInput(std::move(input), Fill::ones), SampleInput(output, Fill::ones),
                             SampleInput::of(DType::i64, output, Fill::ones)},
                  .attributes = attributes,
                  .smooth = false};
  };
  return {
      sample({7}, {}, {{}, false}),          sample({3, 5}, {1, 1}, {{0, 1}, true}), sample({2, 3, 5}, {3}, {{0, 2}, false}),
      sample({1}, {}, {{0}, false}),         sample({0, 3}, {0}, {{1}, false}),      sample({2, 16, 3, 4}, {2, 3, 4}, {{1}, false}),
      sample({5, 16}, {1, 16}, {{0}, true}),
  };
}

}  // namespace
}  // namespace frit::ops

FRIT_OPERATORS(amax) {
  const std::vector<DType> dtypes(std::begin(all_dtypes), std::end(all_dtypes));
  for (const bool greatest : {true, false}) {
    registry.add<ReductionAttributes>({
        .name = greatest ? "amax" : "amin",
        .summary = greatest ? "the greatest element over axes, NaN first, and how many equal it"
                            : "the least element over axes, NaN first, and how many equal it",
        .inputs = {"input"},
        .outputs = {"output", "count"},
        .infer = infer_extremum<ReductionAttributes>,
        .gradient = gradient,
        .staged_inputs = {{0}},
        .cpu = {.run = greatest ? kernel<MaximumOrder> : kernel<MinimumOrder>, .scratch = scratch, .any_layout_inputs = {0}},
        .dtypes = dtypes,
        .with_unit_axis = axes_around_unit_axis,
        .samples = samples,
    });
  }
  registry.add<ReductionAttributes>({
      .name = "extremum_backward",
      .summary = "the gradient of amax and amin: shared evenly by the elements that equal the output",
      .inputs = {"gradient", "input", "output", "count"},
      .infer = infer_backward,
      .no_gradient = "not differentiable twice",
      .cpu = {.run = backward_kernel, .any_layout_inputs = {1}, .any_layout_outputs = {0}, .one_layout = true},
      .in_place = {{0, 1}},
      .samples = backward_samples,
  });
}
