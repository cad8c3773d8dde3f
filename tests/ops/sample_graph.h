#pragma once

// An operator's sample as a graph of its own, with its gradients.

#include "frit/autograd/gradient.h"
#include "frit/graph/executable.h"
#include "frit/graph/pipeline.h"
#include "ops/operator_checks.h"

namespace frit {

/// The sample as a graph: inputs "0", "1", ... (variables where they are updated in place), every result an output.
struct SampleGraph {
  Graph graph;
  Values inputs, results;
  Bindings bindings;
  std::shared_ptr<State> state = std::make_shared<State>();
};

inline std::unique_ptr<SampleGraph> graph_of(const Operator& op, const Sample& sample, const std::vector<Tensor>& tensors,
                                             bool decomposed) {
  auto built = std::make_unique<SampleGraph>();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = concat(i);
    if (mutates(op, i)) {
      const auto initialize = [value = tensors[i]](const Tensor& variable, std::uint64_t) { copy(variable, value); };
      built->inputs.push_back(built->graph.variable(name, {tensors[i].dtype(), tensors[i].shape()}, initialize));
    } else {
      built->inputs.push_back(built->graph.input(name, tensors[i].shape(), tensors[i].dtype()));
      built->bindings[name] = tensors[i];
    }
  }
  built->results =
      decomposed ? op.decompose(built->graph, built->inputs, sample.attributes) : built->graph.emit(op, built->inputs, sample.attributes);
  return built;
}

/// The gradients of result 0 by the floating inputs, seeded with fixed random numbers; none where there is no rule.
inline Values gradients_of(const Operator& op, SampleGraph& built) {
  const Value result = built.results[0];
  if (!is_floating(result.dtype()) || !op.gradient) return {};
  const Tensor seed = Tensor::empty(result.shape(), result.dtype());
  fill_normal(seed, 0, 1, 5, 5);
  const Value seed_value = built.graph.constant(seed);
  Values with_respect_to;
  for (const Value& input : built.inputs) {
    if (is_floating(input.dtype()) && built.bindings.contains(built.graph.producer(input.id()).name)) with_respect_to.push_back(input);
  }
  return gradient(std::span(&result, 1), std::span(&seed_value, 1), with_respect_to);
}

}  // namespace frit
