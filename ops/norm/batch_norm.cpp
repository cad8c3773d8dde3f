#include "frit/core/communication/communicator.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_core.h"
#include "frit/ops/norm/shared_slices.h"
#include "frit/ops/norm/synchronized.h"
#include "frit/ops/shape/image_axes.h"

namespace frit {

Value batch_norm(Value input, Value weight, Value bias, Value running_mean, Value running_variance, const BatchNormOptions& options) {
  return ops::emit_one("batch_norm", {input, weight, bias, running_mean, running_variance},
                       ops::BatchNormAttributes{.eps = options.eps, .momentum = options.momentum});
}

namespace ops {

NormGeometry norm_geometry(const Shape& input, const BatchNormAttributes& attributes) {
  NormGeometry geometry = batch_geometry(input[0], input[1], elements_from(input, 2));
  geometry.fixed_statistics = !attributes.training;
  return geometry;
}

namespace {

void check(const InferContext& call, const Shape& input, const BatchNormAttributes& attributes) {
  call.require(input.rank() >= 2, "expected input (N, C, ...), got ", input);
  call.require(!attributes.training || input[0] * elements_from(input, 2) != 1,
               "expected more than 1 value per channel when training, got input ", input);
}

std::vector<TensorType> infer(const InferContext& call) {
  const BatchNormAttributes& attributes = call.as<BatchNormAttributes>();
  check(call, call.shape(0), attributes);
  require_eps(call, attributes.eps);
  call.require(attributes.momentum >= 0 && attributes.momentum <= 1, "momentum must be from 0 to 1, got ", attributes.momentum);
  const DType dtype = call.inputs[0].dtype;
  for (std::size_t i = 1; i < 5; ++i) {
    // Running statistics of half data may be kept in f32, so that small updates are not lost.
    const bool wide = i >= 3 && is_half(dtype) && call.inputs[i].dtype == DType::f32;
    require_parameter(call, 0, i, {call.shape(0)[1]}, wide ? DType::f32 : dtype);
  }
  return norm_types(call, norm_geometry(call.shape(0), attributes));
}

/// With the running statistics, in their dtype.
ChannelAffine channel_affine(std::span<const Value> inputs, const Attributes& attributes) {
  const Value running_mean = inputs[3], running_variance = inputs[4];
  const DType dtype = inputs[0].dtype(), wide = running_mean.dtype();
  const Value factor = cast(inputs[1], wide) / sqrt(running_variance + attributes.as<BatchNormAttributes>().eps);
  return {cast(factor, dtype), cast(cast(inputs[2], wide) - running_mean * factor, dtype)};
}

Values at_inference(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const ChannelAffine affine = channel_affine(inputs, attributes);
  const int rank = inputs[0].rank();
  return {inputs[0] * along_channels(affine.factor, rank) + along_channels(affine.addend, rank), {}, {}};
}

/// What normalises a channel; updates its running statistics.
template <class T>
struct BatchRule {
  const BatchNormAttributes& attributes;
  T *running_mean, *running_variance;

  explicit BatchRule(const KernelContext& call)
      : attributes(call.as<BatchNormAttributes>()), running_mean(call.inputs[3].data<T>()), running_variance(call.inputs[4].data<T>()) {}

  SliceStatistics operator()(std::int64_t channel, const Moments& moments) const {
    const auto update = [&](T& running, double found) {
      running = static_cast<T>((1 - attributes.momentum) * static_cast<double>(running) + attributes.momentum * found);
    };
    T &mean = running_mean[channel], &variance = running_variance[channel];
    if (!attributes.training) {
      return statistics_of({.mean = static_cast<double>(mean), .variance = static_cast<double>(variance)}, attributes.eps);
    }
    if (moments.count > 1) {  // an empty batch leaves them as they are
      const double count = static_cast<double>(moments.count);
      update(mean, moments.mean);
      update(variance, moments.variance * (count / (count - 1)));
    }
    return statistics_of(moments, attributes.eps);
  }
};

void run(const KernelContext& call, const Stages* stages, const NormGeometry& geometry) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() { run_norm(call, stages, geometry, BatchRule<T>(call)); });
}

void run_synchronized(const KernelContext& call, const Stages* stages, NormGeometry geometry) {
  const SharedSlices shared(call, 0);
  const KernelContext rest = shared.rest_of(call);
  const std::vector<Tensor> unread(call.outputs.size());
  geometry.fixed_statistics = false;
  run_norm({call.op, call.attributes, call.inputs, unread, rest.scratch}, nullptr, geometry, [&](std::int64_t slice, const Moments& own) {
    const SliceStatistics statistics = statistics_of(own, /*eps=*/0);
    shared.set_own(slice, statistics.mean, statistics.rstd);
    return statistics;
  });
  const ProcessPairs pairs = shared.gather();
  geometry.fixed_statistics = true;
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    run_norm(rest, stages, geometry, [&, rule = BatchRule<T>(call)](std::int64_t slice, const Moments&) {
      return rule(slice, moments_of_all(pairs, slice, geometry.slice_elements()));
    });
  });
}

void run_synchronized_backward(const KernelContext& call, const Stages* stages, const NormGeometry& geometry) {
  const SharedSlices shared(call, 1);
  run_norm_backward(shared.rest_of(call), stages, geometry, &shared);
}

Sample sample(const Shape& input, const BatchNormAttributes& attributes = {}) {
  const Shape channels{input[1]};
  return {.inputs = {input, channels, channels, channels, {channels, Fill::positive}},
          .attributes = attributes,
          .smooth = element_count(input) < most_smooth_elements};
}

std::vector<Sample> samples() {
  return {sample({3, 2, 4}),
          sample({2, 3, 3, 2}, {.eps = 0.1, .momentum = 0.3}),
          sample({1, 2, 1, 3, 3}),
          sample({5, 3}),
          sample({2, 1, 1}, {.eps = 0.5}),
          sample({2, 2, 19}),
          sample({2, 8, 5, 7}),
          sample({3, 24, 1, 2}, {.momentum = 0.3}),
          sample({1, 520, 1, 3, 1}),
          sample({2, 8, 65, 65}),    // more than a block of a device takes at once
          sample({1, 2, 257, 257}),  // or than a cluster of blocks
          sample({0, 2, 3}),
          sample({2, 3, 2, 2}, {.training = false}),
          sample({2, 16, 3, 2}, {.training = false}),
          sample({1, 3}, {.training = false}),
          sample({0, 2, 3}, {.training = false})};
}

std::vector<Sample> training_samples() {
  std::vector<Sample> result = samples();
  std::erase_if(result, [](const Sample& sample) { return !sample.attributes.as<BatchNormAttributes>().training; });
  return result;
}

/// As an operator of this name.
Operator entry(const char* name, const char* summary, Kernel cpu) {
  return {.name = name,
          .summary = summary,
          .inputs = {"input", "weight", "bias", "running_mean", "running_variance"},
          .infer = infer,
          .at_inference = at_inference,
          .channel_affine_at_inference = channel_affine,
          .cpu = std::move(cpu),
          .mutates = {3, 4},
          .samples = samples};
}

}  // namespace

std::optional<OperatorCall> synchronized(const OperatorCall& call, const Communicator& communicator) {
  if (call.op->name != "batch_norm") return std::nullopt;
  BatchNormAttributes attributes = call.attributes.as<BatchNormAttributes>();
  if (!attributes.training) return std::nullopt;
  attributes.communicator = communicator.id();
  return OperatorCall{&registry().find("synchronized_batch_norm"), attributes};
}

}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(batch_norm) {
  const Norm<BatchNormAttributes> norm{check};
  const auto geometry = geometry_of<BatchNormAttributes>;
  norm.add_to(registry, entry("batch_norm",
                              "(x - mean) * rstd * weight + bias over each channel of the batch; at inference with the running statistics",
                              norm_kernel(geometry, run)));
  Operator synchronized_entry = entry("synchronized_batch_norm", "batch_norm over the batches of all processes of a communicator together",
                                      with_shared_slices(norm_kernel(geometry, run_synchronized), 0));
  synchronized_entry.collective = true;
  synchronized_entry.samples = training_samples;
  norm.add_to(registry, std::move(synchronized_entry), with_shared_slices(norm_backward_kernel(geometry, run_synchronized_backward), 1));
}
