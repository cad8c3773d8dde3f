#include "frit/core/strided_loop.h"
#include "frit/ops/cpu/elementwise.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/loss/loss_functors.h"
#include "frit/ops/loss/loss_reduction.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/elementwise_sums.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/sum_tile.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {

Value mean_squared_error(Value prediction, Value target, Reduction reduction) {
  return ops::emit("mean_squared_error", {prediction, target}, ops::loss_attributes(reduction))[0];
}

Value l1_loss(Value prediction, Value target, Reduction reduction) {
  return ops::emit("l1_loss", {prediction, target}, ops::loss_attributes(reduction))[0];
}

Value binary_cross_entropy_with_logits(Value logits, Value target, Reduction reduction) {
  return ops::emit("binary_cross_entropy_with_logits", {logits, target}, ops::loss_attributes(reduction))[0];
}

namespace ops {
namespace {

/// The loss has the target's dtype: a prediction in halves may come with a float32 target.
std::vector<TensorType> infer(const InferContext& call) {
  const TensorType &a = call.inputs[0], &b = call.inputs[1];
  const bool compatible = a.dtype == b.dtype || (is_half(a.dtype) && b.dtype == DType::f32);
  call.require(compatible && a.shape == b.shape, call.op.inputs[0].name, " is ", a, ", target is ", b);
  return {{call.inputs[1].dtype, loss_shape(call.attributes, call.shape(0))}, call.inputs[0]};
}

ReductionPlan plan_of(std::int64_t elements) { return {{elements}, {0}}; }

std::size_t scratch(const InferContext& call) { return plan_of(call.inputs[0].elements()).scratch_bytes(sizeof(SumTile<double>)); }

/// Either result may be undefined.
template <class Loss>
void kernel(const KernelContext& call) {
  const Reduction reduction = reduction_of(call.attributes);
  const std::int64_t elements = call.inputs[0].elements();
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const T* const p = call.inputs[0].data<T>();
    const T* const t = call.inputs[1].data<T>();
    T* const y = data_or_null<T>(call.outputs[0]);
    T* const unit_gradient = data_or_null<T>(call.outputs[1]);
    const double divisor = reduction == Reduction::mean ? static_cast<double>(elements) : 1;  // the mean over nothing is NaN
    const auto write = [&](T* output, std::int64_t begin, std::int64_t end, const auto& function) {
      using Operand = detail::DenseOperand<T>;
      if (output != nullptr) detail::map_run(output + begin, end - begin, function, Operand{p + begin}, Operand{t + begin});
    };
    const auto write_unit_gradient = [&](std::int64_t begin, std::int64_t end) {
      const T share = 1 / static_cast<T>(divisor);
      write(unit_gradient, begin, end, [share](T a, T b) { return Loss::by_prediction(a, b) * share; });
    };
    if (reduction == Reduction::none) {
      parallel_for(elements, elementwise_grain, [&](std::int64_t begin, std::int64_t end) {
        write(y, begin, end, [](T a, T b) { return Loss::value(a, b); });
        write_unit_gradient(begin, end);
      });
      return;
    }
    reduce<SumTile<double>>(
        plan_of(elements), call.scratch,
        [&](auto& tile, const Rows& rows) {
          tile.add(rows, [&](std::int64_t i) { return static_cast<double>(Loss::value(p[i], t[i])); });
          write_unit_gradient(rows.offset, rows.offset + rows.count * rows.width);
        },
        [&](const auto& tile, const Block&) {
          if (y != nullptr) y[0] = static_cast<T>(tile.sum[0] / divisor);
        });
  });
}

// As the functors' derivatives, spelled in operators.
Value by_prediction(SquaredError, Value p, Value t) { return 2.0 * (p - t); }
Value by_prediction(AbsoluteError, Value p, Value t) { return cast(greater(p, t), p.dtype()) - cast(less(p, t), p.dtype()); }
Value by_prediction(LogisticCrossEntropy, Value p, Value t) { return sigmoid(p) - t; }

template <class Loss>
Value by_target(Loss loss, Value p, Value t) {
  if constexpr (Loss::antisymmetric) return by_prediction(loss, t, p);
  return -p;
}

/// What the loss multiplies each element's value with.
double share_of(const Attributes& attributes, Value prediction) {
  return reduction_of(attributes) == Reduction::mean ? 1 / static_cast<double>(prediction.type().elements()) : 1;
}

/// A loss of one value comes with its gradient for an incoming 1, so that prediction and target are read once. Not in halves: a mean's
/// share of an element may vanish in them, which the scaling of the loss is there to prevent, and then the scale must come first.
template <class Loss>
Values gradient(const GradientContext& call) {
  require(!call.gradients[1], "gradient: the gradient of a loss is not differentiable");
  const Value incoming = call.gradients[0];
  if (!incoming) return Values(2);
  const DType dtypes[] = {call.inputs[0].dtype(), call.inputs[1].dtype()};
  const bool in_pass = reduction_of(call.attributes) != Reduction::none && !is_half(dtypes[0]);
  if (in_pass && (Loss::antisymmetric || !call.wanted[1])) {
    const Value by_prediction = call.outputs[1] * incoming;
    return {call.wanted[0] ? by_prediction : Value{}, call.wanted[1] ? -by_prediction : Value{}};
  }
  const DType wide = is_half(dtypes[0]) ? DType::f32 : dtypes[0];
  const Value p = cast(call.inputs[0], wide), t = cast(call.inputs[1], wide);
  const auto scaled = [&](Value derivative, DType dtype) {
    return cast(derivative * cast(incoming, wide) * share_of(call.attributes, p), dtype);
  };
  return {call.wanted[0] ? scaled(by_prediction(Loss{}, p, t), dtypes[0]) : Value{},
          call.wanted[1] ? scaled(by_target(Loss{}, p, t), dtypes[1]) : Value{}};
}

// As the functors' values, where these are few operators.
Value value(SquaredError, Value p, Value t) { return square(p - t); }
Value value(AbsoluteError, Value p, Value t) { return abs(p - t); }
Value value(LogisticCrossEntropy, Value, Value) { return {}; }

/// The gradient that comes with the loss need not be written where elementwise operators read it, and neither need what they read be read
/// again for the loss.
template <class Loss>
Values pointwise(std::span<const Value> inputs, std::span<const Value>, const Attributes& attributes) {
  const Value p = inputs[0], t = inputs[1];
  const DType wide = is_half(p.dtype()) ? DType::f32 : p.dtype();
  Values spelled(2);
  if (!is_half(p.dtype())) spelled[1] = by_prediction(Loss{}, p, t) * share_of(attributes, p);
  if (reduction_of(attributes) == Reduction::none || !is_summed_at_once(p.type().elements())) return spelled;
  const Value values = value(Loss{}, cast(p, wide), cast(t, wide));
  if (!values) return spelled;
  // Of channels first, with which a bias's gradient is computed at once.
  Dims pixels{0};
  for (int axis = 2; axis < p.rank(); ++axis) pixels.push_back(axis);
  const bool has_channels = p.rank() >= 4 && p.dim(1) % 8 == 0;
  spelled[0] = cast(sum(has_channels ? sum(values, pixels) : values, {}) * share_of(attributes, p), t.dtype());
  return spelled;
}

std::vector<Sample> samples_with(Fill target) {
  const auto sample = [&](const Shape& shape, const char* reduction) {
    return Sample{.inputs = {shape, SampleInput(shape, target)}, .attributes = LossAttributes{reduction}};
  };
  Sample many = sample({3, 1401}, "mean");
  many.smooth = false;
  return {sample({7}, "mean"),
          sample({3, 5}, "sum"),
          sample({2, 3, 5}, "none"),
          sample({2, 3, 5, 2}, "none"),
          sample({2, 8, 3, 2}, "mean"),
          sample({}, "mean"),
          many,
          sample({0, 3}, "sum"),
          sample({0, 3}, "none")};
}

template <class Loss>
void add_loss(Registry& registry, const char* name, const char* prediction, const char* summary, Fill target) {
  registry.add<LossAttributes>({
      .name = name,
      .summary = summary,
      .inputs = {prediction, "target"},
      .outputs = {"loss", "unit_gradient"},  // unit_gradient: of the prediction, for an incoming gradient of 1
      .infer = infer,
      .gradient = gradient<Loss>,
      .pointwise = pointwise<Loss>,
      .precision = Precision::full,
      .any_precision = {0},
      .cpu = {.run = kernel<Loss>, .scratch = scratch, .any_layout_inputs = {0, 1}, .any_layout_outputs = {0, 1}, .one_layout = true},
      .in_place = {{1, 0}, {1, 1}},
      .samples = [target] { return samples_with(target); },
  });
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(elementwise_loss) {
  add_loss<SquaredError>(registry, "mean_squared_error", "prediction", "(prediction - target)^2, and its mean or sum", Fill::normal);
  add_loss<AbsoluteError>(registry, "l1_loss", "prediction", "|prediction - target|, and its mean or sum", Fill::normal);
  add_loss<LogisticCrossEntropy>(registry, "binary_cross_entropy_with_logits", "logits",
                                 "-target log(sigmoid(logits)) - (1 - target) log(1 - sigmoid(logits)), and its mean or sum", Fill::unit);
}
