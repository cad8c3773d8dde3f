#include "frit/ops/elementwise/compare.h"

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/pointwise.h"
#include "frit/ops/operator/operator.h"

namespace frit {

Value equal(Value a, Value b) { return ops::emit_one("equal", {a, b}); }
Value not_equal(Value a, Value b) { return ops::emit_one("not_equal", {a, b}); }
Value less(Value a, Value b) { return ops::emit_one("less", {a, b}); }
Value less_equal(Value a, Value b) { return ops::emit_one("less_equal", {a, b}); }
Value greater(Value a, Value b) { return ops::emit_one("greater", {a, b}); }
Value greater_equal(Value a, Value b) { return ops::emit_one("greater_equal", {a, b}); }
Value equal(Value a, double b) { return equal(a, ops::scalar(a, b)); }
Value not_equal(Value a, double b) { return not_equal(a, ops::scalar(a, b)); }
Value less(Value a, double b) { return less(a, ops::scalar(a, b)); }
Value less_equal(Value a, double b) { return less_equal(a, ops::scalar(a, b)); }
Value greater(Value a, double b) { return greater(a, ops::scalar(a, b)); }
Value greater_equal(Value a, double b) { return greater_equal(a, ops::scalar(a, b)); }

Value logical_not(Value a) { return equal(a, 0.0); }
Value logical_and(Value a, Value b) { return not_equal(a, 0.0) * not_equal(b, 0.0); }
Value logical_or(Value a, Value b) { return maximum(not_equal(a, 0.0), not_equal(b, 0.0)); }
Value logical_xor(Value a, Value b) { return not_equal(not_equal(a, 0.0), not_equal(b, 0.0)); }

Value where(Value condition, Value a, Value b) { return ops::emit_one("where", {condition, a, b}); }
Value where(Value condition, Value a, double b) { return where(condition, a, ops::scalar(a, b)); }
Value where(Value condition, double a, Value b) { return where(condition, ops::scalar(b, a), b); }

namespace ops {
namespace {

std::vector<TensorType> infer_comparison(const InferContext& call) { return {{DType::u8, infer_broadcast(call)[0].shape}}; }

std::vector<Sample> comparison_samples() {
  const SampleInput grid({3, 5}, Fill::integers);
  return {{.inputs = {Shape{2, 3, 5}, Shape{2, 3, 5}}},
          {.inputs = {grid, grid}},  // ties
          {.inputs = {grid, {Shape{5}, Fill::ones}}},
          {.inputs = {Shape{}, Shape{4, 1}}},
          {.inputs = {Shape{1}, Shape{1}}},
          {.inputs = {Shape{0, 4}, Shape{4}}},
          {.inputs = {{{2, 3, 2, 2}, Fill::integers}, {{2, 3, 1, 1}, Fill::integers}}}};
}

template <template <class> class Function>
Operator comparison(const char* name, const char* summary, bool commutative) {
  return {.name = name,
          .summary = summary,
          .inputs = {"a", "b"},
          .infer = infer_comparison,
          .no_gradient = "integer result",
          .elementwise = true,
          .cpu = element_kernel(function_of_elements<OfAnyDType<Comparison, Function>>, 2),
          .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
          .commutative = commutative,
          .samples = comparison_samples};
}

std::vector<TensorType> infer_where(const InferContext& call) {
  call.require(call.inputs[1].dtype == call.inputs[2].dtype, "input \"a\" is ", call.inputs[1].dtype, ", input \"b\" is ",
               call.inputs[2].dtype);
  const Shape branches = broadcast_shapes(call.shape(1), call.shape(2));
  return {{call.inputs[1].dtype, broadcast_shapes(call.shape(0), branches)}};
}

Values where_gradient(const GradientContext& c) {
  const Value g = c.gradients[0], condition = c.inputs[0], zero = scalar(g, 0);
  return {Value{}, c.wanted[1] ? where(condition, g, zero) : Value{}, c.wanted[2] ? where(condition, zero, g) : Value{}};
}

std::vector<Sample> where_samples() {
  const auto condition = [](Shape shape) { return SampleInput::integers(std::move(shape), 2, DType::u8); };
  return {{.inputs = {condition({2, 3, 5}), Shape{2, 3, 5}, Shape{2, 3, 5}}},
          {.inputs = {condition({3, 1}), Shape{2, 3, 5}, Shape{}}},
          {.inputs = {condition({5}), Shape{}, Shape{3, 1}}},
          {.inputs = {condition({}), Shape{7}, Shape{7}}},
          {.inputs = {condition({1}), Shape{1}, Shape{1}}},
          {.inputs = {condition({4}), Shape{0, 4}, Shape{0, 1}}},
          {.inputs = {condition({2, 3, 2, 2}), Shape{3, 1, 1}, Shape{2, 3, 2, 2}}}};
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(compare) {
  registry.add(comparison<Equal>("equal", "a == b as 0 or 1", true));
  registry.add(comparison<NotEqual>("not_equal", "a != b as 0 or 1", true));
  registry.add(comparison<Less>("less", "a < b as 0 or 1", false));
  registry.add(comparison<LessEqual>("less_equal", "a <= b as 0 or 1", false));
  registry.add(comparison<Greater>("greater", "a > b as 0 or 1", false));
  registry.add(comparison<GreaterEqual>("greater_equal", "a >= b as 0 or 1", false));
  registry.add({.name = "where",
                .summary = "condition ? a : b",
                .inputs = {"condition", "a", "b"},
                .infer = infer_where,
                .gradient = where_gradient,
                .elementwise = true,
                .cpu = element_kernel(function_of_elements<OfAnyDType<Selection, Where>>, 3),
                .dtypes = {DType::u8},
                .in_place = {{0, 1}, {0, 2}},
                .samples = where_samples});
}
