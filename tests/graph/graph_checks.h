#pragma once

// What the tests of passes share.

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

#include "frit/autograd/gradient.h"
#include "frit/core/random.h"
#include "frit/graph/executable.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/reduction/reduction.h"

namespace frit {

using graph::NodeKind;

inline std::size_t operations(const Graph& graph) { return graph.all(NodeKind::operation).size(); }

inline std::size_t count(const Graph& graph, std::string_view op) {
  std::size_t found = 0;
  for (const graph::Node* node : graph.all(NodeKind::operation)) found += node->op->name == op;
  return found;
}

inline Initializer filled(double value) {
  return [value](const Tensor& tensor, std::uint64_t) { tensor.fill(value); };
}
inline Initializer zeros() { return filled(0); }

/// Normally distributed.
inline Bindings random_inputs(const Graph& graph) {
  Bindings inputs;
  for (const graph::Node* node : graph.all(NodeKind::input)) {
    const TensorType& type = graph.type(node->outputs[0]);
    const Tensor tensor = Tensor::empty(type.shape, DType::f64);
    fill_normal(tensor, 0, 1, 3, inputs.size());
    inputs[node->name] = tensor.to(type.dtype);
  }
  return inputs;
}

/// An output, of a run with a state of its own.
inline std::vector<double> run(const Graph& graph, const Bindings& inputs, const std::string& output) {
  State state;
  graph::Executable executable(graph, state);
  executable.run(inputs);
  return executable.output(output).to_vector<double>();
}

/// Of the outputs and of all gradients.
inline void expect_equal_results(const Graph& a, const Graph& b) {
  const auto results = [](Graph graph) {
    Values variables;
    for (const graph::Node* node : graph.all(NodeKind::variable)) variables.push_back(graph.value(node->outputs[0]));
    const Value y = graph.value(graph.outputs()[0].value);
    const Values gradients = gradient(sum(y * y), variables);
    for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat("gradient ", i), gradients[i]);
    State state;
    graph::Executable executable(graph, state);
    Tensor x = Tensor::empty({2, 3, 14, 14}, DType::f64);
    fill_normal(x, 0, 1, 1, 1);
    executable.run({{"x", x}});
    std::vector<std::vector<double>> found;
    for (const graph::Output& output : executable.graph().outputs()) found.push_back(executable.output(output.name).to_vector<double>());
    return found;
  };
  const auto left = results(a), right = results(b);
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    ASSERT_EQ(left[i].size(), right[i].size());
    for (std::size_t k = 0; k < left[i].size(); ++k) EXPECT_NEAR(left[i][k], right[i][k], 1e-10 * (1 + std::abs(left[i][k])));
  }
}

}  // namespace frit
