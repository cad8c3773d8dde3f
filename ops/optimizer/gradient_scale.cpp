#include "frit/ops/optimizer/gradient_scale.h"

#include "frit/ops/operator/operator.h"
#include "frit/ops/optimizer/optimizer_ops.h"

namespace frit::ops {
namespace {

void require_max_norm(const InferContext& call, std::optional<double> max_norm) {
  call.require(max_norm.value_or(0) >= 0, "max_norm is ", max_norm.value_or(0), ", expected a number from 0 on");
}

/// Of a norm, a number of its dtype, and a count.
std::vector<TensorType> infer_scale(const InferContext& call) {
  const TensorType& norm = call.inputs[0];
  call.require(norm.shape.empty(), "norm must be a scalar, got ", norm.shape);
  call.require(call.inputs[1] == norm, call.op.inputs[1].name, " is ", call.inputs[1], ", norm is ", norm);
  call.require(call.inputs[2] == TensorType{DType::i64, {}}, call.op.inputs[2].name, " is ", call.inputs[2], ", expected one i64");
  return {norm};
}

std::vector<TensorType> infer_guard(const InferContext& call) {
  require_max_norm(call, call.as<GuardAttributes>().max_norm);
  return infer_scale(call);
}

std::vector<TensorType> infer_loss_scale(const InferContext& call) {
  const auto& [max_norm, growth_interval] = call.as<LossScaleAttributes>();
  require_max_norm(call, max_norm);
  call.require(growth_interval > 0, "growth_interval is ", growth_interval, ", expected 1 or more");
  return infer_scale(call);
}

template <template <class> class Step>
void run_step(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const Step<T> step(call.as<typename Step<T>::Attributes>());
    const T scale = step(*call.inputs[0].data<T>(), *call.inputs[1].data<T>(), *call.inputs[2].data<std::int64_t>());
    if (call.outputs[0].defined()) *call.outputs[0].data<T>() = scale;
  });
}

std::vector<Sample> guard_samples() {
  const auto sample = [](std::int64_t failures, const GuardAttributes& attributes) {
    return Sample{.inputs = {SampleInput({}, Fill::positive), SampleInput({}, Fill::normal), SampleInput::integers({}, failures)},
                  .attributes = attributes};
  };
  return {sample(1, {}), sample(1, {.max_norm = 0.3}), sample(1, {.max_norm = 100}), sample(50, {})};
}

std::vector<Sample> loss_scale_samples() {
  const auto sample = [](const LossScaleAttributes& attributes) {
    return Sample{.inputs = {SampleInput({}, Fill::positive), SampleInput({}, Fill::positive), SampleInput::integers({}, 4)},
                  .attributes = attributes};
  };
  return {sample({}), sample({.max_norm = 0.3}), sample({.growth_interval = 1}), sample({.max_norm = 100, .growth_interval = 2})};
}

}  // namespace

Value guard_update(Value norm, Value loss, Value failures, std::optional<double> max_norm) {
  return emit_one("guard_update", {norm, loss, failures}, GuardAttributes{max_norm});
}

Value update_loss_scale(Value norm, Value loss_scale, Value good_steps, std::optional<double> max_norm) {
  return emit_one("update_loss_scale", {norm, loss_scale, good_steps}, LossScaleAttributes{.max_norm = max_norm});
}

}  // namespace frit::ops

FRIT_OPERATORS(gradient_scale) {
  registry.add<GuardAttributes>({
      .name = "guard_update",
      .summary = "min(1, max_norm / norm), and -1 from the first time on that norm or loss is not finite; counts those in failures",
      .inputs = {"norm", "loss", "failures"},
      .outputs = {"gradient_scale"},
      .infer = infer_guard,
      .no_gradient = "an optimizer's update",
      .cpu = {run_step<Guard>},
      .mutates = {2},
      .samples = guard_samples,
  });
  registry.add<LossScaleAttributes>({
      .name = "update_loss_scale",
      .summary = "min(1, max_norm / (norm / loss_scale)) / loss_scale, and -1 where norm is not finite; moves loss_scale",
      .inputs = {"norm", "loss_scale", "good_steps"},
      .outputs = {"gradient_scale"},
      .infer = infer_loss_scale,
      .no_gradient = "an optimizer's update",
      .cpu = {run_step<LossScaleStep>},
      .dtypes = {DType::f64, DType::f32},
      .mutates = {1, 2},
      .samples = loss_scale_samples,
  });
}
