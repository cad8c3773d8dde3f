#include <algorithm>

#include "frit/graph/index.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

int axis_of(const Graph& graph, const Node& join) { return join.op->joins(join.attributes, graph.type(join.outputs[0]).shape.rank()); }

/// Inputs [begin, end) of a join, and the earlier one that joins them.
struct Run {
  std::ptrdiff_t begin = 0, end = 0;
  const Node* joined_by = nullptr;
};

Run longest_run(const Graph& graph, const Node& join, const std::vector<const Node*>& earlier) {
  Run longest;
  for (const Node* const other : earlier) {
    const auto count = static_cast<std::ptrdiff_t>(other->inputs.size());
    if (other->op != join.op || count <= longest.end - longest.begin || axis_of(graph, *other) != axis_of(graph, join)) continue;
    const auto place = std::search(join.inputs.begin(), join.inputs.end(), other->inputs.begin(), other->inputs.end());
    if (place == join.inputs.end() || other->inputs.size() == join.inputs.size()) continue;
    longest = {place - join.inputs.begin(), place - join.inputs.begin() + count, other};
  }
  return longest;
}

}  // namespace

Graph nest_joins(const Graph& graph) {
  Rewriter rewriter(graph);
  std::vector<const Node*> joins;
  for (const Node& node : graph.nodes()) {
    if (node.kind != NodeKind::operation || !node.op->joins) {
      rewriter.copy(node);
      continue;
    }
    if (const Run run = longest_run(graph, node, joins); run.joined_by != nullptr) {
      std::vector<int> inputs = node.inputs;
      inputs.erase(inputs.begin() + run.begin + 1, inputs.begin() + run.end);
      inputs[index(static_cast<int>(run.begin))] = run.joined_by->outputs[0];
      rewriter.map(node.outputs[0], rewriter.target().emit(*node.op, rewriter(inputs), node.attributes)[0]);
    } else {
      rewriter.copy(node);
    }
    if (node.inputs.size() > 1) joins.push_back(&node);
  }
  return rewriter.finish();
}

}  // namespace frit::graph
