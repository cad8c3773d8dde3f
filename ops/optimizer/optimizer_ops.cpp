#include "frit/ops/optimizer/optimizer_ops.h"

#include "frit/core/communication/parts.h"
#include "frit/ops/cpu/elementwise.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/optimizer/update_functors.h"

namespace frit::ops {
namespace {

constexpr const char* no_gradient_of_updates = "an optimizer's update";

void require_type(const InferContext& call, std::size_t input, const TensorType& expected) {
  call.require(call.inputs[input] == expected, call.op.inputs[input].name, " is ", call.inputs[input], ", expected ", expected);
}

Parts parts_of(std::int64_t elements, const UpdatedPart& part) { return {elements, static_cast<int>(part.processes)}; }

/// The gradient and inputs from 5 on have the type of the parameter, or of the part of it that is updated, but for a gradient in halves of
/// a float32 parameter; rate, step and gradient_scale are scalars.
std::vector<TensorType> infer_update(const InferContext& call, const UpdatedPart& part) {
  call.require(part.rank >= 0 && part.rank < part.processes, "process ", part.rank, " of ", part.processes);
  require_type(call, 2, {DType::f64, {}});
  require_type(call, 3, {DType::i64, {}});
  require_type(call, 4, {call.inputs[0].dtype, {}});
  TensorType updated = call.inputs[0];
  if (part.processes > 1) updated.shape = {parts_of(updated.elements(), part).size(static_cast<int>(part.rank))};
  TensorType gradient = updated;
  if (gradient.dtype == DType::f32 && is_half(call.inputs[1].dtype)) gradient.dtype = call.inputs[1].dtype;
  require_type(call, 1, gradient);
  for (std::size_t i = 5; i < call.inputs.size(); ++i) require_type(call, i, updated);
  return {};
}

void require_range(const InferContext& call, const char* option, double value, double end = HUGE_VAL) {
  call.require(value >= 0 && value < end, option, " is ", value, ", expected a number in [0, ", end, ')');
}

std::vector<TensorType> infer_sgd(const InferContext& call) {
  const auto& [options, part] = call.as<UpdateAttributes<SgdOptions>>();
  require_range(call, "momentum", options.momentum);
  require_range(call, "weight_decay", options.weight_decay);
  call.require(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "nesterov needs a momentum above 0 and no dampening");
  call.require(call.has(5) == (options.momentum != 0), "momentum_buffer is given exactly with a momentum, which is ", options.momentum);
  return infer_update(call, part);
}

std::vector<TensorType> infer_adam(const InferContext& call) {
  const auto& [options, part] = call.as<UpdateAttributes<AdamOptions>>();
  require_range(call, "beta1", options.beta1, 1);
  require_range(call, "beta2", options.beta2, 1);
  require_range(call, "eps", options.eps);
  require_range(call, "weight_decay", options.weight_decay);
  return infer_update(call, part);
}

/// The first element that is updated.
template <class T>
T* updated(const KernelContext& call, const UpdatedPart& part) {
  return call.inputs[0].data<T>() + parts_of(call.inputs[0].elements(), part).begin(static_cast<int>(part.rank));
}

/// body(i, the scaled gradient) for each element, unless the update is skipped.
template <class T, class Body>
void for_each_element(const KernelContext& call, const Body& body) {
  const T scale = *call.inputs[4].data<T>();
  if (scale < 0) return;
  const T* const gradient = call.inputs[1].data<T>();
  parallel_for(call.inputs[1].elements(), elementwise_grain, [&](std::int64_t begin, std::int64_t end) {
    const Body own = body;  // no store can change it
    FRIT_INDEPENDENT_ITERATIONS
    for (std::int64_t i = begin; i < end; ++i) own(i, gradient[i] * scale);
  });
}

void sgd_kernel(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const auto& [options, part] = call.as<UpdateAttributes<SgdOptions>>();
    const SgdUpdate<T> update(options, *call.inputs[2].data<double>(), *call.inputs[3].data<std::int64_t>());
    T* const parameter = updated<T>(call, part);
    if (call.has(5)) {
      T* const buffer = call.inputs[5].data<T>();
      for_each_element<T>(call, [=](std::int64_t i, T gradient) { update(parameter[i], buffer[i], gradient); });
    } else {
      for_each_element<T>(call, [=](std::int64_t i, T gradient) { update(parameter[i], gradient); });
    }
  });
}

void adam_kernel(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const auto& [options, part] = call.as<UpdateAttributes<AdamOptions>>();
    const AdamUpdate<T> update(options, *call.inputs[2].data<double>(), *call.inputs[3].data<std::int64_t>());
    T* const parameter = updated<T>(call, part);
    T* const first_moment = call.inputs[5].data<T>();
    T* const second_moment = call.inputs[6].data<T>();
    for_each_element<T>(call, [=](std::int64_t i, T gradient) { update(parameter[i], first_moment[i], second_moment[i], gradient); });
  });
}

std::vector<TensorType> infer_advance(const InferContext& call) {
  require_type(call, 0, {DType::i64, {}});
  call.require(is_floating(call.inputs[1].dtype) && call.shape(1).empty(), "gradient_scale is ", call.inputs[1], ", expected a number");
  return {};
}

void advance_kernel(const KernelContext& call) {
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    if (!(*call.inputs[1].data<T>() < 0)) ++*call.inputs[0].data<std::int64_t>();
  });
}

std::vector<TensorType> infer_clear(const InferContext& call) {
  require_type(call, 1, {call.inputs[0].dtype, {}});
  return {};
}

void clear_kernel(const KernelContext& call) {
  if (!(call.inputs[1].item() < 0)) call.inputs[0].fill(0);
}

std::vector<Sample> clear_samples() {
  return {{.inputs = {Shape{3, 5}, {Shape{}, Fill::ones}}},
          {.inputs = {Shape{}, {Shape{}, Fill::zeros}}},
          {.inputs = {Shape{0, 2}, {Shape{}, Fill::positive}}},
          {.inputs = {Shape{777}, Shape{}}}};
}

/// Parameter, gradient, rate, step, gradient scale, and the buffers that the optimizer keeps.
template <class Options>
Sample update_sample(const Shape& shape, std::initializer_list<Fill> buffers, const Options& options, Fill scale = Fill::positive,
                     const UpdatedPart& updated = {}) {
  const Parts parts = parts_of(element_count(shape), updated);
  const Shape part = updated.processes > 1 ? Shape{parts.size(static_cast<int>(updated.rank))} : shape;
  Sample sample{.inputs = {shape, part, SampleInput::of(DType::f64, {}, Fill::positive), SampleInput::integers({}, 3), {{}, scale}},
                .attributes = UpdateAttributes<Options>{options, updated}};
  for (const Fill fill : buffers) sample.inputs.push_back(SampleInput(part, fill));
  return sample;
}

std::vector<Sample> sgd_samples() {
  return {
      update_sample({7}, {}, SgdOptions{}),
      update_sample({3, 5}, {}, SgdOptions{.weight_decay = 0.1}),
      update_sample({2, 3, 5}, {Fill::normal}, SgdOptions{.momentum = 0.9, .dampening = 0.2}),
      update_sample({1}, {Fill::normal}, SgdOptions{.momentum = 0.8, .weight_decay = 0.1, .nesterov = true}),
      update_sample({5}, {Fill::normal}, SgdOptions{.momentum = 0.8}, Fill::normal),
      update_sample({0, 3}, {}, SgdOptions{}),
      update_sample({6, 7}, {Fill::normal}, SgdOptions{.momentum = 0.9}, Fill::positive, {.rank = 1, .processes = 3}),
  };
}

std::vector<Sample> adam_samples() {
  return {
      update_sample({7}, {Fill::normal, Fill::positive}, AdamOptions{}),
      update_sample({3, 5}, {Fill::normal, Fill::positive}, AdamOptions{.weight_decay = 0.1}),
      update_sample({2, 3, 5}, {Fill::normal, Fill::positive},
                    AdamOptions{.beta1 = 0.4, .beta2 = 0.9, .weight_decay = 0.1, .decoupled = true}),
      update_sample({1}, {Fill::zeros, Fill::zeros}, AdamOptions{.eps = 1e-3}),
      update_sample({5}, {Fill::normal, Fill::positive}, AdamOptions{}, Fill::normal),
      update_sample({0, 3}, {Fill::normal, Fill::positive}, AdamOptions{}),
      update_sample({5, 7}, {Fill::normal, Fill::positive}, AdamOptions{}, Fill::positive, {.rank = 2, .processes = 3}),
      update_sample({5}, {Fill::normal, Fill::positive}, AdamOptions{}, Fill::positive, {.rank = 0, .processes = 2}),
  };
}

std::vector<Sample> advance_samples() {
  const auto sample = [](std::int64_t upper, Fill fill) {
    return Sample{.inputs = {SampleInput::integers({}, upper), SampleInput::of(DType::f32, {}, fill)}, .smooth = false};
  };
  return {sample(1, Fill::ones), sample(2, Fill::positive), sample(100, Fill::zeros), sample(1'000'000, Fill::normal)};
}

}  // namespace

void sgd_update(Value parameter, Value gradient, Value rate, Value step, Value gradient_scale, Value momentum_buffer,
                const SgdOptions& options, const UpdatedPart& part) {
  emit("sgd_update", {parameter, gradient, rate, step, gradient_scale, momentum_buffer}, UpdateAttributes<SgdOptions>{options, part});
}

void adam_update(Value parameter, Value gradient, Value rate, Value step, Value gradient_scale, Value first_moment, Value second_moment,
                 const AdamOptions& options, const UpdatedPart& part) {
  emit("adam_update", {parameter, gradient, rate, step, gradient_scale, first_moment, second_moment},
       UpdateAttributes<AdamOptions>{options, part});
}

void advance(Value step, Value gradient_scale) { emit("advance", {step, gradient_scale}); }

void clear(Value variable, Value gradient_scale) { emit("clear", {variable, gradient_scale}); }

}  // namespace frit::ops

FRIT_OPERATORS(optimizer_ops) {
  registry.add<UpdateAttributes<SgdOptions>>({
      .name = "sgd_update",
      .summary = "parameter -= rate * gradient, with momentum and weight decay (torch.optim.SGD)",
      .inputs = {"parameter", "gradient", "rate", "step", "gradient_scale", {"momentum_buffer", true}},
      .outputs = {},
      .infer = infer_sgd,
      .no_gradient = no_gradient_of_updates,
      .any_precision = {1},
      .cpu = {sgd_kernel},
      .mutates = {0, 5},
      .samples = sgd_samples,
  });
  registry.add<UpdateAttributes<AdamOptions>>({
      .name = "adam_update",
      .summary = "parameter -= rate * mean / (sqrt(mean square) + eps) of the gradients so far (torch.optim.Adam, AdamW)",
      .inputs = {"parameter", "gradient", "rate", "step", "gradient_scale", "first_moment", "second_moment"},
      .outputs = {},
      .infer = infer_adam,
      .no_gradient = no_gradient_of_updates,
      .any_precision = {1},
      .cpu = {adam_kernel},
      .mutates = {0, 5, 6},
      .samples = adam_samples,
  });
  registry.add<>({
      .name = "advance",
      .summary = "adds 1 to the count of updates",
      .inputs = {"step", "gradient_scale"},
      .outputs = {},
      .infer = infer_advance,
      .no_gradient = no_gradient_of_updates,
      .cpu = {advance_kernel},
      .dtypes = {DType::i64},
      .mutates = {0},
      .samples = advance_samples,
  });
  registry.add<>({
      .name = "clear",
      .summary = "fills a variable with zeros",
      .inputs = {"variable", "gradient_scale"},
      .outputs = {},
      .infer = infer_clear,
      .no_gradient = no_gradient_of_updates,
      .cpu = {.run = clear_kernel, .halves = true},
      .mutates = {0},
      .samples = clear_samples,
  });
}
