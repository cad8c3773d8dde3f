#include <algorithm>
#include <map>
#include <optional>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

// A fused operator's decomposition is its pattern. It is traced into a small graph and laid over the user's graph from the root upwards:
// first by operator alone, to collect the attributes, from which the operator's `fuse` rule makes its own; then once more, traced with
// these and the real input types, by operator, attributes and constants. What passes is by construction the same computation.

namespace frit::graph {
namespace {

struct Pattern {
  const ops::Operator* op = nullptr;
  Graph graph;
  int root = -1;  // value id
  std::size_t operations = 0;
  std::vector<int> commutative = {};  // first outputs of the nodes whose operands may stand in either order
};

Pattern trace(const ops::Operator& op, std::span<const TensorType> types, const ops::Attributes& attributes) {
  Pattern pattern;
  pattern.op = &op;
  Values inputs;
  for (std::size_t i = 0; i < types.size(); ++i) inputs.push_back(pattern.graph.input(concat(i), types[i].shape, types[i].dtype));
  const Values outputs = op.decompose(pattern.graph, inputs, attributes);
  FRIT_CHECK(outputs.size() == 1);
  pattern.root = outputs[0].id();
  for (const Node* node : pattern.graph.all(NodeKind::operation)) {
    ++pattern.operations;
    if (node->op->commutative) pattern.commutative.push_back(node->outputs[0]);
  }
  return pattern;
}

/// The patterns of all fused operators, the longest first.
std::vector<Pattern> all_patterns() {
  std::vector<Pattern> patterns;
  for (const ops::Operator* op : ops::registry().all()) {
    if (!op->fuse) continue;
    const ops::Sample sample = op->samples().at(0);
    std::vector<TensorType> types;
    for (const ops::SampleInput& input : sample.inputs) types.push_back({input.floating ? DType::f32 : input.dtype, input.shape});
    patterns.push_back(trace(*op, types, sample.attributes));
  }
  std::stable_sort(patterns.begin(), patterns.end(), [](const Pattern& a, const Pattern& b) { return a.operations > b.operations; });
  return patterns;
}

/// Lays a pattern over a graph, with the operands of the pattern's commutative nodes in a given order: bit i of `swaps` swaps those of node
/// i.
class Matcher {
 public:
  enum class Mode { operators_only, exact };

  Matcher(const Pattern& pattern, const Graph& graph, Mode mode, unsigned swaps)
      : pattern_(pattern), graph_(graph), mode_(mode), swaps_(swaps) {}

  bool match_root(int value) { return match(pattern_.root, value); }
  /// Pattern value id -> graph value id, of everything that was matched.
  const std::map<int, int>& values() const { return values_; }

 private:
  bool match(int pattern_value, int value) {
    const auto known = values_.find(pattern_value);
    if (known != values_.end()) return known->second == value;
    const Node& wanted = pattern_.graph.producer(pattern_value);
    const Node& node = graph_.producer(value);
    bool same = true;
    if (wanted.kind == NodeKind::constant) {
      same = node.kind == NodeKind::constant && (mode_ == Mode::operators_only || equal(wanted.constant, node.constant));
    } else if (wanted.kind == NodeKind::operation) {
      same = match_operation(wanted, node) && pattern_.graph.output_index(pattern_value) == graph_.output_index(value);
    }
    if (same) values_[pattern_value] = value;
    return same;
  }

  bool match_operation(const Node& wanted, const Node& node) {
    if (node.op != wanted.op || node.inputs.size() != wanted.inputs.size()) return false;
    if (mode_ == Mode::exact && !(node.attributes == wanted.attributes)) return false;
    std::vector<int> inputs = node.inputs;
    if (swapped(wanted)) std::swap(inputs[0], inputs[1]);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!match(wanted.inputs[i], inputs[i])) return false;
    }
    return true;
  }

  bool swapped(const Node& wanted) const {
    const auto place = std::find(pattern_.commutative.begin(), pattern_.commutative.end(), wanted.outputs[0]);
    return place != pattern_.commutative.end() && ((swaps_ >> (place - pattern_.commutative.begin())) & 1u) != 0;
  }

  static bool equal(const Tensor& a, const Tensor& b) {
    return a.dtype() == b.dtype() && a.shape() == b.shape() && a.to_vector<double>() == b.to_vector<double>();
  }

  const Pattern& pattern_;
  const Graph& graph_;
  Mode mode_;
  unsigned swaps_;
  std::map<int, int> values_;
};

struct Match {
  const ops::Operator* op;
  ops::Attributes attributes;
  std::vector<int> inputs;  // value ids of the graph
};

/// Nothing but the matched nodes reads what lies inside the match.
bool closed(const Pattern& pattern, const std::map<int, int>& values, const Graph& graph, const std::vector<int>& uses) {
  std::map<int, int> inner_uses;
  for (const Node& node : pattern.graph.nodes()) {
    for (const int id : node.inputs) ++inner_uses[id];
  }
  for (const Node& node : pattern.graph.nodes()) {
    if (node.kind != NodeKind::operation) continue;
    const auto first = values.find(node.outputs[0]);
    if (first == values.end()) return false;  // part of the decomposition that the root does not need
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const int id = graph.producer(first->second).outputs[i];
      if (node.outputs[i] != pattern.root && uses[static_cast<std::size_t>(id)] != inner_uses[node.outputs[i]]) return false;
    }
  }
  return true;
}

std::optional<Match> match_with(const Pattern& pattern, const Graph& graph, int root, const std::vector<int>& uses, unsigned swaps) {
  Matcher shape(pattern, graph, Matcher::Mode::operators_only, swaps);
  if (!shape.match_root(root) || !closed(pattern, shape.values(), graph, uses)) return std::nullopt;
  Match match{pattern.op, {}, {}};
  std::vector<ops::Attributes> matched;
  std::vector<TensorType> types;
  for (const Node& node : pattern.graph.nodes()) {
    const auto place = shape.values().find(node.outputs.at(0));
    if (place == shape.values().end()) return std::nullopt;
    if (node.kind == NodeKind::operation) matched.push_back(graph.producer(place->second).attributes);
    if (node.kind == NodeKind::input) {
      match.inputs.push_back(place->second);
      types.push_back(graph.type(place->second));
    }
  }
  const std::optional<ops::Attributes> attributes = pattern.op->fuse(matched);
  if (!attributes) return std::nullopt;
  match.attributes = *attributes;
  try {
    pattern.op->infer_types(types, match.attributes);
    const Pattern spelled = trace(*pattern.op, types, match.attributes);
    Matcher exact(spelled, graph, Matcher::Mode::exact, swaps);
    if (!exact.match_root(root)) return std::nullopt;
    for (std::size_t i = 0; i < match.inputs.size(); ++i) {
      if (exact.values().at(spelled.graph.nodes()[i].outputs[0]) != match.inputs[i]) return std::nullopt;
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::argument) throw;
    return std::nullopt;  // the fused operator does not take these inputs
  }
  return match;
}

std::optional<Match> match_at(const Pattern& pattern, const Graph& graph, int root, const std::vector<int>& uses) {
  for (unsigned swaps = 0; swaps < 1u << pattern.commutative.size(); ++swaps) {
    if (std::optional<Match> match = match_with(pattern, graph, root, uses, swaps)) return match;
  }
  return std::nullopt;
}

}  // namespace

Graph fuse(const Graph& graph) {
  const std::vector<Pattern> patterns = all_patterns();
  const std::vector<int> uses = use_counts(graph);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    rewriter.copy(node);
    if (node.kind != NodeKind::operation || node.outputs.empty()) continue;
    for (const Pattern& pattern : patterns) {
      const std::optional<Match> match = match_at(pattern, graph, node.outputs[0], uses);
      if (!match) continue;
      rewriter.map(node.outputs[0], rewriter.target().emit(*match->op, rewriter(match->inputs), match->attributes)[0]);
      break;
    }
  }
  return remove_dead_code(rewriter.finish());
}

}  // namespace frit::graph
