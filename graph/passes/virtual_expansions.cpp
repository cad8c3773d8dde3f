#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// The value that an operation repeats to give this one; -1: it is not made so. A variable may have been updated since.
int repeated_by(const Graph& graph, int value) {
  const Node& node = graph.producer(value);
  if (node.kind != NodeKind::operation || !node.op->repeats) return -1;
  return graph.producer(node.inputs[0]).kind == NodeKind::variable ? -1 : node.inputs[0];
}

/// The node's inputs, those that were repeated as they were before, as long as its result stays the same.
std::vector<int> unrepeated_inputs(const Graph& graph, const Node& node) {
  std::vector<int> inputs = node.inputs;
  std::vector<TensorType> types;
  for (const int id : inputs) types.push_back(graph.type(id));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (int source = repeated_by(graph, inputs[i]); source >= 0; source = repeated_by(graph, inputs[i])) {
      const TensorType before = types[i];
      types[i] = graph.type(source);
      if (!(node.op->infer_types(types, node.attributes)[0] == graph.type(node.outputs[0]))) {
        types[i] = before;
        break;
      }
      inputs[i] = source;
    }
  }
  return inputs;
}

}  // namespace

Graph read_through_expansions(const Graph& graph) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (node.kind != NodeKind::operation || !node.op->elementwise || !node.op->mutates.empty()) {
      rewriter.copy(node);
      continue;
    }
    Node virtually = node;
    virtually.inputs = unrepeated_inputs(graph, node);
    rewriter.copy(virtually);
  }
  return remove_dead_code(rewriter.finish());
}

}  // namespace frit::graph
