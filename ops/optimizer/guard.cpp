#include "frit/ops/optimizer/guard.h"

#include "frit/ops/operator/operator.h"
#include "frit/ops/optimizer/optimizer_ops.h"

namespace frit::ops {
namespace {

std::vector<TensorType> infer_guard(const InferContext& call) {
  const double max_norm = call.as<GuardAttributes>().max_norm.value_or(0);
  call.require(max_norm >= 0, "max_norm is ", max_norm, ", expected a number from 0 on");
  const TensorType& norm = call.inputs[0];
  call.require(norm.shape.empty(), "norm must be a scalar, got ", norm.shape);
  call.require(call.inputs[1] == norm, "loss is ", call.inputs[1], ", norm is ", norm);
  call.require(call.inputs[2] == TensorType{DType::i64, {}}, "failures is ", call.inputs[2], ", expected one i64");
  return {norm};
}

void run_guard(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const Guard<T> guard(call.as<GuardAttributes>());
    const T scale = guard(*call.inputs[0].data<T>(), *call.inputs[1].data<T>(), *call.inputs[2].data<std::int64_t>());
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

}  // namespace

Value guard_update(Value norm, Value loss, Value failures, std::optional<double> max_norm) {
  return emit_one("guard_update", {norm, loss, failures}, GuardAttributes{max_norm});
}

}  // namespace frit::ops

FRIT_OPERATORS(guard) {
  registry.add<GuardAttributes>({
      .name = "guard_update",
      .summary = "min(1, max_norm / norm), and -1 from the first time on that norm or loss is not finite; counts those in failures",
      .inputs = {"norm", "loss", "failures"},
      .outputs = {"gradient_scale"},
      .infer = infer_guard,
      .no_gradient = "an optimizer's update",
      .cpu = {run_guard},
      .mutates = {2},
      .samples = guard_samples,
  });
}
