#include "frit/models/onnx/operators/helpers.h"

namespace frit::onnx {
namespace {

Value ceiling(Value x) { return -floored(-x); }

/// To the nearest whole number, the even one of two.
Value rounded(Value x) {
  const Value below = floored(x);
  const Value fraction = x - below;
  const Value half = ops::scalar(x, 0.5);
  const Value is_odd = not_equal(floored(below * 0.5) * 2, below);
  const Value up = maximum(greater(fraction, half), minimum(equal(fraction, half), is_odd));
  return where(up, below + 1, below);
}

/// Casting to booleans is a comparison; from them they are numbers.
Values converted(const Call& call, Value x, std::int64_t element_type) {
  constexpr std::int64_t boolean = 9;
  if (element_type == boolean) return {not_equal(x, ops::scalar(x, 0))};
  return {cast(x, call.dtype_of(element_type))};
}

Values cast_like(const Call& call) { return {cast(call[0], call[1].dtype())}; }

}  // namespace

void add_rounding(OperatorTable& table) {
  table["Floor"] = [](const Call& call) -> Values { return {floored(call[0])}; };
  table["Ceil"] = [](const Call& call) -> Values { return {ceiling(call[0])}; };
  table["Round"] = [](const Call& call) -> Values { return {rounded(call[0])}; };
  table["Cast"] = [](const Call& call) -> Values { return converted(call, call[0], call.integer("to", 0)); };
  table["CastLike"] = cast_like;
}

}  // namespace frit::onnx
