#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "frit/autograd/gradient.h"
#include "frit/core/random.h"
#include "frit/core/thread_pool.h"
#include "frit/graph/executable.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/operator/run.h"
#include "ops/elementwise/evaluation.h"

namespace frit {

inline Tensor normal_tensor(const Shape& shape, DType dtype, std::uint64_t seed, double mean = 0, double deviation = 1) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  fill_normal(tensor, mean, deviation, seed, 0);
  return tensor;
}

/// Whole numbers in [-range, range]: many ties.
inline Tensor whole_tensor(const Shape& shape, DType dtype, std::uint64_t seed, std::int64_t range) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < element_count(shape); ++i) {
    const std::uint32_t bits = philox(seed, 0, static_cast<std::uint64_t>(i))[0];
    values.push_back(static_cast<double>(static_cast<std::int64_t>(bits % static_cast<std::uint32_t>(2 * range + 1)) - range));
  }
  return Tensor::from(values, shape).to(dtype);
}

inline Tensor with_values(const Tensor& tensor, const std::vector<std::pair<std::int64_t, double>>& places) {
  std::vector<double> values = tensor.to_vector<double>();
  for (const auto& [place, value] : places) values.at(static_cast<std::size_t>(place)) = value;
  return Tensor::from(values, tensor.shape()).to(tensor.dtype());
}

/// A graph of inputs alone, and what they are.
struct InputGraph {
  Graph graph;
  Values values;
  Bindings bindings;

  explicit InputGraph(const std::vector<Tensor>& inputs) {
    for (const Tensor& input : inputs) {
      values.push_back(graph.input(concat(values.size()), input.shape(), input.dtype()));
      bindings[concat(values.size() - 1)] = input;
    }
  }
};

struct ChainResults {
  Tensor output;
  std::vector<Tensor> gradients;  ///< of each input
};

/// A fused operator's result and gradients; or, decomposed, those of the chain that it stands for. `seed` is the result's gradient, default
/// random.
inline ChainResults run_chain(const char* name, const ops::Attributes& attributes, const std::vector<Tensor>& inputs, bool decomposed,
                              Tensor seed = {}) {
  const ops::Operator& op = ops::registry().find(name);
  InputGraph made(inputs);
  auto& [graph, values, bindings] = made;
  const Value output = decomposed ? op.decompose(graph, values, attributes)[0] : graph.emit(op, values, attributes)[0];
  if (!seed.defined()) seed = normal_tensor(output.shape(), output.dtype(), 99);
  const Value seeds = graph.constant(seed);
  const Values gradients = gradient(std::span(&output, 1), std::span(&seeds, 1), values);
  graph.output("output", output);
  for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat("gradient", i), gradients[i]);
  State state;
  graph::Executable executable(graph, state);
  executable.run(bindings);
  ChainResults results{executable.output("output").clone(), {}};
  for (std::size_t i = 0; i < gradients.size(); ++i) results.gradients.push_back(executable.output(concat("gradient", i)).clone());
  return results;
}

/// NaN and infinity in the same places, all else within `tolerance` of the largest value (at least 1).
inline testing::AssertionResult close(const Tensor& actual, const Tensor& expected, double tolerance) {
  if (actual.shape() != expected.shape()) return testing::AssertionFailure() << actual.shape() << " instead of " << expected.shape();
  const std::vector<double> a = actual.to_vector<double>(), e = expected.to_vector<double>();
  double largest = 1;
  for (const double value : e) largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  for (std::size_t i = 0; i < e.size(); ++i) {
    if (a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i])) || std::abs(a[i] - e[i]) <= tolerance * largest) continue;
    return testing::AssertionFailure() << "element " << i << " is " << a[i] << ", expected " << e[i] << ", the largest being " << largest;
  }
  return testing::AssertionSuccess();
}

inline void expect_close(const ChainResults& actual, const ChainResults& expected, double tolerance, double gradient_tolerance) {
  EXPECT_TRUE(close(actual.output, expected.output, tolerance));
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    EXPECT_TRUE(close(actual.gradients[i], expected.gradients[i], gradient_tolerance)) << "gradient of input " << i;
  }
}

inline void expect_like_decomposed(const char* name, const ops::Attributes& attributes, const std::vector<Tensor>& inputs, double tolerance,
                                   double gradient_tolerance) {
  expect_close(run_chain(name, attributes, inputs, /*decomposed=*/false), run_chain(name, attributes, inputs, /*decomposed=*/true),
               tolerance, gradient_tolerance);
}

/// The float32 result is close to what the decomposed chain gives in float64 for the same numbers.
inline void expect_accurate(const char* name, const ops::Attributes& attributes, const std::vector<Tensor>& inputs, double tolerance,
                            double gradient_tolerance) {
  std::vector<Tensor> wide;
  for (const Tensor& input : inputs) wide.push_back(input.to(DType::f64));
  const ChainResults expected = run_chain(name, attributes, wide, /*decomposed=*/true);
  const Tensor seed = normal_tensor(expected.output.shape(), DType::f32, 99);
  expect_close(run_chain(name, attributes, inputs, /*decomposed=*/false, seed),
               run_chain(name, attributes, wide, /*decomposed=*/true, seed.to(DType::f64)), tolerance, gradient_tolerance);
}

inline void expect_equal_for_any_thread_count(const char* name, const ops::Attributes& attributes, const std::vector<Tensor>& inputs) {
  const int before = thread_count();
  set_thread_count(1);
  const ChainResults expected = run_chain(name, attributes, inputs, /*decomposed=*/false);
  for (const int threads : {2, 3, 8}) {
    set_thread_count(threads);
    SCOPED_TRACE(concat(threads, " threads"));
    expect_close(run_chain(name, attributes, inputs, /*decomposed=*/false), expected, 0, 0);
  }
  set_thread_count(before);
}

/// How many nodes of this operator the fusion pass makes of the graph.
inline std::size_t fused_nodes(const Graph& graph, std::string_view name) {
  const Graph fused = graph::fuse(graph);
  std::size_t count = 0;
  for (const graph::Node* node : fused.all(graph::NodeKind::operation)) count += node->op->name == name;
  return count;
}

inline std::string refusal(const char* name, const ops::Attributes& attributes, const std::vector<Shape>& shapes) {
  std::vector<TensorType> types;
  for (const Shape& shape : shapes) types.push_back({DType::f32, shape});
  return message_of([&] { ops::registry().find(name).infer_types(types, attributes); });
}

}  // namespace frit
