#include <cmath>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// An update may change what a variable's memory holds, so that a copy of it is not the same value.
bool lies_in_variable(const Graph& graph, int value) { return graph.producer(source_of(graph, value)).kind == NodeKind::variable; }

bool holds(const Graph& graph, int value, double number) {
  const Node& node = graph.producer(value);
  if (node.kind != NodeKind::constant || node.constant.elements() != 1) return false;
  const double held = node.constant.item();
  const bool signed_zeros = is_floating(node.constant.dtype());
  return held == number && (!signed_zeros || std::signbit(held) == std::signbit(number));
}

/// The input that the node gives back as it is; -1: none.
int unchanged_input(const Graph& graph, const Node& node) {
  if (node.kind != NodeKind::operation || !node.op->neutral) return -1;
  for (const std::size_t place : {std::size_t{0}, std::size_t{1}}) {
    const int input = node.inputs[place];
    const bool same = graph.type(input) == graph.type(node.outputs[0]) && holds(graph, node.inputs[1 - place], *node.op->neutral);
    if (same && !lies_in_variable(graph, input)) return input;
    if (!node.op->commutative) break;
  }
  return -1;
}

}  // namespace

Graph drop_neutral_operands(const Graph& graph) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const int unchanged = unchanged_input(graph, node);
    if (unchanged < 0) {
      rewriter.copy(node);
    } else {
      rewriter.map(node.outputs[0], rewriter(unchanged));
    }
  }
  return remove_dead_code(rewriter.finish());
}

}  // namespace frit::graph
