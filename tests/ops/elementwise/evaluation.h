#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "frit/autograd/gradient.h"
#include "frit/graph/program.h"

namespace frit {

inline constexpr double inf = std::numeric_limits<double>::infinity();
inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// The value of a function and the gradients of its floating inputs, from a graph.
struct Evaluation {
  std::vector<double> output;
  std::vector<std::vector<double>> gradients;
};

/// Every element of the output's gradient is `seed`.
inline Evaluation evaluate(const std::function<Value(const Values&)>& function, const std::vector<Tensor>& inputs, double seed = 1) {
  Graph graph;
  Values values, wanted;
  Bindings bindings;
  for (const Tensor& input : inputs) {
    const std::string name = concat(values.size());
    values.push_back(graph.input(name, input.shape(), input.dtype()));
    if (is_floating(input.dtype())) wanted.push_back(values.back());
    bindings[name] = input;
  }
  const Value output = function(values);
  graph.output("output", output);
  const bool differentiable = is_floating(output.dtype());
  if (differentiable) {
    const Value seeds = graph.constant(Tensor::full(output.shape(), seed, output.dtype()));
    const Values gradients = gradient(std::span(&output, 1), std::span(&seeds, 1), wanted);
    for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat("gradient", i), gradients[i]);
  }
  Program program(std::move(graph), std::make_shared<State>());
  const graph::Executable& run = program.run(bindings);
  Evaluation result{run.output("output").to_vector<double>(), {}};
  for (std::size_t i = 0; differentiable && i < wanted.size(); ++i) {
    result.gradients.push_back(run.output(concat("gradient", i)).to_vector<double>());
  }
  return result;
}

/// Equal as numbers, where NaN is NaN.
inline testing::AssertionResult equal_numbers(const std::vector<double>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return testing::AssertionFailure() << actual.size() << " values, expected " << expected.size();
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    return testing::AssertionFailure() << "element " << i << " is " << actual[i] << ", expected " << expected[i];
  }
  return testing::AssertionSuccess();
}

/// One point of a function of one number: its value, and what a gradient of 1, infinity and NaN become.
struct Point {
  double x, y, gradient, gradient_of_infinity, gradient_of_nan;
};

/// Exact equality at every point, in both precisions, and for tensors that fill a vector register and that do not.
inline void expect_points(const std::function<Value(Value)>& function, const std::vector<Point>& points) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const std::int64_t copies : {1, 37}) {
      for (const Point& point : points) {
        SCOPED_TRACE(concat(dtype, ", ", copies, " elements, x = ", point.x));
        const Tensor x = Tensor::full({copies}, point.x, dtype);
        const auto repeated = [&](double value) { return Tensor::full({copies}, value, dtype).to_vector<double>(); };
        const auto of = [&](double seed) { return evaluate([&](const Values& v) { return function(v[0]); }, {x}, seed); };
        EXPECT_TRUE(equal_numbers(of(1).output, repeated(point.y)));
        EXPECT_TRUE(equal_numbers(of(1).gradients[0], repeated(point.gradient)));
        EXPECT_TRUE(equal_numbers(of(inf).gradients[0], repeated(point.gradient_of_infinity)));
        EXPECT_TRUE(equal_numbers(of(nan).gradients[0], repeated(point.gradient_of_nan)));
      }
    }
  }
}

/// The message of the ErrorKind::argument that `action` throws.
inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
  return "no error";
}

}  // namespace frit
