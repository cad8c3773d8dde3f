#include "frit/core/strided_loop.h"
#include "frit/ops/cpu/elementwise.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/loss/loss_functors.h"
#include "frit/ops/loss/loss_reduction.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/sum_tile.h"

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
void require_fitting_types(const InferContext& call, std::size_t prediction) {
  const TensorType& a = call.inputs[prediction];
  const TensorType& b = call.inputs[prediction + 1];
  const bool compatible = a.dtype == b.dtype || (is_half(a.dtype) && b.dtype == DType::f32);
  call.require(compatible && a.shape == b.shape, call.op.inputs[prediction].name, " is ", a, ", target is ", b);
}

std::vector<TensorType> infer(const InferContext& call) {
  require_fitting_types(call, 0);
  return {{call.inputs[1].dtype, loss_shape(call.attributes, call.shape(0))}, call.inputs[0]};
}

ReductionPlan plan_of(std::int64_t elements) { return {{elements}, {0}}; }

std::size_t scratch(const InferContext& call) { return plan_of(call.inputs[0].elements()).scratch_bytes(sizeof(SumTile<double>)); }

/// by_prediction[i] and by_target[i], unless they are null, for begin <= i < end; they may be p or t. scale(i) is the gradient that comes
/// in.
template <class Loss, class T, class Scale>
void write_gradients(T* by_prediction, T* by_target, const T* p, const T* t, std::int64_t begin, std::int64_t end, const Scale& scale) {
  FRIT_INDEPENDENT_ITERATIONS
  for (std::int64_t i = begin; i < end; ++i) {
    const T prediction = p[i], target = t[i], factor = scale(i);
    if (by_prediction != nullptr) by_prediction[i] = Loss::by_prediction(prediction, target) * factor;
    if (by_target != nullptr) by_target[i] = Loss::by_target(prediction, target) * factor;
  }
}

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
    const auto write_unit_gradient = [&](std::int64_t begin, std::int64_t end) {
      const T share = 1 / static_cast<T>(divisor);
      if (unit_gradient) write_gradients<Loss, T>(unit_gradient, nullptr, p, t, begin, end, [=](std::int64_t) { return share; });
    };
    if (reduction == Reduction::none) {
      parallel_for(elements, elementwise_grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end && y != nullptr; ++i) y[i] = Loss::value(p[i], t[i]);
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

/// A loss of one value comes with its gradient for an incoming 1, so that prediction and target are read once. Not in halves: a mean's
/// share of an element may vanish in them, which the scaling of the loss is there to prevent, and then the scale must come first.
template <class Loss>
Values gradient(const char* backward, const GradientContext& call) {
  require(!call.gradients[1], "gradient: the gradient of a loss is not differentiable");
  const Value incoming = call.gradients[0];
  if (!incoming) return Values(2);
  const bool in_pass = reduction_of(call.attributes) != Reduction::none && !is_half(call.inputs[0].dtype());
  if (in_pass && (Loss::antisymmetric || !call.wanted[1])) {
    const Value by_prediction = call.outputs[1] * incoming;
    return {call.wanted[0] ? by_prediction : Value{}, call.wanted[1] ? -by_prediction : Value{}};
  }
  const Values results = emit(backward, {incoming, call.inputs[0], call.inputs[1]}, call.attributes);
  return {call.wanted[0] ? results[0] : Value{}, call.wanted[1] ? results[1] : Value{}};
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  require_fitting_types(call, 1);
  const TensorType &prediction = call.inputs[1], &target = call.inputs[2];
  const TensorType expected{target.dtype, loss_shape(call.attributes, prediction.shape)};
  call.require(call.inputs[0] == expected, "gradient is ", call.inputs[0], ", expected ", expected);
  return {prediction, target};
}

/// Either result may be undefined.
template <class Loss>
void backward_kernel(const KernelContext& call) {
  const Reduction reduction = reduction_of(call.attributes);
  const std::int64_t elements = call.inputs[1].elements();
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    const T* const gradient = call.inputs[0].data<T>();
    const T* const p = call.inputs[1].data<T>();
    const T* const t = call.inputs[2].data<T>();
    T* const by_prediction = data_or_null<T>(call.outputs[0]);
    T* const by_target = data_or_null<T>(call.outputs[1]);
    const T divisor = reduction == Reduction::mean ? static_cast<T>(elements) : T{1};
    parallel_for(elements, elementwise_grain, [&](std::int64_t begin, std::int64_t end) {
      if (reduction == Reduction::none) {
        write_gradients<Loss>(by_prediction, by_target, p, t, begin, end, [=](std::int64_t i) { return gradient[i]; });
      } else {
        write_gradients<Loss>(by_prediction, by_target, p, t, begin, end, [share = gradient[0] / divisor](std::int64_t) { return share; });
      }
    });
  });
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

std::vector<Sample> backward_samples_with(Fill target) {
  std::vector<Sample> samples = samples_with(target);
  for (Sample& sample : samples) {
    sample.inputs.insert(sample.inputs.begin(), SampleInput(loss_shape(sample.attributes, sample.inputs[0].shape)));
  }
  return samples;
}

template <class Loss>
void add_loss(Registry& registry, const char* name, const char* prediction, const char* summary, Fill target) {
  const std::string backward = std::string(name) + "_backward";
  registry.add<LossAttributes>({
      .name = name,
      .summary = summary,
      .inputs = {prediction, "target"},
      .outputs = {"loss", "unit_gradient"},  // unit_gradient: of the prediction, for an incoming gradient of 1
      .infer = infer,
      .gradient = [backward](const GradientContext& call) { return gradient<Loss>(backward.c_str(), call); },
      .precision = Precision::full,
      .any_precision = {0},
      .cpu = {.run = kernel<Loss>, .scratch = scratch},
      .in_place = {{1, 0}, {1, 1}},
      .samples = [target] { return samples_with(target); },
  });
  registry.add<LossAttributes>({
      .name = backward,
      .summary = std::string("the gradients of ") + name,
      .inputs = {"gradient", prediction, "target"},
      .outputs = {"prediction_gradient", "target_gradient"},
      .infer = infer_backward,
      .no_gradient = "not differentiable twice",
      .cpu = {backward_kernel<Loss>},
      .in_place = {{0, 1}, {0, 2}, {1, 2}, {1, 1}},
      .samples = [target] { return backward_samples_with(target); },
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
