#pragma once

// What the tests of chains share.

#include "frit/graph/pipeline.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_attributes.h"
#include "graph/graph_checks.h"
#include "ops/operator_checks.h"

namespace frit {

class Chains : public testing::Test {
 protected:
  Value input(const char* name, const Shape& shape) { return graph_.input(name, shape); }

  static std::string text_of(const Graph& graph, std::string_view op) {
    std::string text;
    for (const graph::Node* node : graph.all(NodeKind::operation)) {
      if (node->op->name == op) text += graph::to_text(graph, *node) + '\n';
    }
    return text;
  }

  static Bindings bindings_of(const Graph& graph) {
    Bindings inputs;
    for (const graph::Node* node : graph.all(NodeKind::input)) {
      const TensorType& type = graph.type(node->outputs[0]);
      const Tensor tensor = Tensor::empty(type.shape);
      node->name.starts_with("rstd") ? fill_uniform(tensor, 0.5, 2, 3, 1) : fill_normal(tensor, 0, 1, 3, stream_of(node->name));
      inputs[node->name] = tensor.to(type.dtype);
    }
    return inputs;
  }

  static std::map<std::string, Tensor> results_of(const Graph& graph, Device device = {}) {
    const Bindings inputs = bindings_of(graph);
    State state(device);
    graph::Executable executable(graph, state);
    for (int run = 0; run < 3; ++run) executable.run(inputs);  // on a GPU the second is recorded, the third is the record
    std::map<std::string, Tensor> results;
    for (const graph::Output& output : graph.outputs()) results[output.name] = executable.output(output.name).to(Device::cpu()).clone();
    return results;
  }

  /// The chains that the graph becomes, which gives the same.
  static std::string grown(const Graph& graph) {
    const Graph result = graph::grow_chains(graph);
    graph::verify(result);
    const auto expected = results_of(graph), found = results_of(result);
    for (const auto& [name, tensor] : expected) {
      EXPECT_TRUE(near(found.at(name), tensor, 1e-5, largest_finite(tensor))) << name << '\n' << graph::to_text(result);
    }
    return text_of(result, "chain");
  }

  /// What the norm's backward gives of a gradient.
  Value backward(Value gradient, Value x) {
    const auto statistic = [&](const char* name) { return graph_.input(name, {x.dim(1)}, DType::f64); };
    const Value inputs[] = {gradient, x, statistic("mean"), statistic("rstd")};
    const Values outputs = ops::emit("batch_norm_backward", inputs, ops::BatchNormAttributes{});
    graph_.output("db", outputs[2]);
    return outputs[0];
  }

  const Shape image_ = {2, 4, 3, 5};
  Graph graph_;
  Value x_ = graph_.input("x", image_), g_ = graph_.input("g", image_);
};

/// Training of activations between norms, the second of which follows an addition.
inline Graph training_graph(DType dtype, const Shape& shape, bool batch) {
  Graph graph;
  const Value x = graph.input("images", shape, dtype), residual = graph.input("residual", shape, dtype);
  const Value weight = graph.input("weight", {shape[1]}, dtype), bias = graph.input("bias", {shape[1]}, dtype);
  const auto variable = [&](const char* name, double value) {
    const auto fill = [=](const Tensor& tensor, std::uint64_t) { tensor.fill(value); };
    return graph.variable(name, {dtype == DType::f64 ? DType::f64 : DType::f32, {shape[1]}}, fill);
  };
  const Value first = batch ? batch_norm(x, weight, bias, variable("mean", 0), variable("variance", 1)) : instance_norm(x, weight, bias);
  const Value y = silu(group_norm(relu(first) + residual, 4, weight, bias));
  const Values gradients = gradient(sum(y * y), std::vector{x, weight, residual});
  graph.output("dx", gradients[0]);
  graph.output("dweight", gradients[1]);
  graph.output("dresidual", gradients[2]);
  return graph;
}

}  // namespace frit
