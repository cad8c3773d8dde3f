#include <algorithm>
#include <map>
#include <optional>
#include <set>

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

/// Of the pattern's operations, in the order in which they were emitted.
std::vector<ops::Attributes> attributes_of(const Graph& graph) {
  std::vector<ops::Attributes> attributes;
  for (const Node* node : graph.all(NodeKind::operation)) attributes.push_back(node->attributes);
  return attributes;
}

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

/// The patterns of all fused operators, the longest first. An operator has another for samples with another number of inputs, and for those
/// of another rank where these decompose into other operators: convolutions of two and of three image axes are not the same one. Of an
/// activation or a norm there is none for a sample whose own decomposition its `fuse` rule leaves alone.
std::vector<Pattern> all_patterns(bool elementwise_alone = false) {
  std::vector<Pattern> patterns;
  for (const ops::Operator* op : ops::registry().all()) {
    if (!op->fuse || (elementwise_alone && !op->elementwise)) continue;
    std::set<std::pair<std::size_t, std::vector<const ops::Operator*>>> seen;
    std::set<std::pair<std::size_t, int>> kinds;
    for (const ops::Sample& sample : op->samples()) {
      const std::pair kind(sample.inputs.size(), sample.inputs[0].shape.rank());
      if (kinds.contains(kind)) continue;
      std::vector<TensorType> types;
      for (const ops::SampleInput& input : sample.inputs) types.push_back({input.floating ? DType::f32 : input.dtype, input.shape});
      Pattern pattern = trace(*op, types, sample.attributes);
      // Not so of operators that stand for several calls: their rules look at sizes, and a sample's are small.
      if ((op->elementwise || op->pointwise) && !op->fuse(attributes_of(pattern.graph), types)) continue;
      kinds.insert(kind);
      std::vector<const ops::Operator*> sequence;
      for (const Node* node : pattern.graph.all(NodeKind::operation)) sequence.push_back(node->op);
      if (seen.emplace(sample.inputs.size(), std::move(sequence)).second) patterns.push_back(std::move(pattern));
    }
  }
  std::stable_sort(patterns.begin(), patterns.end(), [](const Pattern& a, const Pattern& b) { return a.operations > b.operations; });
  return patterns;
}

/// What keeps a pattern from fitting: a node of the graph, and what is wrong with it.
struct Obstacle {
  int node = -1;
  std::string reason = {};
};

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
  /// What did not match.
  const Obstacle& obstacle() const { return obstacle_; }
  /// Indices of the graph's operations that did.
  std::vector<int> matched_nodes() const { return {nodes_.begin(), nodes_.end()}; }

 private:
  template <class... Parts>
  bool differs(int value, const Parts&... parts) {
    obstacle_ = {graph_.producer_index(value), concat(parts...)};
    return false;
  }

  bool match(int pattern_value, int value) {
    const auto known = values_.find(pattern_value);
    if (known != values_.end()) return known->second == value || differs(value, "expected %", known->second, " a second time");
    const Node& wanted = pattern_.graph.producer(pattern_value);
    const Node& node = graph_.producer(value);
    if (wanted.kind == NodeKind::constant) {
      if (node.kind != NodeKind::constant) return differs(value, "expected a constant");
      if (mode_ == Mode::exact && !equal(wanted.constant, node.constant)) return differs(value, "expected the constant ", wanted.constant);
    } else if (wanted.kind == NodeKind::operation) {
      if (!match_operation(wanted, node, value)) return false;
      if (pattern_.graph.output_index(pattern_value) != graph_.output_index(value))
        return differs(value, "expected another of its outputs");
    }
    values_[pattern_value] = value;
    return true;
  }

  bool match_operation(const Node& wanted, const Node& node, int value) {
    if (node.op != wanted.op || node.inputs.size() != wanted.inputs.size()) return differs(value, "expected ", wanted.op->name);
    if (mode_ == Mode::exact && !same_call(wanted, node)) {
      return differs(value, "expected attributes {", wanted.attributes.text(), '}');
    }
    nodes_.insert(graph_.producer_index(value));
    std::vector<int> inputs = node.inputs;
    if (swapped(wanted)) std::swap(inputs[0], inputs[1]);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!match(wanted.inputs[i], inputs[i])) return false;
    }
    return true;
  }

  /// What a view gives is said by its type, however its attributes put it: a size may be -1.
  bool same_call(const Node& wanted, const Node& node) const {
    if (wanted.op->view) return graph_.type(node.outputs[0]) == pattern_.graph.type(wanted.outputs[0]);
    return node.attributes == wanted.attributes;
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
  std::set<int> nodes_;
  Obstacle obstacle_;
};

/// A pattern laid over a graph; there is nothing in the way if it is to be fused.
struct Match {
  const ops::Operator* op;
  ops::Attributes attributes;
  std::vector<int> inputs;  // value ids of the graph
  std::vector<int> nodes;   // of the graph, as far as they fit
  std::optional<Obstacle> obstacle = {};
};

/// Nothing but the matched nodes reads what lies inside the match.
std::optional<Obstacle> read_from_outside(const Pattern& pattern, const std::map<int, int>& values, const Graph& graph,
                                          const std::vector<int>& uses) {
  std::map<int, int> inner_uses;
  for (const Node& node : pattern.graph.nodes()) {
    for (const int id : node.inputs) ++inner_uses[id];
  }
  for (const Node& node : pattern.graph.nodes()) {
    if (node.kind != NodeKind::operation) continue;
    const auto first = values.find(node.outputs[0]);
    if (first == values.end()) return Obstacle{-1, "part of the decomposition is not needed here"};
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const int id = graph.producer(first->second).outputs[i];
      if (node.outputs[i] != pattern.root && uses[static_cast<std::size_t>(id)] != inner_uses[node.outputs[i]]) {
        return Obstacle{graph.producer_index(id), concat("its result %", id, " is needed elsewhere too")};
      }
    }
  }
  return std::nullopt;
}

Match match_with(const Pattern& pattern, const Graph& graph, int root, const std::vector<int>& uses, unsigned swaps) {
  Matcher shape(pattern, graph, Matcher::Mode::operators_only, swaps);
  const bool fits = shape.match_root(root);
  Match match{pattern.op, {}, {}, shape.matched_nodes()};
  match.obstacle = fits ? read_from_outside(pattern, shape.values(), graph, uses) : shape.obstacle();
  if (match.obstacle) return match;
  std::vector<ops::Attributes> matched;
  std::vector<TensorType> types;
  for (const Node& node : pattern.graph.nodes()) {
    const auto place = shape.values().find(node.outputs.at(0));
    if (place == shape.values().end()) {
      match.obstacle = {-1, "part of the decomposition is not needed here"};
      return match;
    }
    if (node.kind == NodeKind::operation) matched.push_back(graph.producer(place->second).attributes);
    if (node.kind == NodeKind::input) {
      match.inputs.push_back(place->second);
      types.push_back(graph.type(place->second));
    }
  }
  const std::optional<ops::Attributes> attributes = pattern.op->fuse(matched, types);
  if (!attributes) {
    match.obstacle = {-1, "the fused operator has no such attributes"};
    return match;
  }
  match.attributes = *attributes;
  try {
    pattern.op->infer_types(types, match.attributes);
    const Pattern spelled = trace(*pattern.op, types, match.attributes);
    Matcher exact(spelled, graph, Matcher::Mode::exact, swaps);
    if (!exact.match_root(root)) match.obstacle = exact.obstacle();
    for (std::size_t i = 0; i < match.inputs.size() && !match.obstacle; ++i) {
      const bool same = exact.values().at(spelled.graph.nodes()[i].outputs[0]) == match.inputs[i];
      if (!same) match.obstacle = {-1, "its inputs stand in another order"};
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::argument) throw;
    match.obstacle = {-1, error.what()};  // the fused operator does not take these inputs
  }
  return match;
}

/// In the order of operands with which most fits.
Match match_at(const Pattern& pattern, const Graph& graph, int root, const std::vector<int>& uses) {
  Match best{pattern.op, {}, {}, {}, Obstacle()};
  for (unsigned swaps = 0; swaps < 1u << pattern.commutative.size(); ++swaps) {
    Match match = match_with(pattern, graph, root, uses, swaps);
    if (!match.obstacle) return match;
    if (match.nodes.size() > best.nodes.size()) best = std::move(match);
  }
  return best;
}

/// What remains once more is fused than was when they were noted.
void drop_those_inside_others(std::vector<FusionAttempt>& attempts, const Graph& graph) {
  std::set<int> fused;
  for (const FusionAttempt& attempt : attempts) {
    if (attempt.obstacle.empty()) fused.insert(attempt.matched.begin(), attempt.matched.end());
  }
  std::erase_if(attempts, [&](const FusionAttempt& attempt) {
    return !attempt.obstacle.empty() && fused.contains(graph.producer_index(attempt.root));
  });
}

/// What was fused is left in the graph too, unread.
Graph fuse_by(const std::vector<Pattern>& patterns, const Graph& graph, std::vector<FusionAttempt>& attempts) {
  const std::vector<int> uses = use_counts(graph);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    rewriter.copy(node);
    if (node.kind != NodeKind::operation || node.outputs.empty()) continue;
    std::optional<FusionAttempt> nearest;
    for (const Pattern& pattern : patterns) {
      if (pattern.graph.producer(pattern.root).op != node.op) continue;
      const Match match = match_at(pattern, graph, node.outputs[0], uses);
      FusionAttempt attempt{pattern.op, pattern.operations, node.outputs[0], match.nodes};
      if (!match.obstacle) {
        nearest = std::move(attempt);
        rewriter.map(node.outputs[0], rewriter.target().emit(*match.op, rewriter(match.inputs), match.attributes)[0]);
        break;
      }
      attempt.blocker = match.obstacle->node;
      attempt.obstacle = match.obstacle->reason;
      // What spells an elementwise operator in part is no loss: it is joined with others all the same.
      if (pattern.op->elementwise || match.nodes.size() < 2) continue;
      if (!nearest || match.nodes.size() > nearest->matched.size()) nearest = std::move(attempt);
    }
    if (nearest) attempts.push_back(std::move(*nearest));
  }
  drop_those_inside_others(attempts, graph);
  return rewriter.finish();
}

}  // namespace

Graph fuse(const Graph& graph) {
  std::vector<FusionAttempt> attempts;
  return fuse(graph, attempts);
}

Graph fuse(const Graph& graph, std::vector<FusionAttempt>& attempts) { return remove_dead_code(fuse_by(all_patterns(), graph, attempts)); }

Graph fuse_elementwise(const Graph& graph) {
  std::vector<FusionAttempt> attempts;
  return fuse_by(all_patterns(/*elementwise_alone=*/true), graph, attempts);
}

}  // namespace frit::graph
