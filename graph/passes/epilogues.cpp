#include <algorithm>
#include <optional>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"
#include "frit/ops/operator/elementwise_program.h"

namespace frit::graph {
namespace {

/// An operation with the elementwise ones after it that it takes over.
struct Chain {
  std::vector<std::size_t> nodes;  ///< in order
  std::vector<int> inputs;         ///< value ids
  std::optional<ops::OperatorCall> call = {};
};

class Epilogues {
 public:
  explicit Epilogues(const Graph& graph)
      : graph_(graph), uses_(use_counts(graph)), reader_(uses_.size()), chained_(graph.nodes().size(), false), rewriter_(graph) {
    for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
      for (const int id : graph.nodes()[n].inputs) reader_[static_cast<std::size_t>(id)] = n;
    }
  }

  /// The later of two operations whose results are added up takes the addition: the other's is the residual.
  Graph run() {
    std::vector<Chain> chains(graph_.nodes().size());  // by their last node
    for (std::size_t n = graph_.nodes().size(); n-- > 0;) {
      Chain chain = chain_from(n);
      if (!chain.call) continue;
      for (const std::size_t member : chain.nodes) chained_[member] = true;
      chains[chain.nodes.back()] = std::move(chain);
    }
    for (std::size_t n = 0; n < chains.size(); ++n) {
      if (chains[n].call) {
        emit(chains[n]);
      } else if (!chained_[n]) {
        rewriter_.copy(graph_.nodes()[n]);
      }
    }
    return rewriter_.finish();
  }

 private:
  /// As long as the operation's rule allows.
  Chain chain_from(std::size_t first) const {
    const Node& root = graph_.nodes()[first];
    Chain chain{{first}, root.inputs};
    if (root.kind != NodeKind::operation || !root.op->epilogue || root.outputs.size() != 1) return chain;
    ops::ElementwiseProgram program;
    program.inputs = 1;
    std::vector<int> operands = root.outputs;  // of the program
    for (int value = root.outputs[0]; uses_[static_cast<std::size_t>(value)] == 1;) {
      const std::size_t n = reader_[static_cast<std::size_t>(value)];
      const Node& node = graph_.nodes()[n];
      if (!joins(chain.nodes.back(), value, n)) return chain;
      std::vector<int> longer = operands;
      ops::ElementwiseProgram longer_program = with(program, node, value, longer);
      const auto call = root.op->epilogue(root.attributes, longer_program, types_of(longer));
      if (!call) return chain;
      program = std::move(longer_program);
      operands = std::move(longer);
      value = node.outputs[0];
      chain.nodes.push_back(n);
      chain.call = call;
      chain.inputs = root.inputs;
      chain.inputs.insert(chain.inputs.end(), operands.begin() + 1, operands.end());
    }
    return chain;
  }

  /// Whether the node, the one reader of the value, can be computed with it and all before, which then come later: after no update.
  bool joins(std::size_t last, int value, std::size_t n) const {
    const Node& node = graph_.nodes()[n];
    const auto computes = [&](const Node& other) { return other.kind != NodeKind::operation || other.op->mutates.empty(); };
    const bool reads = std::find(node.inputs.begin(), node.inputs.end(), value) != node.inputs.end();  // it may be the graph's output
    if (!reads || chained_[n] || node.kind != NodeKind::operation || !node.op->elementwise || node.outputs.size() != 1) return false;
    const auto nodes = graph_.nodes().begin();
    return graph_.type(node.outputs[0]) == graph_.type(value) &&
           std::all_of(nodes + static_cast<std::ptrdiff_t>(last), nodes + static_cast<std::ptrdiff_t>(n) + 1, computes);
  }

  /// The program with the node's operator added, whose further operands are added to the program's.
  ops::ElementwiseProgram with(const ops::ElementwiseProgram& program, const Node& node, int value, std::vector<int>& operands) const {
    const int before = program.inputs;
    for (const int id : node.inputs) {
      if (id != value) operands.push_back(id);
    }
    ops::ElementwiseProgram longer = program;
    longer.inputs = static_cast<int>(operands.size());
    const auto moved = [&](int& number) { number += number < before ? 0 : longer.inputs - before; };  // results come after the inputs
    for (auto& instruction : longer.instructions) std::for_each(instruction.operands.begin(), instruction.operands.end(), moved);
    std::vector<int> numbers;
    int next = before;
    const int result = program.instructions.empty() ? 0 : longer.values() - 1;
    for (const int id : node.inputs) numbers.push_back(id == value ? result : next++);
    longer.instructions.push_back({node.op, node.attributes, std::move(numbers)});
    longer.outputs = {longer.values() - 1};
    return longer;
  }

  std::vector<TensorType> types_of(const std::vector<int>& ids) const {
    std::vector<TensorType> types;
    for (const int id : ids) types.push_back(graph_.type(id));
    return types;
  }

  void emit(const Chain& chain) {
    const Values outputs = rewriter_.target().emit(*chain.call->op, rewriter_(chain.inputs), chain.call->attributes);
    rewriter_.map(graph_.nodes()[chain.nodes.back()].outputs[0], outputs[0]);
  }

  const Graph& graph_;
  std::vector<int> uses_;
  std::vector<std::size_t> reader_;  // by value: the last node that reads it
  std::vector<bool> chained_;
  Rewriter rewriter_;
};

}  // namespace

Graph grow_epilogues(const Graph& graph) { return Epilogues(graph).run(); }

}  // namespace frit::graph
