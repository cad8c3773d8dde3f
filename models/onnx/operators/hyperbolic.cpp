#include <numbers>

#include "frit/models/onnx/operators/helpers.h"

// Near zero these are differences of near numbers; they are spelled so that no digits are lost there, in gradients either.

namespace frit::onnx {
namespace {

/// log(1 + y), exact for small y: what 1 + y loses of it is made up for (W. Kahan); the gradient is 1 / (1 + y).
Value log_of_one_plus(Value y) {
  const Value sum = 1 + y, plain = log(sum);
  const Value exact = where(equal(sum, 1.0), y, plain * (y / (sum - 1)));
  return plain + stop_gradient(where(less(abs(y), 0.5), exact - plain, 0.0));
}

/// Of an odd function, given for positive numbers.
template <Value (*function)(Value)>
Values odd(const Call& call) {
  const Value x = call[0], negative = less(x, 0.0);
  const Value y = function(where(negative, -x, x));
  return {where(negative, -y, y)};
}

/// (exp(x) - exp(-x)) / 2, where elu(-x) is exp(-x) - 1.
Value sinh(Value x) {
  const Value less_one = elu(-x);
  return less_one * (less_one + 2) * exp(x) * -0.5;
}

/// What a function of x is, and where squares of x might overflow log(2 x), to which it comes near.
template <class Function>
Value logarithmic(Value x, const Function& function) {
  const Value large = ops::scalar(x, 1e8);
  return where(greater(x, large), log(maximum(x, large)) + std::numbers::ln2, function(minimum(x, large)));
}

/// log(x + sqrt(x^2 + 1))
Value asinh(Value x) {
  return logarithmic(x, [](Value y) { return log_of_one_plus(y + square(y) / (1 + sqrt(square(y) + 1))); });
}

/// log((1 + x) / (1 - x)) / 2
Value atanh(Value x) { return log_of_one_plus(2 * x / (1 - x)) * 0.5; }

/// log(x + sqrt(x^2 - 1))
Values acosh(const Call& call) {
  return {logarithmic(call[0], [](Value x) { return log_of_one_plus(x - 1 + sqrt(x - 1) * sqrt(x + 1)); })};
}

Values cosh(const Call& call) { return {(exp(call[0]) + exp(-call[0])) * 0.5}; }

}  // namespace

void add_hyperbolic(OperatorTable& table) {
  table["Sinh"] = odd<sinh>;
  table["Cosh"] = cosh;
  table["Asinh"] = odd<asinh>;
  table["Acosh"] = acosh;
  table["Atanh"] = odd<atanh>;
}

}  // namespace frit::onnx
