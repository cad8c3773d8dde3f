#include "frit/ops/random/dropout.h"

#include "frit/core/thread_pool.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/random/dropout_mask.h"

namespace frit::ops {
namespace {

/// Elements that one task handles; a multiple of 64.
constexpr std::int64_t grain = 16384;

void require_probability(const InferContext& call, double probability) {
  call.require(probability >= 0 && probability <= 1, "probability must be from 0 to 1, got ", probability);
}

std::vector<TensorType> infer(const InferContext& call) {
  require_probability(call, call.as<DropoutAttributes>().probability);
  const TensorType counter{DType::i64, {}};
  call.require(call.inputs[1] == counter, "counter must be ", counter, ", got ", call.inputs[1]);
  return {call.inputs[0], {DType::u8, call.shape(0)}};
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  require_probability(call, call.as<DropoutBackwardAttributes>().probability);
  const TensorType mask{DType::u8, call.shape(0)};
  call.require(call.inputs[1] == mask, "mask must be ", mask, ", got ", call.inputs[1]);
  return {call.inputs[0]};
}

Values gradient_through(Value gradient, Value mask, double probability) {
  if (!gradient) return {Value{}, Value{}};
  return {emit_one("dropout_backward", {gradient, mask}, DropoutBackwardAttributes{probability}), Value{}};
}

Values gradient(const GradientContext& c) { return gradient_through(c.gradients[0], c.outputs[1], c.as<DropoutAttributes>().probability); }

Values gradient_of_backward(const GradientContext& c) {
  return gradient_through(c.gradients[0], c.inputs[1], c.as<DropoutBackwardAttributes>().probability);
}

Values at_inference(Emitter&, std::span<const Value> inputs, const Attributes&) { return {inputs[0], Value{}}; }

template <class T>
void drop(T* y, const T* x, const std::uint8_t* mask, std::int64_t count, Drop<T> function) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = function(x[i], mask[i]);
}

template <class T>
void run_typed(const KernelContext& call, const DropoutMask& dropout) {
  const Drop<T> function(call.as<DropoutAttributes>().probability);
  const T* const x = call.inputs[0].data<T>();
  T* const y = call.outputs[0].defined() ? call.outputs[0].data<T>() : nullptr;
  std::uint8_t* const mask = call.outputs[1].defined() ? call.outputs[1].data<std::uint8_t>() : nullptr;
  constexpr std::int64_t block = 64;
  parallel_for(call.inputs[0].elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += block) {
      std::array<std::uint8_t, block> kept;
      for (std::int64_t i = 0; i < block; i += 4) {
        const std::array<std::uint8_t, 4> quad = dropout.quad(static_cast<std::uint64_t>((first + i) / 4));
        std::copy(quad.begin(), quad.end(), kept.begin() + i);
      }
      const std::int64_t count = std::min(block, end - first);
      if (y != nullptr) drop(y + first, x + first, kept.data(), count, function);
      if (mask != nullptr) std::copy_n(kept.begin(), count, mask + first);
    }
  });
}

void run(const KernelContext& call) {
  const DropoutAttributes& attributes = call.as<DropoutAttributes>();
  std::int64_t& counter = *call.inputs[1].data<std::int64_t>();
  const DropoutMask mask(static_cast<std::uint64_t>(attributes.seed), static_cast<std::uint64_t>(counter), attributes.probability);
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() { run_typed<T>(call, mask); });
  ++counter;
}

void run_backward(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const T* const g = call.inputs[0].data<T>();
    const std::uint8_t* const mask = call.inputs[1].data<std::uint8_t>();
    T* const dx = call.outputs[0].data<T>();
    const Drop<T> function(call.as<DropoutBackwardAttributes>().probability);
    parallel_for(call.inputs[0].elements(), grain,
                 [&](std::int64_t begin, std::int64_t end) { drop(dx + begin, g + begin, mask + begin, end - begin, function); });
  });
}

Sample sample(const Shape& input, DropoutAttributes attributes) {
  return {.inputs = {input, SampleInput::integers({}, 7)}, .attributes = attributes};
}

Sample backward_sample(const Shape& gradient, double probability) {
  return {.inputs = {gradient, SampleInput::integers(gradient, 2, DType::u8)}, .attributes = DropoutBackwardAttributes{probability}};
}

}  // namespace
}  // namespace frit::ops

namespace frit {

Value dropout(Value input, Value counter, double probability, std::uint64_t seed) {
  return ops::emit_one("dropout", {input, counter},
                       ops::DropoutAttributes{.probability = probability, .seed = static_cast<std::int64_t>(seed)});
}

}  // namespace frit

FRIT_OPERATORS(dropout) {
  registry.add<DropoutAttributes>({
      .name = "dropout",
      .summary = "x / (1 - probability) where a random mask keeps it, otherwise 0",
      .inputs = {"input", "counter"},
      .outputs = {"output", "mask"},
      .infer = infer,
      .gradient = gradient,
      .at_inference = at_inference,
      .cpu = {.run = run},
      .in_place = {{0, 0}},
      .mutates = {1},
      .samples =
          [] {
            return std::vector<Sample>{sample({2, 3}, {.probability = 0.5, .seed = 1}),
                                       sample({37}, {.probability = 0.2, .seed = -5}),
                                       sample({1, 2, 3, 5}, {.probability = 0}),
                                       sample({7}, {.probability = 1}),
                                       sample({0, 3}, {}),
                                       sample({1}, {.probability = 0.1, .seed = 3})};
          },
  });
  registry.add<DropoutBackwardAttributes>({
      .name = "dropout_backward",
      .summary = "gradient / (1 - probability) where the mask is 1, otherwise 0",
      .inputs = {"gradient", "mask"},
      .infer = infer_backward,
      .gradient = gradient_of_backward,
      .cpu = {.run = run_backward},
      .in_place = {{0, 0}},
      .samples =
          [] {
            return std::vector<Sample>{backward_sample({2, 3}, 0.5), backward_sample({17}, 0.25), backward_sample({1}, 0),
                                       backward_sample({3}, 1), backward_sample({0, 2}, 0.5)};
          },
  });
}
