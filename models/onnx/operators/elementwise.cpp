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

/// Of random numbers with one number, too.
Values less_than(const Call& call) {
  if (!call.is_random(0) || !call.is_constant(1) || call.constant(1).elements() != 1) return binary<less>(call);
  call.draw_below(0, call.constant(1).item());
  return {};
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

template <Value (*function)(Value, Value)>
Values variadic(const Call& call) {
  Value result = call[0];
  for (std::size_t i = 1; i < call.inputs(); ++i) result = function(result, call[i]);
  return {result};
}

Values average(const Call& call) { return {variadic<add>(call)[0] / static_cast<double>(call.inputs())}; }

Value absolute(Value x) { return is_floating(x.dtype()) ? abs(x) : maximum(x, -x); }

/// The remainder with the divisor's sign, or with fmod the dividend's. Of an infinite divisor the quotient is next to 0.
Values modulo(const Call& call) {
  const Value a = as_floating(call[0]), b = as_floating(call[1]);
  const bool fmod = call.integer("fmod", 0) != 0;
  const Value rest = a - (fmod ? truncated(a / b) : floor(a / b)) * b;
  if (!is_floating(call[0].dtype())) return {cast(rest, call[0].dtype())};
  const Value infinite = logical_and(equal(abs(b), HUGE_VAL), less(abs(a), HUGE_VAL));
  return {where(infinite, fmod ? a : where(less(sign(a) * sign(b), 0.0), b, a), rest)};
}

Value sign_of(Value x) { return cast(sign(as_floating(x)), x.dtype()); }

Values is_infinite(const Call& call) {
  const Value x = call[0];
  const Value above = equal(x, ops::scalar(x, HUGE_VAL)), below = equal(x, ops::scalar(x, -HUGE_VAL));
  const bool positive = call.integer("detect_positive", 1) != 0, negative = call.integer("detect_negative", 1) != 0;
  if (positive && negative) return {logical_or(above, below)};
  return {positive ? above : negative ? below : less(x, x)};
}

Value tangent(Value x) { return sin(x) / cos(x); }

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
  table["Less"] = less_than;
  table["LessOrEqual"] = binary<less_equal>;
  table["And"] = binary<logical_and>;
  table["Or"] = binary<logical_or>;
  table["Xor"] = binary<logical_xor>;
  table["Not"] = unary<logical_not>;
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
  table["Erf"] = unary<erf>;
  table["Where"] = [](const Call& call) -> Values { return {where(call[0], call[1], call[2])}; };
}

}  // namespace frit::onnx
