#include <algorithm>
#include <optional>

#include "frit/graph/index.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// A permutation's result as an operation reads it, and what single numbers make of its elements in between.
struct PermutedOperand {
  const Node* permutation = nullptr;
  std::vector<const Node*> scalings = {};  ///< the last first
};

class OperandRewriter {
 public:
  explicit OperandRewriter(const Graph& graph) : graph_(graph), uses_(use_counts(graph)), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : graph_.nodes()) {
      node.kind == NodeKind::operation&& node.op->before_permutation ? rewrite(node) : rewriter_.copy(node);
    }
    return remove_dead_code(rewriter_.finish());
  }

 private:
  void rewrite(const Node& node) {
    Values inputs = rewriter_(node.inputs);
    ops::Attributes attributes = node.attributes;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::optional<PermutedOperand> operand = permuted(node.inputs[i]);
      if (!operand) continue;
      const Dims axes = operand->permutation->op->permutation(operand->permutation->attributes);
      const std::optional<ops::Attributes> before = node.op->before_permutation(i, axes, attributes);
      if (!before) continue;
      attributes = *before;
      inputs[i] = unpermuted(*operand);
    }
    rewriter_.map(node.outputs[0], rewriter_.target().emit(*node.op, inputs, attributes).at(0));
  }

  /// Only where nothing else reads what is left out.
  std::optional<PermutedOperand> permuted(int id) const {
    PermutedOperand found;
    for (const Node* node = &graph_.producer(id); uses_[index(id)] == 1; node = &graph_.producer(id)) {
      if (node->kind != NodeKind::operation) break;
      if (node->op->permutation) {
        found.permutation = node;
        return found;
      }
      const std::optional<std::size_t> scaled = scaled_input(*node);
      if (!scaled) break;
      found.scalings.push_back(node);
      id = node->inputs[*scaled];
    }
    return std::nullopt;
  }

  /// The input of an elementwise operation whose others are single numbers.
  std::optional<std::size_t> scaled_input(const Node& node) const {
    if (!node.op->elementwise || node.outputs.size() != 1) return std::nullopt;
    std::optional<std::size_t> scaled;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorType& type = graph_.type(node.inputs[i]);
      if (type.elements() == 1 && type.shape.rank() <= 1) continue;
      if (scaled || type.shape != graph_.type(node.outputs[0]).shape) return std::nullopt;
      scaled = i;
    }
    return scaled;
  }

  Value unpermuted(const PermutedOperand& operand) {
    Value value = rewriter_(operand.permutation->inputs[0]);
    for (auto place = operand.scalings.rbegin(); place != operand.scalings.rend(); ++place) {
      const Node& node = **place;
      Values inputs = rewriter_(node.inputs);
      inputs[*scaled_input(node)] = value;
      value = rewriter_.target().emit(*node.op, inputs, node.attributes).at(0);
    }
    return value;
  }

  const Graph& graph_;
  std::vector<int> uses_;
  Rewriter rewriter_;
};

}  // namespace

Graph read_before_permutations(const Graph& graph) { return OperandRewriter(graph).run(); }

}  // namespace frit::graph
