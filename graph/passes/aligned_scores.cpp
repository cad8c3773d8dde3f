#include <algorithm>
#include <cmath>

#include "frit/graph/index.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"
#include "frit/ops/operator/run.h"

namespace frit::graph {
namespace {

/// Elements by which rows are short of whole vectors of 16 bytes.
std::int64_t missing_elements(const TensorType& type) {
  const std::int64_t lanes = 16 / static_cast<std::int64_t>(size_of(type.dtype));
  return (lanes - type.shape.back() % lanes) % lanes;
}

/// Whether the rule gives something for a node's call, whose input 0 may come longer.
bool applies(const ops::LongerRowsRule& rule, const Graph& graph, const Node& node, std::int64_t more, bool longer) {
  if (!rule) return false;
  Graph call;
  Values inputs;
  for (const int id : node.inputs) {
    Shape shape = graph.type(id).shape;
    if (inputs.empty() && longer) shape[shape.rank() - 1] += more;
    inputs.push_back(call.input(concat("input ", inputs.size()), shape, graph.type(id).dtype));
  }
  return static_cast<bool>(rule(inputs, node.attributes, more));
}

class ScoreAligner {
 public:
  ScoreAligner(const Graph& graph, std::int64_t least_bytes)
      : graph_(graph), uses_(use_counts(graph)), readers_(uses_.size(), nullptr), more_(uses_.size(), 0), rewriter_(graph) {
    for (const Node& node : graph.nodes()) {
      for (const int id : node.inputs) readers_[index(id)] = &node;
    }
    for (const Node* node : graph.all(NodeKind::operation)) {
      if (node->op->of_longer_rows && graph.type(node->outputs[0]).bytes() >= least_bytes) mark(*node);
    }
  }

  Graph run() {
    for (const Node& node : graph_.nodes()) {
      const auto is_longer = [&](int id) { return more_[index(id)] > 0; };
      const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(), is_longer);
      if (reads || std::any_of(node.outputs.begin(), node.outputs.end(), is_longer)) {
        rewriter_.map(node.outputs[0], longer(node));
      } else {
        rewriter_.copy(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  /// Weights of scores that a product gives, for another product; nothing else reads either.
  void mark(const Node& weighting) {
    const int given = weighting.inputs[0], weights = weighting.outputs[0];
    if (weighting.op->longer_rows || graph_.type(given).shape != graph_.type(weights).shape || !read_once(weights)) return;
    const Node& reader = *readers_[index(weights)];
    const std::vector<int> scores = scores_from(given);
    if (scores.empty() || reader.inputs[0] != weights) return;
    const std::int64_t more = missing_elements(graph_.type(scores.front()));
    const bool all_apply = applies(graph_.producer(scores.front()).op->longer_rows, graph_, graph_.producer(scores.front()), more, false) &&
                           applies(weighting.op->of_longer_rows, graph_, weighting, more, true) &&
                           applies(reader.op->of_longer_rows, graph_, reader, more, true);
    if (more == 0 || !all_apply || !stay_finite(scores)) return;
    for (const int id : scores) more_[index(id)] = more;
    more_[index(weights)] = more;
  }

  bool read_once(int id) const { return uses_[index(id)] == 1 && readers_[index(id)] != nullptr; }

  /// A product's result, and what elementwise operators make of it, up to this value; empty if it is not made so.
  std::vector<int> scores_from(int id) const {
    const Node& node = graph_.producer(id);
    const DType dtype = graph_.type(id).dtype;
    if (node.kind != NodeKind::operation || !read_once(id) || (dtype != DType::f32 && !is_half(dtype))) return {};
    if (node.op->longer_rows) return {id};
    if (!node.op->elementwise || node.outputs.size() != 1) return {};
    for (const int input : node.inputs) {
      std::vector<int> scores = graph_.type(input).shape == graph_.type(id).shape ? scores_from(input) : std::vector<int>();
      if (scores.empty()) continue;
      scores.push_back(id);
      return scores;
    }
    return {};
  }

  /// Scores of 0, where the other operands are ones.
  bool stay_finite(const std::vector<int>& scores) const {
    Tensor score = Tensor::zeros({}, graph_.type(scores.front()).dtype);
    for (std::size_t i = 1; i < scores.size(); ++i) {
      const Node& node = graph_.producer(scores[i]);
      std::vector<Tensor> operands;
      for (const int id : node.inputs) operands.push_back(id == scores[i - 1] ? score : Tensor::full({}, 1, graph_.type(id).dtype));
      score = ops::run(*node.op, operands, node.attributes).at(0);
    }
    return std::isfinite(score.item());
  }

  Value longer(const Node& node) {
    Values inputs = rewriter_(node.inputs);
    const std::int64_t given = more_[index(node.inputs[0])], made = more_[index(node.outputs[0])];
    if (!node.op->elementwise) {
      const ops::LongerRowsRule& rule = given > 0 ? node.op->of_longer_rows : node.op->longer_rows;
      return rule(inputs, node.attributes, std::max(given, made));
    }
    const std::int64_t length = graph_.type(node.outputs[0]).shape.back();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Shape& shape = inputs[i].shape();
      if (more_[index(node.inputs[i])] == 0 && length > 1 && shape.rank() > 0 && shape.back() == length) {
        inputs[i] = ops::lengthened(inputs[i], -1, made, 1);
      }
    }
    return rewriter_.target().emit(*node.op, inputs, node.attributes).at(0);
  }

  const Graph& graph_;
  std::vector<int> uses_;
  std::vector<const Node*> readers_;  // by value: the last
  std::vector<std::int64_t> more_;    // by value: elements that its rows get
  Rewriter rewriter_;
};

}  // namespace

Graph align_scores(const Graph& graph, std::int64_t least_bytes) { return ScoreAligner(graph, least_bytes).run(); }

}  // namespace frit::graph
