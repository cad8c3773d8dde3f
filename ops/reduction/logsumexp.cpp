#include <array>

#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/log_sum_exp_tile.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit {

Value logsumexp(Value x, const Dims& axes, bool keep_dims) { return ops::emit_reduction("logsumexp", x, axes, keep_dims); }

namespace ops {
namespace {

std::vector<TensorType> infer(const InferContext& call) {
  const DType dtype = call.inputs[0].dtype;
  const Shape shape = reduction_shape(call);
  return {{dtype, shape}, {computed_dtype(dtype), shape}, {computed_dtype(dtype), shape}};
}

std::size_t scratch(const InferContext& call) { return reduction_plan(call).scratch_bytes(sizeof(LogSumExpTile<double>)); }

/// A function of its own, in which the loop becomes vector code.
template <class T>
[[gnu::noinline, gnu::flatten]] std::array<T, tile_width> logarithms(const LogSumExpTile<T>& tile, int width) {
  std::array<T, tile_width> results;
  for (int i = 0; i < width; ++i) {
    results[static_cast<std::size_t>(i)] = tile.shift_of(tile.maximum[i]) + vector_log(static_cast<T>(tile.sum[i]));
  }
  return results;
}

void kernel(const KernelContext& call) {
  const Tensor& input = call.inputs[0];
  dispatch_floating(input.dtype(), [&]<class T>() {
    const T* const x = input.data<T>();
    T* const y = data_or_null<T>(call.outputs[0]);
    T* const maximum = data_or_null<T>(call.outputs[1]);
    T* const sum = data_or_null<T>(call.outputs[2]);
    reduce_log_sum_exp(reduction_plan(call, input), call.scratch, x, [&](const auto& tile, const Block& block) {
      if (y != nullptr) block.store(y, logarithms(tile, block.width).data());
      block.store(maximum, tile.maximum);
      block.store(sum, tile.sum);
    });
  });
}

Values gradient(const GradientContext& call) {
  return {emit_one("logsumexp_backward", {call.gradients[0], call.inputs[0], call.outputs[1], call.outputs[2]}, call.attributes)};
}

std::vector<Sample> samples() {
  return {
      {.inputs = {Shape{7}}},
      {.inputs = {Shape{3, 5}}, .attributes = ReductionAttributes{{-1}, false}},
      {.inputs = {Shape{2, 3, 5}}, .attributes = ReductionAttributes{{1}, true}},
      {.inputs = {Shape{2, 3, 2, 3}}, .attributes = ReductionAttributes{{0, 2}, false}},
      {.inputs = {Shape{}}},
      {.inputs = {Shape{2, 1, 3}}, .attributes = ReductionAttributes{{1}, true}},
      {.inputs = {Shape{0, 3}}, .attributes = ReductionAttributes{{1}, false}},
      {.inputs = {Shape{2, 16, 3, 4}}, .attributes = ReductionAttributes{{1}, false}},
      {.inputs = {Shape{5, 16}}, .attributes = ReductionAttributes{{0}, true}},
      {.inputs = {Shape{2, 8200}}, .attributes = ReductionAttributes{{1}, false}, .smooth = false},
  };
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  const TensorType& input = call.inputs[1];
  const Shape shape = reduction_shape({call.op, call.inputs.subspan(1), call.attributes});
  const bool fit = call.inputs[0] == TensorType{input.dtype, shape} && are_statistics(call.inputs[2], shape, input.dtype) &&
                   are_statistics(call.inputs[3], shape, input.dtype);
  call.require(fit, "gradient ", call.inputs[0], ", maximum ", call.inputs[2], " and sum ", call.inputs[3], " do not belong to input ",
               input);
  return {input};
}

/// From the saved maximum and sum, not from the rounded result: the weights sum to 1 at any magnitude. All -inf gives NaN.
void backward_kernel(const KernelContext& call) {
  const Tensor& input = call.inputs[1];
  dispatch_floating(input.dtype(), [&]<class T>() {
    const T* const gradient = call.inputs[0].data<T>();
    const T* const x = input.data<T>();
    const T* const maximum = call.inputs[2].data<T>();
    const T* const sum = call.inputs[3].data<T>();
    T* const y = call.outputs[0].data<T>();
    visit(
        reduction_plan(call, input), y, [&](std::int64_t result) { return std::pair(maximum[result], gradient[result] / sum[result]); },
        [x](std::int64_t place, T greatest, T scale) { return vector_exp(x[place] - greatest) * scale; });
  });
}

std::vector<Sample> backward_samples() {
  const auto sample = [](Shape input, const Shape& output, ReductionAttributes attributes) {
    return Sample{.inputs = {output, std::move(input), output, SampleInput(output, Fill::positive)}, .attributes = attributes};
  };
  return {
      sample({7}, {}, {{}, false}),          sample({3, 5}, {3}, {{1}, false}), sample({2, 3, 5}, {2, 1, 5}, {{1}, true}),
      sample({1}, {1}, {{0}, true}),         sample({0, 3}, {0}, {{1}, false}), sample({2, 16, 3, 4}, {2, 3, 4}, {{1}, false}),
      sample({5, 16}, {1, 16}, {{0}, true}),
  };
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(logsumexp) {
  registry.add<ReductionAttributes>({
      .name = "logsumexp",
      .summary = "log(sum(exp(x))) over axes, shifted by the maximum",
      .inputs = {"input"},
      .outputs = {"output", "maximum", "sum"},
      .infer = infer,
      .gradient = gradient,
      .staged_inputs = {{0}},
      .cpu = {.run = kernel, .scratch = scratch, .any_layout_inputs = {0}},
      .with_unit_axis = axes_around_unit_axis,
      .samples = samples,
  });
  registry.add<ReductionAttributes>({
      .name = "logsumexp_backward",
      .summary = "gradient * exp(x - maximum) / sum",
      .inputs = {"gradient", "input", "maximum", "sum"},
      .infer = infer_backward,
      .no_gradient = "not differentiable twice",
      .cpu = {.run = backward_kernel, .any_layout_inputs = {1}, .any_layout_outputs = {0}, .one_layout = true},
      .in_place = {{0, 1}},
      .samples = backward_samples,
  });
}
