#include <algorithm>
#include <set>

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/lines.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/sum_tile.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {

Value sum(Value x, const Dims& axes, bool keep_dims) { return ops::emit_reduction("sum", x, axes, keep_dims); }

Value mean(Value x, const Dims& axes, bool keep_dims) { return ops::emit_reduction("mean", x, axes, keep_dims); }

Value sum_to(Value x, const Shape& shape) {
  const int added = x.rank() - shape.rank();
  bool fits = added >= 0;
  Dims axes;
  for (int axis = 0; axis < x.rank() && fits; ++axis) {
    const bool same = axis >= added && shape[axis - added] == x.shape()[axis];
    fits = same || axis < added || shape[axis - added] == 1;
    if (!same) axes.push_back(axis);
  }
  require(fits, "sum_to: shape ", shape, " does not broadcast to ", x.shape());
  if (axes.empty()) return x;
  return reshape(sum(x, axes, /*keep_dims=*/added == 0), shape);
}

namespace ops {
namespace {

/// Integers wrap around.
template <class T>
using Accumulator = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;
template <class T>
using SumResult = std::conditional_t<std::is_floating_point_v<T>, T, std::int64_t>;

/// Integers sum to i64, as in PyTorch.
std::vector<TensorType> infer(const InferContext& call) {
  const DType dtype = call.inputs[0].dtype;
  return {{is_floating(dtype) ? dtype : DType::i64, reduction_shape(call)}};
}

std::size_t scratch(const InferContext& call) { return reduction_plan(call).scratch_bytes(sizeof(SumTile<double>)); }

void sum_kernel(const KernelContext& call, bool divide_by_count) {
  const Tensor& input = call.inputs[0];
  const ReductionPlan plan = reduction_plan(call, input);
  dispatch_arithmetic(input.dtype(), [&]<class T>() {
    const T* const x = input.data<T>();
    SumResult<T>* const y = call.outputs[0].data<SumResult<T>>();
    const auto divisor = static_cast<Accumulator<T>>(divide_by_count ? plan.count() : 1);
    if (plan.has_lines()) {
      return plan.for_each_lines([&](const Block& lines) {
        for (int i = 0; i < lines.width; ++i) {
          const auto total = sum_of_line<Accumulator<T>>(x + lines.offset + i * plan.count(), plan.count());
          y[lines.result(i)] = static_cast<SumResult<T>>(total / divisor);
        }
      });
    }
    reduce<SumTile<Accumulator<T>>>(
        plan, call.scratch,
        [&](auto& tile, const Rows& rows) { tile.add(rows, [&](std::int64_t i) { return static_cast<Accumulator<T>>(x[i]); }); },
        [&](const auto& tile, const Block& block) {
          for (int i = 0; i < block.width; ++i) y[block.result(i)] = static_cast<SumResult<T>>(tile.sum[i] / divisor);
        });
  });
}

/// Each element gets its result's gradient, or its share of that.
Values gradient(const GradientContext& call, bool divide_by_count) {
  const Shape& shape = call.inputs[0].shape();
  const Dims axes = normalize_axes(call.as<ReductionAttributes>().axes, shape.rank(), "sum");
  double count = 1;
  for (const std::int64_t axis : axes) count *= static_cast<double>(shape[static_cast<int>(axis)]);
  return {expand(restore_axes(divide_by_count ? call.gradients[0] / count : call.gradients[0], shape, axes), shape)};
}

/// The sums of channels that their producer has anyway.
std::optional<int> given(const Operator& producer, int read, const Shape& shape, const Attributes& own) {
  const auto& attributes = own.as<ReductionAttributes>();
  Dims axes{0};
  for (int axis = 2; axis < shape.rank(); ++axis) axes.push_back(axis);
  if (shape.rank() < 2 || attributes.keep_dims || normalize_axes(attributes.axes, shape.rank(), "sum") != axes) return std::nullopt;
  for (const auto& [output, of] : producer.channel_sums) {
    if (of == read) return output;
  }
  return std::nullopt;
}

/// The sum of a sum, or the mean of a mean, is one over the axes of both. Axes as emit_reduction leaves them.
std::optional<Attributes> over_both(const ReductionAttributes& first, const ReductionAttributes& second) {
  if (second.axes.empty() && !second.keep_dims) return second;
  std::set<std::int64_t> axes(first.axes.begin(), first.axes.end());
  for (std::int64_t axis : second.axes) {
    for (const std::int64_t removed : first.axes) axis += !first.keep_dims && removed <= axis ? 1 : 0;
    axes.insert(axis);
  }
  if (first.axes.empty() || second.axes.empty() || *axes.begin() < 0) return std::nullopt;
  return ReductionAttributes{Dims(std::vector(axes.begin(), axes.end())), second.keep_dims};
}

/// Where `axes` of a permuted tensor lie before that, if the others stay in order.
std::optional<Dims> axes_before_permutation(const Dims& permutation, const Dims& axes) {
  std::set<std::int64_t> before;
  for (const std::int64_t axis : axes) before.insert(permutation[static_cast<int>(axis)]);
  std::int64_t last = -1;
  for (const std::int64_t axis : permutation) {
    if (before.contains(axis)) continue;
    if (axis < last) return std::nullopt;
    last = axis;
  }
  return Dims(std::vector(before.begin(), before.end()));
}

/// Where `axes` of a tensor lie in another shape of the same elements in order; none if only a part of an axis there is meant.
std::optional<Dims> axes_before_reshaping(const Shape& from, const Shape& to, const Dims& axes) {
  Dims before;
  for (int i = 0, j = 0; i < from.rank() || j < to.rank();) {
    // The fewest axes of both with as many elements.
    const int first_before = i, first = j;
    std::int64_t elements_before = i < from.rank() ? from[i++] : 1, elements = j < to.rank() ? to[j++] : 1;
    while (elements_before != elements) {
      const bool shorter = elements_before < elements;
      if (shorter ? i == from.rank() : j == to.rank()) return std::nullopt;
      shorter ? elements_before *= from[i++] : elements *= to[j++];
    }
    const auto meant = std::count_if(axes.begin(), axes.end(), [&](std::int64_t axis) { return first <= axis && axis < j; });
    if (meant != 0 && meant != j - first) return std::nullopt;
    for (int axis = first_before; axis < i && meant != 0; ++axis) before.push_back(axis);
  }
  return before.empty() ? std::nullopt : std::optional(before);
}

/// The same of what is permuted or reshaped, and another of itself.
auto absorb_as(const char* name) {
  return [name](const OperatorCall& producer, const TensorType& read, std::size_t, const Attributes& own) -> std::optional<Attributes> {
    const auto& attributes = own.as<ReductionAttributes>();
    if (producer.op->name == name) return over_both(producer.attributes.as<ReductionAttributes>(), attributes);
    const bool rearranges = producer.op->permutation || (producer.op->view && producer.op->inputs.size() == 1);
    if (!rearranges || attributes.keep_dims) return std::nullopt;
    const Shape shape = producer.op->infer_types({&read, 1}, producer.attributes)[0].shape;
    const Dims axes = normalize_axes(attributes.axes, shape.rank(), name);
    const std::optional<Dims> before = producer.op->permutation
                                           ? axes_before_permutation(producer.op->permutation(producer.attributes), axes)
                                           : axes_before_reshaping(read.shape, shape, axes);
    return before && !before->empty() ? std::optional<Attributes>(ReductionAttributes{*before, false}) : std::nullopt;
  };
}

/// A mean over all axes of an image.
std::optional<Averaging> averaging(const Shape& input, const Attributes& attributes) {
  const auto& [given, keep_dims] = attributes.as<ReductionAttributes>();
  Dims axes, sizes;
  for (int axis = 2; axis < input.rank(); ++axis) {
    axes.push_back(axis);
    sizes.push_back(input[axis]);
  }
  if (axes.empty() || normalize_axes(given, input.rank(), "mean") != axes) return std::nullopt;
  return Averaging{sizes, sizes, sizes, reduced_shape(input, axes, keep_dims)};
}

std::vector<Sample> samples() {
  return {
      {.inputs = {Shape{}}},
      {.inputs = {Shape{7}}},
      {.inputs = {Shape{3, 5}}, .attributes = ReductionAttributes{{-1}, false}},
      {.inputs = {Shape{3, 5}}, .attributes = ReductionAttributes{{0}, true}},
      {.inputs = {Shape{2, 3, 5}}, .attributes = ReductionAttributes{{0, 2}, false}},
      {.inputs = {Shape{2, 3, 2, 3}}, .attributes = ReductionAttributes{{3, 1}, true}},
      {.inputs = {Shape{1, 3, 1, 2, 1}}, .attributes = ReductionAttributes{{0, 1, 2}, false}},
      {.inputs = {Shape{70, 24}}, .attributes = ReductionAttributes{{0}, false}},
      {.inputs = {Shape{2, 128, 7, 5}}, .attributes = ReductionAttributes{{1}, true}, .smooth = false},
      {.inputs = {Shape{1050, 1032}}, .attributes = ReductionAttributes{{1}, false}, .smooth = false},
      {.inputs = {Shape{2100, 8}}, .attributes = ReductionAttributes{{0}, false}, .smooth = false},
      {.inputs = {Shape{0, 3}}, .attributes = ReductionAttributes{{1}, false}},
  };
}

std::vector<Sample> samples_of_sum() {
  std::vector<Sample> all = samples();
  all.push_back({.inputs = {Shape{0, 3}}, .attributes = ReductionAttributes{{0}, false}});
  all.push_back(
      {.inputs = {SampleInput::integers({3, 7}, 256, DType::u8)}, .attributes = ReductionAttributes{{1}, false}, .smooth = false});
  return all;
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(sum) {
  registry.add<ReductionAttributes>({
      .name = "sum",
      .summary = "the sum over axes; integers sum to i64",
      .inputs = {"input"},
      .infer = infer,
      .gradient = [](const GradientContext& call) { return gradient(call, false); },
      .absorb = absorb_as("sum"),
      .given = given,
      .staged_inputs = {{0}},
      .precision = Precision::full,
      .cpu = {.run = [](const KernelContext& call) { sum_kernel(call, false); }, .scratch = scratch, .any_layout_inputs = {0}},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .with_unit_axis = axes_around_unit_axis,
      .samples = samples_of_sum,
  });
  registry.add<ReductionAttributes>({
      .name = "mean",
      .summary = "the mean over axes",
      .inputs = {"input"},
      .infer = infer,
      .gradient = [](const GradientContext& call) { return gradient(call, true); },
      .absorb = absorb_as("mean"),
      .averaging = averaging,
      .staged_inputs = {{0}},
      .cpu = {.run = [](const KernelContext& call) { sum_kernel(call, true); }, .scratch = scratch, .any_layout_inputs = {0}},
      .with_unit_axis = axes_around_unit_axis,
      .samples = samples,
  });
}
