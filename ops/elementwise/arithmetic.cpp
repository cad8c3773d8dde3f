#include "frit/ops/elementwise/arithmetic.h"

#include <limits>

#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/pointwise.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {

Value operator+(Value a, Value b) { return ops::emit_one("add", {a, b}); }
Value operator-(Value a, Value b) { return ops::emit_one("subtract", {a, b}); }
Value operator*(Value a, Value b) { return ops::emit_one("multiply", {a, b}); }
Value operator/(Value a, Value b) { return ops::emit_one("divide", {a, b}); }
Value operator+(Value a, double b) { return a + ops::scalar(a, b); }
Value operator-(Value a, double b) { return a - ops::scalar(a, b); }
Value operator*(Value a, double b) { return a * ops::scalar(a, b); }
Value operator/(Value a, double b) { return a / ops::scalar(a, b); }
Value operator+(double a, Value b) { return ops::scalar(b, a) + b; }
Value operator-(double a, Value b) { return ops::scalar(b, a) - b; }
Value operator*(double a, Value b) { return ops::scalar(b, a) * b; }
Value operator/(double a, Value b) { return ops::scalar(b, a) / b; }
Value operator-(Value a) { return ops::emit_one("negate", {a}); }

Value power(Value base, Value exponent) { return ops::emit_one("power", {base, exponent}); }
Value power(Value base, double exponent) { return power(base, ops::scalar(base, exponent)); }
Value minimum(Value a, Value b) { return ops::emit_one("minimum", {a, b}); }
Value maximum(Value a, Value b) { return ops::emit_one("maximum", {a, b}); }

namespace ops {
namespace {

Values add_gradient(const GradientContext& c) { return {c.gradients[0], c.gradients[0]}; }

Values subtract_gradient(const GradientContext& c) { return {c.gradients[0], c.wanted[1] ? -c.gradients[0] : Value{}}; }

Values multiply_gradient(const GradientContext& c) {
  const Value g = c.gradients[0];
  return {c.wanted[0] ? g * c.inputs[1] : Value{}, c.wanted[1] ? g * c.inputs[0] : Value{}};
}

Values divide_gradient(const GradientContext& c) {
  const Value numerator = c.gradients[0] / c.inputs[1];
  return {numerator, c.wanted[1] ? -(numerator * c.outputs[0]) : Value{}};
}

Values negate_gradient(const GradientContext& c) { return {-c.gradients[0]}; }

/// PyTorch's conventions: the gradient of x^0 is 0 for every x, and that of 0^y is 0 by y >= 0.
Values power_gradient(const GradientContext& c) {
  const Value g = c.gradients[0], base = c.inputs[0], exponent = c.inputs[1];
  const Value zero = scalar(exponent, 0);
  Values result(2);
  if (c.wanted[0]) {
    const Value lowered = where(equal(exponent, zero), zero, exponent - 1);
    result[0] = g * (exponent * power(base, lowered));
  }
  if (c.wanted[1]) {
    const Value flat = equal(base, zero) * greater_equal(exponent, zero);
    result[1] = g * where(flat, zero, c.outputs[0] * log(base));
  }
  return result;
}

/// The gradient rule of minimum and maximum: an operator gives the share of its second argument.
GradientRule shared_gradient(const char* backward) {
  return [backward](const GradientContext& c) -> Values {
    const Value g = c.gradients[0], a = c.inputs[0], b = c.inputs[1];
    return {c.wanted[0] ? emit_one(backward, {g, a, b}) : Value{}, c.wanted[1] ? emit_one(backward, {g, b, a}) : Value{}};
  };
}

/// The powers that most programs take are products and a root.
ElementFunction power_function(const KernelContext& call) {
  return dispatch_floating(call.outputs[0].dtype(), [&]<class T>() {
    const double plain = call.inputs[1].elements() == 1 ? static_cast<double>(*call.inputs[1].data<T>()) : 0;
    if (plain == 2) return element_function<T, T>(Square<T>{});
    if (plain == 3) return element_function<T, T>([](T x) { return x * x * x; });
    if (plain == 0.5) {
      constexpr T infinity = std::numeric_limits<T>::infinity();
      return element_function<T, T>([](T x) {  // of -0 and -infinity it is not what the square root is
        const T from_zero = x + 0, base = x == -infinity ? infinity : from_zero;
        return std::sqrt(base);
      });
    }
    return element_function<T, T, T>(Power<T>{});
  });
}

std::vector<Sample> binary_samples(Fill first, Fill second) {
  std::vector<Sample> samples;
  const auto add = [&](Shape a, Shape b) { samples.push_back({.inputs = {{std::move(a), first}, {std::move(b), second}}}); };
  add({2, 3, 5}, {2, 3, 5});
  add({2, 3, 5}, {3, 1});
  add({7, 1}, {2, 1, 5});
  add({}, {7});
  add({3, 5}, {});
  add({1}, {1});
  add({0, 4}, {4});
  add({2, 3, 2, 3}, {2, 3, 2, 3});
  add({2, 3, 2, 2}, {3, 1, 1});
  add({2, 3, 2, 2}, {2, 1, 2, 2});
  return samples;
}

Operator binary(const char* name, const char* summary, GradientRule gradient, ElementRule rule, Fill first, Fill second,
                std::optional<double> neutral = {}) {
  return {.name = name,
          .summary = summary,
          .inputs = {"a", "b"},
          .infer = infer_broadcast,
          .gradient = std::move(gradient),
          .elementwise = true,
          .cpu = element_kernel(std::move(rule), 2),
          .in_place = {{0, 0}, {0, 1}},
          .neutral = neutral,
          .samples = [=] { return binary_samples(first, second); }};
}

/// The numbers, of shape (C, 1, ...) or with fewer axes of 1, as (C) for images (N, C, ...); none where they are not for channels.
Value for_channels(Value numbers, Value images) {
  const int axes_before = images.rank() - numbers.rank();
  if (images.rank() < 3 || axes_before < 0) return {};
  for (int axis = 0; axis < numbers.rank(); ++axis) {
    if (numbers.dim(axis) != 1 && axis + axes_before != 1) return {};
  }
  return expand(reshape(numbers, {-1}), {images.dim(1)});
}

/// An affine map of what is another one already.
ChannelAffine after(const ChannelAffine& first, const ChannelAffine& then) {
  const auto scaled = [&](Value x) { return x && then.factor ? x * then.factor : x ? x : then.factor; };
  const Value addend = first.addend ? scaled(first.addend) : Value();
  return {scaled(first.factor), addend && then.addend ? addend + then.addend : addend ? addend : then.addend};
}

/// For Operator::channel_affine, with what the operator makes of the other input's numbers if input 0 is an image, or input 1.
template <class Of0, class Of1>
auto channel_affine(Of0 of0, Of1 of1) {
  return [=](std::span<const Value> inputs, std::size_t of, const ChannelAffine& before) -> ChannelAffine {
    const Value numbers = for_channels(inputs[1 - of], inputs[of]);
    const ChannelAffine own = !numbers ? ChannelAffine() : of == 0 ? of0(numbers) : of1(numbers);
    return own ? after(before, own) : own;
  };
}

/// "minimum_backward" or "maximum_backward": the share of `a` in the gradient.
template <template <class> class Function>
Operator share(const char* name, const char* summary) {
  return {.name = name,
          .summary = summary,
          .inputs = {"gradient", "a", "b"},
          .infer = infer_broadcast,
          .gradient = [name](const GradientContext& c) -> Values {
            return {emit_one(name, {c.gradients[0], c.inputs[1], c.inputs[2]}), Value{}, Value{}};
          },
          .elementwise = true,
          .cpu = element_kernel(function_of_elements<Elementwise<Ternary, Gradient<Function>::template Of>>, 3),
          .in_place = {{0, 0}, {0, 1}, {0, 2}},
          .samples =
              [] {
                return std::vector<Sample>{{.inputs = {Shape{2, 3, 5}, Shape{2, 3, 5}, Shape{2, 3, 5}}},
                                           {.inputs = {Shape{4, 3}, Shape{3}, Shape{4, 1}}},
                                           {.inputs = {Shape{7}, Shape{}, Shape{7}}},
                                           {.inputs = {Shape{1}, Shape{1}, Shape{1}}},
                                           {.inputs = {Shape{0, 4}, Shape{0, 4}, Shape{4}}},
                                           {.inputs = {Shape{2, 3, 2, 2}, Shape{2, 3, 2, 2}, Shape{2, 3, 1, 1}}}};
              }};
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(arithmetic) {
  Operator add = binary("add", "a + b", add_gradient, function_of_elements<OfAnyDType<Binary, Add>>, Fill::normal, Fill::normal, -0.0);
  add.commutative = true;
  add.linear_inputs = {{0, LinearInput::addend}, {1, LinearInput::addend}};
  const auto added = [](Value x) { return ChannelAffine{{}, x}; };
  add.channel_affine = channel_affine(added, added);
  Operator subtract =
      binary("subtract", "a - b", subtract_gradient, function_of_elements<OfAnyDType<Binary, Subtract>>, Fill::normal, Fill::normal, 0);
  Operator multiply =
      binary("multiply", "a * b", multiply_gradient, function_of_elements<OfAnyDType<Binary, Multiply>>, Fill::normal, Fill::normal, 1);
  multiply.commutative = true;
  multiply.linear_inputs = {{0, LinearInput::factor}, {1, LinearInput::factor}};
  const auto multiplied = [](Value x) { return ChannelAffine{x, {}}; };
  multiply.channel_affine = channel_affine(multiplied, multiplied);
  subtract.linear_inputs = {{0, LinearInput::addend}, {1, LinearInput::addend}};
  subtract.channel_affine = channel_affine(
      [](Value x) {
        return ChannelAffine{{}, -x};
      },
      [](Value x) {
        return ChannelAffine{expand(ops::scalar(x, -1), x.shape()), x};
      });
  // Not marked commutative: of -0 and 0 they give one by its place.
  Operator minimum = binary("minimum", "the smaller of a and b; NaN if either is", shared_gradient("minimum_backward"),
                            function_of_elements<OfAnyDType<Binary, Minimum>>, Fill::normal, Fill::normal);
  Operator maximum = binary("maximum", "the larger of a and b; NaN if either is", shared_gradient("maximum_backward"),
                            function_of_elements<OfAnyDType<Binary, Maximum>>, Fill::normal, Fill::normal);
  add.binary = BinaryFunction::add;
  subtract.binary = BinaryFunction::subtract;
  multiply.binary = BinaryFunction::multiply;
  minimum.binary = BinaryFunction::minimum;
  maximum.binary = BinaryFunction::maximum;
  for (Operator* op : {&add, &subtract, &multiply, &minimum, &maximum}) op->dtypes.assign(std::begin(all_dtypes), std::end(all_dtypes));
  Operator divide =
      binary("divide", "a / b", divide_gradient, function_of_elements<Elementwise<Binary, Divide>>, Fill::normal, Fill::nonzero, 1);
  divide.binary = BinaryFunction::divide;
  divide.linear_inputs = {{0, LinearInput::factor}};
  divide.channel_affine = channel_affine([](Value x) { return ChannelAffine{1.0 / x, {}}; }, [](Value) { return ChannelAffine{}; });
  Operator power = binary("power", "a to the b", power_gradient, power_function, Fill::positive, Fill::normal, 1);
  power.precision = Precision::full;
  for (Operator* op : {&add, &subtract, &multiply, &minimum, &maximum, &divide, &power}) registry.add(std::move(*op));
  registry.add(share<Minimum>("minimum_backward", "the share of a in the gradient of minimum(a, b): half at a tie"));
  registry.add(share<Maximum>("maximum_backward", "the share of a in the gradient of maximum(a, b): half at a tie"));
  registry.add({.name = "negate",
                .summary = "-a",
                .inputs = {"a"},
                .infer = infer_same,
                .gradient = negate_gradient,
                .elementwise = true,
                .cpu = element_kernel(function_of_elements<OfAnyDType<Unary, Negate>>, 1),
                .dtypes = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32},
                .in_place = {{0, 0}},
                .samples = pointwise_samples(Fill::normal)});
}
