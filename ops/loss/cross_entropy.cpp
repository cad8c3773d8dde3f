#include "frit/core/strided_loop.h"
#include "frit/ops/loss/loss_functors.h"
#include "frit/ops/loss/loss_reduction.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/scratch_parts.h"
#include "frit/ops/reduction/log_sum_exp_tile.h"
#include "frit/ops/reduction/sum_tile.h"

namespace frit {

Value cross_entropy(Value logits, Value target, Reduction reduction) {
  return ops::emit_one("cross_entropy", {logits, target}, ops::loss_attributes(reduction));
}

namespace ops {
namespace {

/// Logits as (N, C, S), or channels-last as (N S, C, 1), each of the N S columns with its target class.
struct Columns {
  Targets targets;
  std::int64_t classes, count, inner;

  Columns(const Tensor& logits, const Tensor& target)
      : targets(target),
        classes(logits.dim(1)),
        count(target.elements()),
        inner(logits.layout() == Layout::channels_last ? 1 : count / std::max<std::int64_t>(1, logits.dim(0))) {}

  /// Where the logit of a column's target lies.
  std::int64_t offset_of_target(std::int64_t column) const {
    if (inner == 1) return column * classes + targets[column];
    return (column / inner * classes + targets[column]) * inner + column % inner;
  }
};

Shape target_shape(const InferContext& call, std::size_t logits) {
  Shape shape = call.shape(logits);
  call.require(shape.rank() >= 2, "logits must be (N, C, ...), got ", shape);
  shape.erase(1);
  const TensorType& target = call.inputs[logits + 1];
  call.require((target.dtype == DType::i64 || target.dtype == DType::i32) && target.shape == shape, "target is ", target, ", logits ",
               call.shape(logits), " need i64 ", shape);
  return shape;
}

/// What the logits of an example have in common.
Invariance invariance(const Shape& logits, const Attributes&) {
  Dims block = Dims::filled(logits.rank(), 1);
  block[1] = logits[1];
  return {block, /*scale=*/false};
}

std::vector<TensorType> infer(const InferContext& call) {
  const Shape shape = target_shape(call, 0);
  const DType dtype = call.inputs[0].dtype;
  return {{dtype, loss_shape(call.attributes, shape)}, {computed_dtype(dtype), shape}, {computed_dtype(dtype), shape}};
}

/// The scratch memory: the loss of each column, and one reduction's states.
std::size_t scratch(const InferContext& call) {
  const std::int64_t columns = element_count(target_shape(call, 0));
  const std::size_t per_column = ReductionPlan(call.shape(0), {1}, true, call.input_layout(0)).scratch_bytes(sizeof(LogSumExpTile<double>));
  const std::size_t total = ReductionPlan({columns}, {0}).scratch_bytes(sizeof(SumTile<double>));
  return aligned(columns, sizeof(double)) + std::max(per_column, total);
}

ReductionPlan plan_of(const Tensor& logits) { return {logits.shape(), {1}, true, logits.layout()}; }

void kernel(const KernelContext& call) {
  const Tensor& logits = call.inputs[0];
  const Columns columns(logits, call.inputs[1]);
  double* const losses = reinterpret_cast<double*>(call.scratch.data());
  const std::span<std::byte> states = call.scratch.subspan(aligned(columns.count, sizeof(double)));
  dispatch_floating(logits.dtype(), [&]<class T>() {
    const T* const x = logits.data<T>();
    T* const y = data_or_null<T>(call.outputs[0]);
    T* const maximum = data_or_null<T>(call.outputs[1]);
    T* const sum = data_or_null<T>(call.outputs[2]);
    reduce_log_sum_exp(plan_of(logits), states, x, [&](const auto& tile, const Block& block) {
      for (int i = 0; i < block.width; ++i) {
        const std::int64_t column = block.result(i);
        const T logit = x[columns.offset_of_target(column)];
        losses[column] = static_cast<double>(finite_or_nan(tile.maximum[i])) - static_cast<double>(logit) + std::log(tile.sum[i]);
      }
      block.store(maximum, tile.maximum);
      block.store(sum, tile.sum);
    });
    if (y == nullptr) return;
    const Reduction reduction = reduction_of(call.attributes);
    if (reduction == Reduction::none) {
      std::transform(losses, losses + columns.count, y, [](double loss) { return static_cast<T>(loss); });
      return;
    }
    const double divisor = reduction == Reduction::mean ? static_cast<double>(columns.count) : 1;  // the mean over nothing is NaN
    reduce<SumTile<double>>(
        ReductionPlan({columns.count}, {0}), states,
        [&](auto& tile, const Rows& rows) { tile.add(rows, [&](std::int64_t i) { return losses[i]; }); },
        [&](const auto& tile, const Block&) { y[0] = static_cast<T>(tile.sum[0] / divisor); });
  });
}

Values gradient(const GradientContext& call) {
  return {emit_one("cross_entropy_backward", {call.gradients[0], call.inputs[0], call.inputs[1], call.outputs[1], call.outputs[2]},
                   call.attributes),
          {}};
}

std::vector<Sample> samples() {
  const auto sample = [](const Shape& logits, const Shape& target, const char* reduction) {
    return Sample{.inputs = {logits, SampleInput::indices(target)}, .attributes = LossAttributes{reduction}};
  };
  Sample narrow = sample({3, 2}, {3}, "mean");
  narrow.inputs[1].dtype = DType::i32;
  return {sample({3, 5}, {3}, "mean"), sample({2, 3, 5}, {2, 5}, "sum"),         sample({2, 3, 2, 3}, {2, 2, 3}, "none"),
          sample({1, 1}, {1}, "mean"), sample({2, 16, 3, 4}, {2, 3, 4}, "mean"), narrow,
          sample({0, 3}, {0}, "sum")};
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  const Shape shape = target_shape(call, 1);
  const TensorType& logits = call.inputs[1];
  const bool fit = call.inputs[0] == TensorType{logits.dtype, loss_shape(call.attributes, shape)} &&
                   are_statistics(call.inputs[3], shape, logits.dtype) && are_statistics(call.inputs[4], shape, logits.dtype);
  call.require(fit, "gradient ", call.inputs[0], ", maximum ", call.inputs[3], " and sum ", call.inputs[4], " do not belong to logits ",
               logits);
  return {logits};
}

/// (softmax(logits) - 1 at the target) times the loss's gradient.
void backward_kernel(const KernelContext& call) {
  const Tensor& logits = call.inputs[1];
  const Columns columns(logits, call.inputs[2]);
  const Reduction reduction = reduction_of(call.attributes);
  dispatch_floating(logits.dtype(), [&]<class T>() {
    const T* const x = logits.data<T>();
    const T* const gradient = call.inputs[0].data<T>();
    const T* const maximum = call.inputs[3].data<T>();
    const T* const sum = call.inputs[4].data<T>();
    T* const y = call.outputs[0].data<T>();
    const T divisor = reduction == Reduction::mean ? static_cast<T>(columns.count) : T{1};
    const auto gradient_of = [&](std::int64_t column) { return reduction == Reduction::none ? gradient[column] : gradient[0] / divisor; };
    visit(
        plan_of(logits), y,
        [&](std::int64_t column) { return std::pair(finite_or_nan(maximum[column]), gradient_of(column) / sum[column]); },
        [x](std::int64_t place, T greatest, T scale) { return vector_exp(x[place] - greatest) * scale; });
    parallel_for(columns.count, elementwise_grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t column = begin; column < end; ++column) y[columns.offset_of_target(column)] -= gradient_of(column);
    });
  });
}

std::vector<Sample> backward_samples() {
  std::vector<Sample> all = samples();
  for (Sample& sample : all) {
    const Shape columns = sample.inputs[1].shape;
    sample.inputs.insert(sample.inputs.begin(), SampleInput(loss_shape(sample.attributes, columns)));
    sample.inputs.push_back(SampleInput(columns));
    sample.inputs.push_back(SampleInput(columns, Fill::positive));
  }
  return all;
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(cross_entropy) {
  registry.add<LossAttributes>({
      .name = "cross_entropy",
      .summary = "-log_softmax(logits)[target] over axis 1, and its mean or sum",
      .inputs = {"logits", "target"},
      .outputs = {"output", "maximum", "sum"},
      .infer = infer,
      .gradient = gradient,
      .precision = Precision::full,
      .cpu = {.run = kernel, .scratch = scratch, .any_layout_inputs = {0}},
      .index_inputs = {{1, [](const InferContext& call) { return call.shape(0)[1]; }}},
      .invariance = invariance,
      .samples = samples,
  });
  registry.add<LossAttributes>({
      .name = "cross_entropy_backward",
      .summary = "(softmax(logits) - one_hot(target)) gradient",
      .inputs = {"gradient", "logits", "target", "maximum", "sum"},
      .infer = infer_backward,
      .no_gradient = "not differentiable twice",
      .cpu = {.run = backward_kernel, .any_layout_inputs = {1}, .any_layout_outputs = {0}, .one_layout = true},
      .in_place = {{0, 1}},
      .index_inputs = {{2, [](const InferContext& call) { return call.shape(1)[1]; }}},
      .samples = backward_samples,
  });
}
