#include "frit/ops/elementwise/activation.h"

#include <cmath>
#include <numbers>

#include "frit/ops/elementwise/activation_functors.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/pointwise.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/operator/spelling.h"
#include "frit/ops/shape/image_axes.h"

namespace frit {

Value clamp(Value x, std::optional<double> min, std::optional<double> max) {
  return ops::emit_one("clamp", {x}, ops::ClampAttributes{min, max});
}
Value relu(Value x) { return ops::emit_one("relu", {x}); }
Value leaky_relu(Value x, double negative_slope) { return ops::emit_one("leaky_relu", {x}, ops::LeakyReluAttributes{negative_slope}); }
Value elu(Value x, double alpha) { return ops::emit_one("elu", {x}, ops::EluAttributes{alpha}); }
Value gelu(Value x, GeluForm form) { return ops::emit_one("gelu", {x}, ops::GeluAttributes{form == GeluForm::tanh ? "tanh" : "none"}); }
Value sigmoid(Value x) { return ops::emit_one("sigmoid", {x}); }
Value tanh(Value x) { return ops::emit_one("tanh", {x}); }
Value silu(Value x) { return ops::emit_one("silu", {x}); }
Value mish(Value x) { return ops::emit_one("mish", {x}); }
Value softplus(Value x, double beta, double threshold) { return ops::emit_one("softplus", {x}, ops::SoftplusAttributes{beta, threshold}); }
Value hard_sigmoid(Value x) { return ops::emit_one("hard_sigmoid", {x}); }
Value hard_swish(Value x) { return ops::emit_one("hard_swish", {x}); }

Value prelu(Value x, Value weight) {
  const std::int64_t channels = x.rank() < 2 ? 1 : x.dim(1);
  require(weight.rank() == 1 && (weight.dim(0) == 1 || weight.dim(0) == channels), "prelu: weight must have shape 1 or ", channels,
          ", got ", weight.shape(), " (input ", x.shape(), ")");
  const Value positive = greater(x, 0.0);
  return where(positive, x, ops::along_channels(weight, x.rank()) * where(positive, 0.0, x));  // no infinity times 0 in the gradient
}

namespace ops {
namespace {

std::vector<TensorType> infer_clamp(const InferContext& call) {
  const auto& bounds = call.as<ClampAttributes>();
  call.require(bounds.min || bounds.max, "at least one of min and max is needed");
  return infer_same(call);
}

std::vector<TensorType> infer_gelu(const InferContext& call) {
  const std::string& form = call.as<GeluAttributes>().approximate;
  call.require(form == "none" || form == "tanh", "approximate is \"none\" or \"tanh\", got \"", form, "\"");
  return infer_same(call);
}

std::function<std::optional<Activation>(const Attributes&)> always(Activation activation) {
  return [activation](const Attributes&) { return activation; };
}

/// Libraries have no rectifier without a lower bound, nor agree on what one with bounds in the wrong order is.
std::optional<Activation> clamp_activation(const Attributes& attributes) {
  const auto& [min, max] = attributes.as<ClampAttributes>();
  const Activation bounded{.low = min.value_or(-INFINITY), .high = max.value_or(INFINITY)};
  return std::isfinite(bounded.low) && bounded.low <= bounded.high ? std::optional(bounded) : std::nullopt;
}

std::optional<Activation> leaky_relu_activation(const Attributes& attributes) {
  return Activation{.slope = attributes.as<LeakyReluAttributes>().negative_slope};
}

std::optional<Activation> elu_activation(const Attributes& attributes) {
  return Activation{.kind = Activation::elu, .alpha = attributes.as<EluAttributes>().alpha};
}

std::optional<Activation> gelu_activation(const Attributes& attributes) {
  return Activation{.kind = attributes.as<GeluAttributes>().approximate == "tanh" ? Activation::gelu_tanh : Activation::gelu};
}

/// From the output, which has the input's sign: then the input need not be kept. Only a negative slope changes signs.
Values leaky_relu_gradient(const GradientContext& c) {
  const bool keeps_sign = c.as<LeakyReluAttributes>().negative_slope >= 0;
  return {emit_one("leaky_relu_backward", {c.gradients[0], keeps_sign ? c.outputs[0] : c.inputs[0]}, c.attributes)};
}

// Functions as programs and files spell them that do not have them.

using Function = Value (*)(Value);

DecomposeRule spelled(Function function) {
  return [function](Emitter&, std::span<const Value> inputs, const Attributes&) -> Values { return {function(inputs[0])}; };
}

/// For Operator::fuse.
template <class A = NoAttributes>
std::optional<Attributes> with_defaults(std::span<const Attributes>, std::span<const TensorType>) {
  return A{};
}

/// What gelu multiplies by: twice the normal distribution function, or its approximation.
Value gate_with_erf(Value x) { return erf(x / std::numbers::sqrt2) + 1.0; }
Value gate_with_tanh(Value inner) { return tanh(inner) + 1.0; }
constexpr double gelu_scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, gelu_cubic = 0.044715;  // sqrt(2 / pi)

/// The form with erf in PyTorch's order.
Values spelled_gelu(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const Value x = inputs[0];
  if (attributes.as<GeluAttributes>().approximate == "none") return {x * gate_with_erf(x) * 0.5};
  return {0.5 * x * gate_with_tanh(gelu_scale * (x + gelu_cubic * x * x * x))};
}

/// Those that PyTorch's exporters, frit's and people's modules write: of the gate, each with the products in all orders.
void add_gelu_spellings() {
  const std::pair<const char*, Function> gates[] = {
      {"none", gate_with_erf},
      {"none", [](Value x) { return erf(x * (1 / std::numbers::sqrt2)) + 1.0; }},
      {"tanh", [](Value x) { return gate_with_tanh(gelu_scale * (x + gelu_cubic * (x * x * x))); }},
      {"tanh", [](Value x) { return gate_with_tanh(gelu_scale * (x + gelu_cubic * power(x, 3.0))); }},
      {"tanh", [](Value x) { return gate_with_tanh(gelu_scale * (x + x * x * (x * gelu_cubic))); }},
      {"tanh", [](Value x) { return gate_with_tanh(gelu_scale * (x + gelu_cubic * x * x * x)); }},
      {"tanh", [](Value x) { return gate_with_tanh(gelu_scale * x * (1.0 + gelu_cubic * x * x)); }},
  };
  using Product = Value (*)(Value, Value);
  const Product products[] = {[](Value x, Value gate) { return x * gate * 0.5; }, [](Value x, Value gate) { return 0.5 * x * gate; },
                              [](Value x, Value gate) { return x * (0.5 * gate); }};
  for (const auto& [form, gate] : gates) {
    for (const Product product : products) {
      const auto rule = [gate = gate, product](Emitter&, std::span<const Value> inputs, const Attributes&) -> Values {
        return {product(inputs[0], gate(inputs[0]))};
      };
      spellings().push_back({"gelu", GeluAttributes{form}, rule});
    }
  }
}

using Samples = std::function<std::vector<Sample>()>;

/// For functions with kinks: the values are far from each other, and none lies at a kink.
Samples kinked(std::vector<Attributes> attributes = {NoAttributes{}}) { return pointwise_samples(Fill::distinct, std::move(attributes)); }
Samples smooth(std::vector<Attributes> attributes = {NoAttributes{}}) { return pointwise_samples(Fill::normal, std::move(attributes)); }

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(activation) {
  add_pointwise<Clamp, ClampAttributes>(
      registry,
      {.name = "clamp",
       .summary = "min(max(x, min), max)",
       .infer = infer_clamp,
       .activation = clamp_activation,
       .samples = kinked({ClampAttributes{-0.5, 0.7}, ClampAttributes{0.25, {}}, ClampAttributes{{}, 0.25}, ClampAttributes{1, -1}})});
  add_pointwise<Relu>(registry, {.name = "relu", .summary = "max(x, 0)", .activation = always({}), .samples = kinked()});
  add_pointwise<LeakyRelu, LeakyReluAttributes>(registry, {.name = "leaky_relu",
                                                           .summary = "x > 0 ? x : negative_slope * x",
                                                           .gradient = leaky_relu_gradient,
                                                           .activation = leaky_relu_activation,
                                                           .samples = kinked({LeakyReluAttributes{}, LeakyReluAttributes{-0.3}})});
  add_pointwise<Elu, EluAttributes>(registry, {.name = "elu",
                                               .summary = "x > 0 ? x : alpha * (exp(x) - 1)",
                                               .activation = elu_activation,
                                               .samples = kinked({EluAttributes{}, EluAttributes{2.5}})});
  add_pointwise<Gelu, GeluAttributes>(registry, {.name = "gelu",
                                                 .summary = "x times the normal distribution function, or its tanh approximation",
                                                 .infer = infer_gelu,
                                                 .decompose = spelled_gelu,
                                                 .fuse = with_defaults<GeluAttributes>,
                                                 .activation = gelu_activation,
                                                 .samples = smooth({GeluAttributes{}, GeluAttributes{"tanh"}})});
  add_gelu_spellings();
  add_pointwise<Sigmoid>(
      registry,
      {.name = "sigmoid", .summary = "1 / (1 + exp(-x))", .activation = always({.kind = Activation::sigmoid}), .samples = smooth()});
  add_pointwise<Tanh>(
      registry,
      {.name = "tanh", .summary = "the hyperbolic tangent of x", .activation = always({.kind = Activation::tanh}), .samples = smooth()});
  add_pointwise<Silu>(registry, {.name = "silu",
                                 .summary = "x / (1 + exp(-x))",
                                 .decompose = spelled([](Value x) { return x * sigmoid(x); }),
                                 .fuse = with_defaults<>,
                                 .activation = always({.kind = Activation::silu}),
                                 .samples = smooth()});
  add_pointwise<Mish>(registry, {.name = "mish",
                                 .summary = "x * tanh(log(1 + exp(x)))",
                                 .decompose = spelled([](Value x) { return x * tanh(softplus(x)); }),
                                 .fuse = with_defaults<>,
                                 .activation = always({.kind = Activation::mish}),
                                 .samples = smooth()});
  add_pointwise<Softplus, SoftplusAttributes>(
      registry, {.name = "softplus",
                 .summary = "log(1 + exp(beta * x)) / beta, or x where beta * x > threshold",
                 .samples = kinked({SoftplusAttributes{}, SoftplusAttributes{2, 1}, SoftplusAttributes{0.5, 20}})});
  add_pointwise<HardSigmoid>(registry, {.name = "hard_sigmoid",
                                        .summary = "min(max(x + 3, 0), 6) / 6",
                                        .activation = always({.kind = Activation::hard_sigmoid}),
                                        .samples = kinked()});
  add_pointwise<HardSwish>(registry, {.name = "hard_swish",
                                      .summary = "x * min(max(x + 3, 0), 6) / 6",
                                      .decompose = spelled([](Value x) { return x * hard_sigmoid(x); }),
                                      .fuse = with_defaults<>,
                                      .activation = always({.kind = Activation::hard_swish}),
                                      .samples = kinked()});
}
