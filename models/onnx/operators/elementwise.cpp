#include <cmath>

#include "frit/models/onnx/operators/helpers.h"

namespace frit::onnx {
namespace {

using Binary = Value (*)(Value, Value);

/// Both operands, the second one placed as opsets before 7 say.
std::pair<Value, Value> operands(const Call& call) {
  const Value a = call[0];
  const Value b = call[1];
  const bool placed = call.opset() < 7 && call.integer("broadcast", 0) != 0 && call.has("axis");
  return {a, placed ? aligned(b, a.rank(), call.integer("axis", 0)) : b};
}

template <Value (*function)(Value, Value)>
Values binary(const Call& call) {
  const auto [a, b] = operands(call);
  return {function(a, b)};
}

template <Value (*function)(Value)>
Values unary(const Call& call) {
  return {function(call[0])};
}

Value add(Value a, Value b) { return a + b; }
Value subtract(Value a, Value b) { return a - b; }
Value multiply(Value a, Value b) { return a * b; }
Value divide(Value a, Value b) { return cast(as_floating(a) / as_floating(b), a.dtype()); }
Value raise(Value a, Value b) {
  if (is_floating(a.dtype())) return power(a, cast(b, a.dtype()));
  return cast(power(as_floating(a), cast(b, DType::f64)), a.dtype());
}

// Of booleans, which are 0 or 1.
Value both(Value a, Value b) { return minimum(a, b); }
Value either(Value a, Value b) { return maximum(a, b); }
Value negated(Value x) { return equal(x, ops::scalar(x, 0)); }

template <Value (*function)(Value, Value)>
Values variadic(const Call& call) {
  Value result = call[0];
  for (std::size_t i = 1; i < call.inputs(); ++i) result = function(result, call[i]);
  return {result};
}

Values average(const Call& call) { return {variadic<add>(call)[0] / static_cast<double>(call.inputs())}; }

Value absolute(Value x) { return is_floating(x.dtype()) ? abs(x) : maximum(x, -x); }

/// The remainder with the divisor's sign, or with fmod the dividend's.
Values modulo(const Call& call) {
  const Value a = as_floating(call[0]), b = as_floating(call[1]);
  const bool fmod = call.integer("fmod", 0) != 0;
  call.require_support(fmod || !is_floating(call[0].dtype()), "fmod = 0 is for integers");
  return {cast(a - (fmod ? truncated(a / b) : floor(a / b)) * b, call[0].dtype())};
}

Value sign_of(Value x) { return cast(sign(as_floating(x)), x.dtype()); }

Values is_infinite(const Call& call) {
  const Value x = call[0];
  const Value above = equal(x, ops::scalar(x, HUGE_VAL)), below = equal(x, ops::scalar(x, -HUGE_VAL));
  const bool positive = call.integer("detect_positive", 1) != 0, negative = call.integer("detect_negative", 1) != 0;
  if (positive && negative) return {either(above, below)};
  return {positive ? above : negative ? below : less(x, x)};
}

Value hyperbolic_sine(Value x) { return (exp(x) - exp(-x)) * 0.5; }
Value hyperbolic_cosine(Value x) { return (exp(x) + exp(-x)) * 0.5; }
Value tangent(Value x) { return sin(x) / cos(x); }
Value inverse_hyperbolic_sine(Value x) { return sign(x) * log(abs(x) + sqrt(square(x) + 1)); }
Value inverse_hyperbolic_cosine(Value x) { return log(x + sqrt(square(x) - 1)); }
Value inverse_hyperbolic_tangent(Value x) { return log((1 + x) / (1 - x)) * 0.5; }

}  // namespace

void add_elementwise(OperatorTable& table) {
  table["Add"] = binary<add>;
  table["Sub"] = binary<subtract>;
  table["Mul"] = binary<multiply>;
  table["Div"] = binary<divide>;
  table["Pow"] = binary<raise>;
  table["Equal"] = binary<equal>;
  table["Greater"] = binary<greater>;
  table["GreaterOrEqual"] = binary<greater_equal>;
  table["Less"] = binary<less>;
  table["LessOrEqual"] = binary<less_equal>;
  table["And"] = binary<both>;
  table["Or"] = binary<either>;
  table["Xor"] = binary<not_equal>;
  table["Not"] = unary<negated>;
  table["Min"] = variadic<minimum>;
  table["Max"] = variadic<maximum>;
  table["Sum"] = variadic<add>;
  table["Mean"] = average;
  table["Mod"] = modulo;
  table["Abs"] = unary<absolute>;
  table["Neg"] = [](const Call& call) -> Values { return {-call[0]}; };
  table["Exp"] = unary<exp>;
  table["Log"] = unary<log>;
  table["Sqrt"] = unary<sqrt>;
  table["Reciprocal"] = unary<reciprocal>;
  table["Sign"] = unary<sign_of>;
  table["IsNaN"] = [](const Call& call) -> Values { return {not_equal(call[0], call[0])}; };
  table["IsInf"] = is_infinite;
  table["Sin"] = unary<sin>;
  table["Cos"] = unary<cos>;
  table["Tan"] = unary<tangent>;
  table["Floor"] = unary<floor>;
  table["Ceil"] = unary<ceil>;
  table["Round"] = unary<round>;
  table["Sinh"] = unary<hyperbolic_sine>;
  table["Cosh"] = unary<hyperbolic_cosine>;
  table["Asinh"] = unary<inverse_hyperbolic_sine>;
  table["Acosh"] = unary<inverse_hyperbolic_cosine>;
  table["Atanh"] = unary<inverse_hyperbolic_tangent>;
  table["Erf"] = unary<erf>;
  table["Where"] = [](const Call& call) -> Values { return {where(call[0], call[1], call[2])}; };
}

}  // namespace frit::onnx
