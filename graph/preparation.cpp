#include "frit/graph/preparation.h"

#include <algorithm>

#include "frit/graph/index.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// A result that takes more bytes than these must not take more than so many times what it is computed from.
constexpr std::int64_t small_bytes = 64 * 1024;
constexpr std::int64_t most_growth = 4;

std::int64_t bytes_of(const Graph& graph, const std::vector<int>& values) {
  std::int64_t bytes = 0;
  for (const int id : values) bytes += graph.type(id).bytes();
  return bytes;
}

/// By value id: variables that the graph updates.
std::vector<bool> updated_values(const Graph& graph) {
  std::vector<bool> updated(index(graph.value_count()), false);
  for (const Node* node : graph.all(NodeKind::operation)) {
    for (const int input : node->op->mutates) {
      if (index(input) < node->inputs.size()) updated[index(node->inputs[index(input)])] = true;
    }
  }
  return updated;
}

}  // namespace

std::vector<bool> given_values(const Graph& graph) {
  std::vector<bool> given(index(graph.value_count()), false);
  for (const Output& output : graph.outputs()) {
    given[index(output.value)] = true;
    const Node* producer = &graph.producer(output.value);
    for (; producer->kind == NodeKind::operation && producer->op->view; producer = &graph.producer(producer->inputs[0])) {
      given[index(producer->inputs[0])] = true;
    }
  }
  return given;
}

std::vector<bool> find_preparation(const Graph& graph) {
  const std::vector<bool> updated = updated_values(graph), given = given_values(graph);
  std::vector<bool> fixed(index(graph.value_count()), false), prepared(graph.nodes().size(), false);  // fixed: from run to run
  const auto is_fixed = [&](int id) { return fixed[index(id)]; };
  const auto is_given = [&](int id) { return given[index(id)]; };
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    bool holds = node.kind == NodeKind::constant || (node.kind == NodeKind::variable && !updated[index(node.outputs[0])]);
    if (node.kind == NodeKind::operation) {
      const bool small = bytes_of(graph, node.outputs) <= std::max(small_bytes, most_growth * bytes_of(graph, node.inputs));
      holds = prepared[n] = !node.op->collective && std::all_of(node.inputs.begin(), node.inputs.end(), is_fixed) &&
                            std::none_of(node.outputs.begin(), node.outputs.end(), is_given) && small;
    }
    for (const int id : node.outputs) fixed[index(id)] = holds;
  }
  return prepared;
}

std::vector<bool> fixed_values(const Graph& graph) {
  const std::vector<bool> prepared = find_preparation(graph), updated = updated_values(graph);
  std::vector<bool> fixed(index(graph.value_count()), false);
  for (std::size_t n = 0; n < prepared.size(); ++n) {
    const Node& node = graph.nodes()[n];
    for (const int id : node.outputs) {
      fixed[index(id)] = prepared[n] || node.kind == NodeKind::constant || (node.kind == NodeKind::variable && !updated[index(id)]);
    }
  }
  return fixed;
}

Graph bring_preparation_first(const Graph& graph) {
  const std::vector<bool> prepared = find_preparation(graph);
  if (std::none_of(prepared.begin(), prepared.end(), [](bool is) { return is; })) return graph;
  Rewriter rewriter(graph);
  const auto copy = [&](auto chosen) {
    for (std::size_t n = 0; n < prepared.size(); ++n) {
      if (chosen(graph.nodes()[n].kind == NodeKind::operation, prepared[n])) rewriter.copy(graph.nodes()[n]);
    }
  };
  copy([](bool operation, bool) { return !operation; });
  copy([](bool, bool of_preparation) { return of_preparation; });
  copy([](bool operation, bool of_preparation) { return operation && !of_preparation; });
  return rewriter.finish();
}

}  // namespace frit::graph
