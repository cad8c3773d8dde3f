#include "frit/ops/optimizer/loss_scale.h"

#include "frit/ops/operator/operator.h"
#include "frit/ops/optimizer/optimizer_ops.h"

namespace frit::ops {
namespace {

std::vector<TensorType> infer_loss_scale(const InferContext& call) {
  const auto& attributes = call.as<LossScaleAttributes>();
  const double max_norm = attributes.max_norm.value_or(0);
  call.require(max_norm >= 0, "max_norm is ", max_norm, ", expected a number from 0 on");
  call.require(attributes.growth_interval > 0, "growth_interval is ", attributes.growth_interval, ", expected 1 or more");
  const TensorType& norm = call.inputs[0];
  call.require(norm.shape.empty(), "norm must be a scalar, got ", norm.shape);
  call.require(call.inputs[1] == norm, "loss_scale is ", call.inputs[1], ", norm is ", norm);
  call.require(call.inputs[2] == TensorType{DType::i64, {}}, "good_steps is ", call.inputs[2], ", expected one i64");
  return {norm};
}

void run_loss_scale(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const LossScaleStep<T> step(call.as<LossScaleAttributes>());
    const T scale = step(*call.inputs[0].data<T>(), *call.inputs[1].data<T>(), *call.inputs[2].data<std::int64_t>());
    if (call.outputs[0].defined()) *call.outputs[0].data<T>() = scale;
  });
}

std::vector<Sample> loss_scale_samples() {
  const auto sample = [](const LossScaleAttributes& attributes) {
    return Sample{.inputs = {SampleInput({}, Fill::positive), SampleInput({}, Fill::positive), SampleInput::integers({}, 4)},
                  .attributes = attributes};
  };
  return {sample({}), sample({.max_norm = 0.3}), sample({.growth_interval = 1}), sample({.max_norm = 100, .growth_interval = 2})};
}

}  // namespace

Value update_loss_scale(Value norm, Value loss_scale, Value good_steps, std::optional<double> max_norm) {
  return emit_one("update_loss_scale", {norm, loss_scale, good_steps}, LossScaleAttributes{.max_norm = max_norm});
}

}  // namespace frit::ops

FRIT_OPERATORS(loss_scale) {
  registry.add<LossScaleAttributes>({
      .name = "update_loss_scale",
      .summary = "min(1, max_norm / (norm / loss_scale)) / loss_scale, and -1 where norm is not finite; moves loss_scale",
      .inputs = {"norm", "loss_scale", "good_steps"},
      .outputs = {"gradient_scale"},
      .infer = infer_loss_scale,
      .no_gradient = "an optimizer's update",
      .cpu = {run_loss_scale},
      .dtypes = {DType::f64, DType::f32},
      .mutates = {1, 2},
      .samples = loss_scale_samples,
  });
}
