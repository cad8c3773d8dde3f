#pragma once

#include <gtest/gtest.h>

#include "frit/autograd/gradient.h"
#include "frit/core/random.h"
#include "frit/graph/executable.h"
#include "frit/graph/pipeline.h"

// For tests of other ways to compute a convolution: graphs whose inputs are "0", "1", ... and whose output is "result".

namespace frit::convolution_graphs {

inline std::size_t count(const Graph& graph, std::string_view op) {
  std::size_t found = 0;
  for (const graph::Node* node : graph.all(graph::NodeKind::operation)) found += node->op->name == op;
  return found;
}

/// The result and the gradients of all inputs, the result's gradient being a fixed random tensor.
inline std::vector<Tensor> run_with_gradients(Graph graph) {
  const Value result = graph.output_value("result");
  const Tensor seed = Tensor::empty(result.shape(), result.dtype());
  fill_normal(seed, 0, 1, 7, 7);
  const Value seed_value = graph.constant(seed);
  Values inputs;
  Bindings bindings;
  for (const graph::Node* node : graph.all(graph::NodeKind::input)) inputs.push_back(graph.value(node->outputs[0]));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensor& input = bindings[concat(i)] = Tensor::empty(inputs[i].shape(), inputs[i].dtype());
    fill_normal(input, 0, 1, 3, i);
  }
  const Values gradients = gradient(std::span(&result, 1), std::span(&seed_value, 1), inputs);
  for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat("gradient ", i), gradients[i]);
  State state;
  graph::Executable executable(graph::apply(graph::cleanup_pipeline(), std::move(graph)), state);
  executable.run(bindings);
  std::vector<Tensor> results = {executable.output("result").clone()};
  for (std::size_t i = 0; i < gradients.size(); ++i) results.push_back(executable.output(concat("gradient ", i)).clone());
  return results;
}

inline void expect_equal(const Graph& plain, const Graph& other) {
  const std::vector<Tensor> expected = run_with_gradients(plain), found = run_with_gradients(other);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::vector<double> e = expected[i].to_vector<double>(), f = found[i].to_vector<double>();
    ASSERT_EQ(f.size(), e.size()) << "result " << i;
    double largest = 1;
    for (const double value : e) largest = std::max(largest, std::abs(value));
    for (std::size_t k = 0; k < e.size(); ++k) ASSERT_NEAR(f[k], e[k], 1e-10 * largest) << "result " << i << ", element " << k;
  }
}

}  // namespace frit::convolution_graphs
