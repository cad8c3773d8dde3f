#include "frit/ops/elementwise/unary.h"

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/pointwise.h"
#include "frit/ops/elementwise/unary_functors.h"

namespace frit {

Value abs(Value x) { return ops::emit_one("abs", {x}); }
Value exp(Value x) { return ops::emit_one("exp", {x}); }
Value log(Value x) { return ops::emit_one("log", {x}); }
Value sqrt(Value x) { return ops::emit_one("sqrt", {x}); }
Value square(Value x) { return ops::emit_one("square", {x}); }
Value reciprocal(Value x) { return ops::emit_one("reciprocal", {x}); }

namespace ops {
namespace {

Values exp_gradient(const GradientContext& c) { return {c.gradients[0] * c.outputs[0]}; }
Values log_gradient(const GradientContext& c) { return {c.gradients[0] / c.inputs[0]}; }
Values sqrt_gradient(const GradientContext& c) { return {c.gradients[0] / (c.outputs[0] * 2)}; }
Values square_gradient(const GradientContext& c) { return {c.gradients[0] * (c.inputs[0] * 2)}; }
Values reciprocal_gradient(const GradientContext& c) { return {-c.gradients[0] * (c.outputs[0] * c.outputs[0])}; }

template <template <class> class Function>
Operator unary(const char* name, const char* summary, GradientRule gradient, Fill fill, Precision precision = Precision::full) {
  return {.name = name,
          .summary = summary,
          .inputs = {"input"},
          .infer = infer_same,
          .gradient = std::move(gradient),
          .elementwise = true,
          .precision = precision,
          .cpu = {.run = run_pointwise<Function>, .strided = true},
          .in_place = {{0, 0}},
          .samples = [fill] { return pointwise_samples(fill); }};
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(unary) {
  add_pointwise<Abs>(registry, {.name = "abs", .summary = "|x|", .samples = [] { return pointwise_samples(Fill::nonzero); }});
  registry.add(unary<Exp>("exp", "e to the x", exp_gradient, Fill::normal));
  registry.add(unary<Log>("log", "the natural logarithm of x", log_gradient, Fill::positive));
  registry.add(unary<Sqrt>("sqrt", "the square root of x", sqrt_gradient, Fill::positive, Precision::as_given));
  registry.add(unary<Square>("square", "x * x", square_gradient, Fill::normal));
  registry.add(unary<Reciprocal>("reciprocal", "1 / x", reciprocal_gradient, Fill::nonzero));
}
