#include <cmath>

#include "frit/models/onnx/operators/helpers.h"

namespace frit::onnx {
namespace {

template <Value (*function)(Value)>
Values plain(const Call& call) {
  return {function(call[0])};
}

Value softsign(Value x) { return x / (1 + abs(x)); }
Value softplus_of(Value x) { return softplus(x); }
Value mish_of(Value x) { return mish(x); }

Values selu(const Call& call) {
  const double alpha = call.real("alpha", call.opset() < 6 ? 1.6732 : 1.67326319217681884765625);
  const double gamma = call.real("gamma", call.opset() < 6 ? 1.0507 : 1.05070102214813232421875);
  return {elu(call[0], alpha) * gamma};
}

Values celu(const Call& call) {
  const double alpha = call.real("alpha", 1);
  return {alpha == 1 ? elu(call[0]) : elu(call[0] / alpha) * alpha};
}

Values hard_sigmoid_of(const Call& call) {
  const double alpha = call.real("alpha", 0.2), beta = call.real("beta", 0.5);
  if (std::abs(alpha - 1.0 / 6) < 1e-7 && beta == 0.5) return {hard_sigmoid(call[0])};
  return {clamp(call[0] * alpha + beta, 0, 1)};
}

Values gelu_of(const Call& call) {
  const std::string form = call.text("approximate", "none");
  call.require_support(form == "none" || form == "tanh", "approximate = \"", form, '"');
  return {gelu(call[0], form == "tanh" ? GeluForm::tanh : GeluForm::erf)};
}

Value swish(const Call& call) {
  const Value x = call[0];
  const double alpha = call.real("alpha", 1);
  return alpha == 1 ? silu(x) : x * sigmoid(x * alpha);
}

/// A bound as a number, where it is one that is known: an attribute first, an input since opset 11.
std::optional<double> bound(const Call& call, const char* attribute, std::size_t input) {
  if (call.has(attribute)) return call.real(attribute, 0);
  if (call.has_input(input) && call.is_constant(input)) return call.constant(input).item();
  return std::nullopt;
}

Values clip(const Call& call) {
  Value x = call[0];
  const std::optional<double> low = bound(call, "min", 1), high = bound(call, "max", 2);
  const bool known = (low || !call.has_input(1)) && (high || !call.has_input(2));
  if (known && !low && !high) return {x};
  if (known && is_floating(x.dtype())) return {clamp(x, low, high)};
  if (call.has_input(1)) x = maximum(x, call[1]);
  if (call.has_input(2)) x = minimum(x, call[2]);
  return {x};
}

/// The slope broadcasts to the input; before opset 7, and as PyTorch exports it, one a channel.
Values prelu(const Call& call) {
  const Value x = call[0];
  Value slope = call[1];
  if (slope.rank() == 1 && x.rank() > 2 && slope.dim(0) != 1 && call.opset() < 7) slope = aligned(slope, x.rank() - 1, 0);
  const Value zero = ops::scalar(x, 0), negative = less(x, zero);
  return {where(negative, where(negative, x, zero) * slope, x)};  // no infinity times 0 in the gradient
}

Values thresholded_relu(const Call& call) {
  const Value x = call[0];
  return {where(greater(x, ops::scalar(x, call.real("alpha", 1))), x, ops::scalar(x, 0))};
}

Values shrink(const Call& call) {
  const Value x = as_floating(call[0]);
  const double bias = call.real("bias", 0), threshold = call.real("lambd", 0.5);
  const Value above = where(greater(x, ops::scalar(x, threshold)), x - bias, ops::scalar(x, 0));
  return {cast(where(less(x, ops::scalar(x, -threshold)), x + bias, above), call[0].dtype())};
}

}  // namespace

void add_activations(OperatorTable& table) {
  table["Relu"] = [](const Call& call) -> Values {
    const Value x = call[0];
    return {is_floating(x.dtype()) ? relu(x) : maximum(x, ops::scalar(x, 0))};
  };
  table["LeakyRelu"] = [](const Call& call) -> Values { return {leaky_relu(call[0], call.real("alpha", 0.01))}; };
  table["Elu"] = [](const Call& call) -> Values { return {elu(call[0], call.real("alpha", 1))}; };
  table["Selu"] = selu;
  table["Celu"] = celu;
  table["Gelu"] = gelu_of;
  table["Sigmoid"] = plain<sigmoid>;
  table["Tanh"] = plain<tanh>;
  table["Softplus"] = plain<softplus_of>;
  table["Softsign"] = plain<softsign>;
  table["Mish"] = plain<mish_of>;
  table["HardSigmoid"] = hard_sigmoid_of;
  table["HardSwish"] = plain<hard_swish>;
  table["Swish"] = [](const Call& call) -> Values { return {swish(call)}; };
  table["SwiGLU"] = [](const Call& call) -> Values { return {swish(call) * call[1]}; };
  table["Clip"] = clip;
  table["PRelu"] = prelu;
  table["ThresholdedRelu"] = thresholded_relu;
  table["Shrink"] = shrink;
}

}  // namespace frit::onnx
