#include "frit/ops/reduction/cumulative_sum.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "frit/core/thread_pool.h"
#include "frit/ops/elementwise/arithmetic_functors.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/image_axes.h"

namespace frit {

Value cumulative_sum(Value x, std::int64_t axis, bool exclusive, bool reverse) {
  return ops::emit_one("cumulative_sum", {x},
                       ops::CumulativeSumAttributes{normalize_axis(axis, x.rank(), "cumulative_sum"), exclusive, reverse});
}

namespace ops {
namespace {

std::vector<TensorType> infer_cumulative_sum(const InferContext& call) {
  const TensorType& input = call.inputs[0];
  normalize_axis(call.as<CumulativeSumAttributes>().axis, input.shape.rank(), "cumulative_sum");
  return {{is_floating(input.dtype) ? input.dtype : DType::i64, input.shape}};
}

Values cumulative_sum_gradient(const GradientContext& call) {
  const auto& [axis, exclusive, reverse] = call.as<CumulativeSumAttributes>();
  return {cumulative_sum(call.gradients[0], axis, exclusive, !reverse)};
}

/// Neighbouring lines whose sums a task has at once, of lines that lie side by side, and of others: one sum waits for the one before it.
constexpr std::int64_t tile_elements = 256, lines_together = 4;

/// Element after element, in float64 or i64.
void run_cumulative_sum(const KernelContext& call) {
  const Tensor& input = call.inputs[0];
  const bool exclusive = call.as<CumulativeSumAttributes>().exclusive, reverse = call.as<CumulativeSumAttributes>().reverse;
  const int axis = normalize_axis(call.as<CumulativeSumAttributes>().axis, input.rank(), "cumulative_sum");
  const std::int64_t size = input.dim(axis), inner = dense_strides(input.shape())[axis];
  if (input.elements() == 0) return;
  const std::int64_t lines = input.elements() / size, tiles = (inner + tile_elements - 1) / tile_elements;
  const std::int64_t first = reverse ? (size - 1) * inner : 0, step = reverse ? -inner : inner;
  dispatch_arithmetic(input.dtype(), [&]<class T>() {
    using Sum = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
    using Result = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
    // So many lines, `most` at most, the first element of the first at `start`, those of its neighbours so far apart.
    const auto scan = [&]<std::size_t most>(std::integral_constant<std::size_t, most>, std::int64_t start, auto width, auto apart) {
      const T* x = input.data<T>() + start + first;
      Result* y = call.outputs[0].data<Result>() + start + first;
      std::array<Sum, most> sums{};
      for (std::int64_t i = 0; i < size; ++i, x += step, y += step) {
        for (std::int64_t j = 0; j < width; ++j) {
          Sum& sum_before = sums[static_cast<std::size_t>(j)];
          const Sum sum = Add<Sum>{}(sum_before, static_cast<Sum>(x[j * apart]));
          y[j * apart] = static_cast<Result>(exclusive ? sum_before : sum);
          sum_before = sum;
        }
      }
    };
    const std::integral_constant<std::int64_t, 1> one;
    if (inner == 1) {
      const std::integral_constant<std::int64_t, lines_together> several;
      parallel_for(lines, std::max(lines_together, 16384 / size / lines_together * lines_together),
                   [&](std::int64_t line, std::int64_t end) {
                     for (; line + several <= end; line += several)
                       scan(std::integral_constant<std::size_t, lines_together>{}, line * size, several, size);
                     for (; line < end; ++line) scan(std::integral_constant<std::size_t, 1>{}, line * size, one, size);
                   });
      return;
    }
    const std::int64_t grain = std::max<std::int64_t>(1, 16384 / (size * std::min(inner, tile_elements)));
    parallel_for(lines / inner * tiles, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t column = item % tiles * tile_elements, start = item / tiles * size * inner + column;
        scan(std::integral_constant<std::size_t, tile_elements>{}, start, std::min(tile_elements, inner - column), one);
      }
    });
  });
}

std::vector<Sample> cumulative_sum_samples() {
  return {
      {.inputs = {Shape{7}}},
      {.inputs = {Shape{3, 5}}, .attributes = CumulativeSumAttributes{-1, true, false}},
      {.inputs = {Shape{2, 4, 3}}, .attributes = CumulativeSumAttributes{1, false, true}},
      {.inputs = {Shape{2, 3, 2, 3}}, .attributes = CumulativeSumAttributes{1, true, true}},
      {.inputs = {Shape{1, 1}}, .attributes = CumulativeSumAttributes{1, true, false}},
      {.inputs = {Shape{0, 3}}, .attributes = CumulativeSumAttributes{1, false, false}},
      {.inputs = {Shape{3, 0, 2}}, .attributes = CumulativeSumAttributes{1, false, false}},
      {.inputs = {Shape{3, 5000}}, .attributes = CumulativeSumAttributes{1, true, true}, .smooth = false},
      {.inputs = {Shape{64, 34, 130}}, .attributes = CumulativeSumAttributes{1, false, false}, .smooth = false},
      {.inputs = {Shape{4500, 2}}, .attributes = CumulativeSumAttributes{0, false, false}, .smooth = false},
      {.inputs = {SampleInput::integers({4, 300}, 256, DType::u8)}, .attributes = CumulativeSumAttributes{1, false, true}, .smooth = false},
  };
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(cumulative_sum) {
  using namespace frit::ops;
  registry.add<CumulativeSumAttributes>({
      .name = "cumulative_sum",
      .summary = "sums of each line's elements up to each, or before it, or from it on; integers sum to i64",
      .inputs = {"input"},
      .infer = infer_cumulative_sum,
      .gradient = cumulative_sum_gradient,
      .precision = Precision::full,
      .cpu = {.run = run_cumulative_sum},
      .dtypes = {std::begin(frit::all_dtypes), std::end(frit::all_dtypes)},
      .with_unit_axis = axis_around_unit_axis<CumulativeSumAttributes>,
      .samples = cumulative_sum_samples,
  });
}
