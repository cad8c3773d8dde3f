#include "frit/ops/optimizer/optimizer_ops.h"

#include "frit/core/strided_loop.h"
#include "frit/ops/optimizer/update_functors.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

constexpr const char* no_gradient_of_updates = "an optimizer's update";

void require_type(const InferContext& call, std::size_t input, const TensorType& expected) {
  call.require(call.inputs[input] == expected, call.op.inputs[input].name, " is ", call.inputs[input], ", expected ", expected);
}

/// Inputs 1 and from 4 on have the parameter's type; rate and step are scalars.
std::vector<TensorType> infer_update(const InferContext& call) {
  require_type(call, 2, {DType::f64, {}});
  require_type(call, 3, {DType::i64, {}});
  require_type(call, 1, call.inputs[0]);
  for (std::size_t i = 4; i < call.inputs.size(); ++i) require_type(call, i, call.inputs[0]);
  return {};
}

void require_range(const InferContext& call, const char* option, double value, double end = HUGE_VAL) {
  call.require(value >= 0 && value < end, option, " is ", value, ", expected a number in [0, ", end, ')');
}

std::vector<TensorType> infer_sgd(const InferContext& call) {
  const auto& options = call.as<SgdOptions>();
  require_range(call, "momentum", options.momentum);
  require_range(call, "weight_decay", options.weight_decay);
  call.require(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "nesterov needs a momentum above 0 and no dampening");
  call.require(call.has(4) == (options.momentum != 0), "momentum_buffer is given exactly with a momentum, which is ", options.momentum);
  return infer_update(call);
}

std::vector<TensorType> infer_adam(const InferContext& call) {
  const auto& options = call.as<AdamOptions>();
  require_range(call, "beta1", options.beta1, 1);
  require_range(call, "beta2", options.beta2, 1);
  require_range(call, "eps", options.eps);
  require_range(call, "weight_decay", options.weight_decay);
  return infer_update(call);
}

template <class Body>
void for_each_element(const KernelContext& call, const Body& body) {
  parallel_for(call.inputs[0].elements(), elementwise_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

void sgd_kernel(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const SgdUpdate<T> update(call.as<SgdOptions>(), *call.inputs[2].data<double>(), *call.inputs[3].data<std::int64_t>());
    T* const parameter = call.inputs[0].data<T>();
    const T* const gradient = call.inputs[1].data<T>();
    if (call.has(4)) {
      T* const buffer = call.inputs[4].data<T>();
      for_each_element(call, [=](std::int64_t i) { update(parameter[i], buffer[i], gradient[i]); });
    } else {
      for_each_element(call, [=](std::int64_t i) { update(parameter[i], gradient[i]); });
    }
  });
}

void adam_kernel(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const AdamUpdate<T> update(call.as<AdamOptions>(), *call.inputs[2].data<double>(), *call.inputs[3].data<std::int64_t>());
    T* const parameter = call.inputs[0].data<T>();
    const T* const gradient = call.inputs[1].data<T>();
    T* const first_moment = call.inputs[4].data<T>();
    T* const second_moment = call.inputs[5].data<T>();
    for_each_element(call, [=](std::int64_t i) { update(parameter[i], first_moment[i], second_moment[i], gradient[i]); });
  });
}

std::vector<TensorType> infer_advance(const InferContext& call) {
  require_type(call, 0, {DType::i64, {}});
  return {};
}

void advance_kernel(const KernelContext& call) { ++*call.inputs[0].data<std::int64_t>(); }

/// Parameter, gradient, rate, step, and the buffers that the optimizer keeps.
Sample update_sample(const Shape& shape, std::initializer_list<Fill> buffers, Attributes options) {
  SampleInput rate({}, Fill::positive);
  rate.floating = false;
  rate.dtype = DType::f64;
  Sample sample{.inputs = {shape, shape, rate, SampleInput::indices({}, 3)}, .attributes = std::move(options)};
  for (const Fill fill : buffers) sample.inputs.push_back(SampleInput(shape, fill));
  return sample;
}

std::vector<Sample> sgd_samples() {
  return {
      update_sample({7}, {}, SgdOptions{}),
      update_sample({3, 5}, {}, SgdOptions{.weight_decay = 0.1}),
      update_sample({2, 3, 5}, {Fill::normal}, SgdOptions{.momentum = 0.9, .dampening = 0.2}),
      update_sample({1}, {Fill::normal}, SgdOptions{.momentum = 0.8, .weight_decay = 0.1, .nesterov = true}),
      update_sample({0, 3}, {}, SgdOptions{}),
  };
}

std::vector<Sample> adam_samples() {
  return {
      update_sample({7}, {Fill::normal, Fill::positive}, AdamOptions{}),
      update_sample({3, 5}, {Fill::normal, Fill::positive}, AdamOptions{.weight_decay = 0.1}),
      update_sample({2, 3, 5}, {Fill::normal, Fill::positive},
                    AdamOptions{.beta1 = 0.4, .beta2 = 0.9, .weight_decay = 0.1, .decoupled = true}),
      update_sample({1}, {Fill::zeros, Fill::zeros}, AdamOptions{.eps = 1e-3}),
      update_sample({0, 3}, {Fill::normal, Fill::positive}, AdamOptions{}),
  };
}

std::vector<Sample> advance_samples() {
  const auto sample = [](std::int64_t upper) { return Sample{.inputs = {SampleInput::indices({}, upper)}, .smooth = false}; };
  return {sample(1), sample(2), sample(100), sample(1'000'000)};
}

}  // namespace

void sgd_update(Value parameter, Value gradient, Value rate, Value step, Value momentum_buffer, const SgdOptions& options) {
  emit("sgd_update", {parameter, gradient, rate, step, momentum_buffer}, options);
}

void adam_update(Value parameter, Value gradient, Value rate, Value step, Value first_moment, Value second_moment,
                 const AdamOptions& options) {
  emit("adam_update", {parameter, gradient, rate, step, first_moment, second_moment}, options);
}

void advance(Value step) { emit("advance", {step}); }

}  // namespace frit::ops

FRIT_OPERATORS(optimizer_ops) {
  registry.add<SgdOptions>({
      .name = "sgd_update",
      .summary = "parameter -= rate * gradient, with momentum and weight decay (torch.optim.SGD)",
      .inputs = {"parameter", "gradient", "rate", "step", {"momentum_buffer", true}},
      .outputs = {},
      .infer = infer_sgd,
      .no_gradient = no_gradient_of_updates,
      .cpu = {sgd_kernel},
      .mutates = {0, 4},
      .samples = sgd_samples,
  });
  registry.add<AdamOptions>({
      .name = "adam_update",
      .summary = "parameter -= rate * mean / (sqrt(mean square) + eps) of the gradients so far (torch.optim.Adam, AdamW)",
      .inputs = {"parameter", "gradient", "rate", "step", "first_moment", "second_moment"},
      .outputs = {},
      .infer = infer_adam,
      .no_gradient = no_gradient_of_updates,
      .cpu = {adam_kernel},
      .mutates = {0, 4, 5},
      .samples = adam_samples,
  });
  registry.add<>({
      .name = "advance",
      .summary = "adds 1 to the count of updates",
      .inputs = {"step"},
      .outputs = {},
      .infer = infer_advance,
      .no_gradient = no_gradient_of_updates,
      .cpu = {advance_kernel},
      .dtypes = {DType::i64},
      .mutates = {0},
      .samples = advance_samples,
  });
}
