#include "frit/ops/elementwise/unary.h"

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/pointwise.h"

namespace frit {

Value abs(Value x) { return ops::emit_one("abs", {x}); }
Value exp(Value x) { return ops::emit_one("exp", {x}); }
Value log(Value x) { return ops::emit_one("log", {x}); }
Value sqrt(Value x) { return ops::emit_one("sqrt", {x}); }
Value square(Value x) { return ops::emit_one("square", {x}); }
Value reciprocal(Value x) { return ops::emit_one("reciprocal", {x}); }
Value rsqrt(Value x) { return ops::emit_one("rsqrt", {x}); }
Value sin(Value x) { return ops::emit_one("sin", {x}); }
Value cos(Value x) { return ops::emit_one("cos", {x}); }
Value erf(Value x) { return ops::emit_one("erf", {x}); }
Value floor(Value x) { return ops::emit_one("floor", {x}); }
Value ceil(Value x) { return ops::emit_one("ceil", {x}); }
Value round(Value x) { return ops::emit_one("round", {x}); }
Value sign(Value x) { return ops::emit_one("sign", {x}); }
Value stop_gradient(Value x) { return ops::emit_one("stop_gradient", {x}); }

namespace ops {
namespace {

Values exp_gradient(const GradientContext& c) { return {c.gradients[0] * c.outputs[0]}; }
Values log_gradient(const GradientContext& c) { return {c.gradients[0] / c.inputs[0]}; }
Values sqrt_gradient(const GradientContext& c) { return {c.gradients[0] / (c.outputs[0] * 2)}; }
Values square_gradient(const GradientContext& c) { return {c.gradients[0] * (c.inputs[0] * 2)}; }
Values reciprocal_gradient(const GradientContext& c) { return {-c.gradients[0] * (c.outputs[0] * c.outputs[0])}; }
Values rsqrt_gradient(const GradientContext& c) { return {c.gradients[0] * (c.outputs[0] * square(c.outputs[0]) * -0.5)}; }
Values sin_gradient(const GradientContext& c) { return {c.gradients[0] * cos(c.inputs[0])}; }
Values cos_gradient(const GradientContext& c) { return {c.gradients[0] * -sin(c.inputs[0])}; }
Values erf_gradient(const GradientContext& c) {
  return {c.gradients[0] * (exp(-square(c.inputs[0])) * 1.1283791670955125739)};
}  // 2/sqrt(pi)
Values zero_gradient(const GradientContext&) { return Values(1); }

template <template <class> class Function,
          ElementFunction (*rule)(const KernelContext&) = function_of_elements<Elementwise<Unary, Function>>>
Operator unary(const char* name, const char* summary, GradientRule gradient, Fill fill, Precision precision = Precision::full) {
  return {.name = name,
          .summary = summary,
          .inputs = {"input"},
          .infer = infer_same,
          .gradient = std::move(gradient),
          .elementwise = true,
          .precision = precision,
          .cpu = element_kernel(rule, 1),
          .in_place = {{0, 0}},
          .samples = pointwise_samples(fill)};
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(unary) {
  add_pointwise<Abs>(registry, {.name = "abs", .summary = "|x|", .samples = pointwise_samples(Fill::nonzero)});
  registry.add(unary<Exp, function_of_vectors<Exp>>("exp", "e to the x", exp_gradient, Fill::normal));
  registry.add(unary<Log, function_of_vectors<Log>>("log", "the natural logarithm of x", log_gradient, Fill::positive));
  registry.add(unary<Sqrt>("sqrt", "the square root of x", sqrt_gradient, Fill::positive, Precision::as_given));
  registry.add(unary<Square>("square", "x * x", square_gradient, Fill::normal));
  registry.add(unary<Reciprocal>("reciprocal", "1 / x", reciprocal_gradient, Fill::nonzero));
  registry.add(unary<Rsqrt>("rsqrt", "1 / sqrt(x)", rsqrt_gradient, Fill::positive));
  registry.add(unary<Sin>("sin", "the sine of x", sin_gradient, Fill::normal));
  registry.add(unary<Cos>("cos", "the cosine of x", cos_gradient, Fill::normal));
  registry.add(unary<Erf, function_of_vectors<Erf>>("erf", "the error function of x", erf_gradient, Fill::normal));
  registry.add(unary<Floor>("floor", "the next whole number not above x", zero_gradient, Fill::unit, Precision::as_given));
  registry.add(unary<Ceil>("ceil", "the next whole number not below x", zero_gradient, Fill::unit, Precision::as_given));
  registry.add(unary<Round>("round", "the whole number next to x, of two the even one", zero_gradient, Fill::unit, Precision::as_given));
  registry.add(unary<Sign>("sign", "-1, 0 or 1; 0 at NaN", zero_gradient, Fill::nonzero, Precision::as_given));
  Operator stop = unary<Identity>("stop_gradient", "x, through which no gradient flows", zero_gradient, Fill::normal, Precision::as_given);
  stop.samples = [] {
    std::vector<Sample> samples = pointwise_samples(Fill::normal)();
    for (Sample& sample : samples) sample.smooth = element_count(sample.inputs[0].shape) == 0;  // differences see a slope
    return samples;
  };
  registry.add(std::move(stop));
}
