#include <algorithm>
#include <optional>

#include "frit/graph/index.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// A norm that is computed with what gives its input, by an operator with these attributes.
struct JoinedNorm {
  int producer;  ///< node index
  const ops::Operator* op;
  std::vector<int> inputs;  ///< value ids
  ops::Attributes attributes;
};

class Norms {
 public:
  explicit Norms(const Graph& graph)
      : graph_(graph), uses_(use_counts(graph)), joined_(graph.nodes().size()), taken_(graph.nodes().size(), false) {
    for (std::size_t n = 0; n < joined_.size(); ++n) {
      std::optional<JoinedNorm> norm = joined(static_cast<int>(n));
      if (!norm || taken_[index(norm->producer)]) continue;
      taken_[index(norm->producer)] = true;
      joined_[n] = std::move(norm);
    }
  }

  Graph run() const {
    Rewriter rewriter(graph_);
    for (std::size_t n = 0; n < joined_.size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (!joined_[n]) {
        if (!taken_[n]) rewriter.copy(node);
        continue;
      }
      const Values outputs = rewriter.target().emit(*joined_[n]->op, rewriter(joined_[n]->inputs), joined_[n]->attributes);
      rewriter.map(node.inputs[0], outputs[0]);
      for (std::size_t i = 1; i < outputs.size(); ++i) rewriter.map(node.outputs[i], outputs[i]);
    }
    return rewriter.finish();
  }

 private:
  std::optional<JoinedNorm> joined(int n) const {
    const Node& node = graph_.nodes()[index(n)];
    if (node.kind != NodeKind::operation || !node.op->reads_moments || uses_[index(node.outputs[0])] > 0) return std::nullopt;
    const int image = node.inputs[0], producer = graph_.producer_index(image);
    const Node& given_by = graph_.nodes()[index(producer)];
    if (given_by.kind != NodeKind::operation || given_by.outputs != std::vector{image} || !may_wait(producer, n)) return std::nullopt;
    JoinedNorm result{producer, nullptr, given_by.inputs, {}};
    result.inputs.insert(result.inputs.end(), node.inputs.begin() + 1, node.inputs.end());
    for (const ops::Operator* op : ops::registry().all()) {
      if (!op->cuda.join_norm) continue;
      const auto attributes = op->cuda.join_norm({given_by.op, given_by.attributes}, {node.op, node.attributes},
                                                 graph_.types(result.inputs), static_cast<std::int64_t>(node.inputs.size()) - 1);
      if (!attributes) continue;
      result.op = op, result.attributes = *attributes;
      return result;
    }
    return std::nullopt;
  }

  /// Whether an operation may be computed as late as a later one.
  bool may_wait(int n, int until) const {
    const int image = graph_.nodes()[index(n)].outputs[0];
    return std::all_of(graph_.nodes().begin() + n + 1, graph_.nodes().begin() + until, [&](const Node& node) {
      const bool updates = node.kind == NodeKind::operation && !node.op->mutates.empty();
      return !updates && std::find(node.inputs.begin(), node.inputs.end(), image) == node.inputs.end();
    });
  }

  const Graph& graph_;
  std::vector<int> uses_;
  std::vector<std::optional<JoinedNorm>> joined_;  // by the norm's node
  std::vector<bool> taken_;                        // by node: it is computed with its norm
};

}  // namespace

Graph join_norms(const Graph& graph) { return Norms(graph).run(); }

}  // namespace frit::graph
