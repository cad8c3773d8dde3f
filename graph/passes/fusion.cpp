#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"
#include "frit/ops/operator/spelling.h"

// A fused operator's decomposition is its pattern. It is traced into a small graph and laid over the user's graph from the root upwards:
// first by operator alone, to collect the attributes, from which the operator's `fuse` rule makes its own; then once more, traced with
// these and the real input types, by operator, attributes and constants. What passes is by construction the same computation.

namespace frit::graph {
namespace {

struct Pattern {
  const ops::Operator* op = nullptr;
  const ops::Spelling* spelling = nullptr;  // none: the operator's decomposition
  Graph graph = {};
  int root = -1;  // value id
  std::size_t operations = 0;
};

/// Of the pattern's operations, in the order in which they were emitted.
std::vector<ops::Attributes> attributes_of(const Graph& graph) {
  std::vector<ops::Attributes> attributes;
  for (const Node* node : graph.all(NodeKind::operation)) attributes.push_back(node->attributes);
  return attributes;
}

Pattern trace(const ops::Operator& op, const ops::Spelling* spelling, std::span<const TensorType> types,
              const ops::Attributes& attributes) {
  Pattern pattern{&op, spelling};
  Values inputs;
  for (std::size_t i = 0; i < types.size(); ++i) inputs.push_back(pattern.graph.input(concat(i), types[i].shape, types[i].dtype));
  const Values outputs = (spelling == nullptr ? op.decompose : spelling->rule)(pattern.graph, inputs, attributes);
  FRIT_CHECK(outputs.size() == 1);
  pattern.root = outputs[0].id();
  pattern.operations = pattern.graph.all(NodeKind::operation).size();
  return pattern;
}

std::vector<TensorType> types_of(const ops::Sample& sample) {
  std::vector<TensorType> types;
  for (const ops::SampleInput& input : sample.inputs) types.push_back({input.floating ? DType::f32 : input.dtype, input.shape});
  return types;
}

/// The patterns of all fused operators, the longest first. An operator has another for samples with another number of inputs, and for those
/// of another rank where these decompose into other operators: convolutions of two and of three image axes are not the same one. Of an
/// activation or a norm there is none for a sample whose own decomposition its `fuse` rule leaves alone.
std::vector<Pattern> traced_patterns(bool elementwise_alone) {
  std::vector<Pattern> patterns;
  for (const ops::Operator* op : ops::registry().all()) {
    if (!op->fuse || (elementwise_alone && !op->elementwise)) continue;
    std::set<std::pair<std::size_t, std::vector<const ops::Operator*>>> seen;
    std::set<std::pair<std::size_t, int>> kinds;
    for (const ops::Sample& sample : op->samples()) {
      const std::pair kind(sample.inputs.size(), sample.inputs[0].shape.rank());
      if (kinds.contains(kind)) continue;
      const std::vector<TensorType> types = types_of(sample);
      Pattern pattern = trace(*op, nullptr, types, sample.attributes);
      // Not so of operators that stand for several calls: their rules look at sizes, and a sample's are small.
      if ((op->elementwise || op->pointwise) && !op->fuse(attributes_of(pattern.graph), types)) continue;
      kinds.insert(kind);
      std::vector<const ops::Operator*> sequence;
      for (const Node* node : pattern.graph.all(NodeKind::operation)) sequence.push_back(node->op);
      if (seen.emplace(sample.inputs.size(), std::move(sequence)).second) patterns.push_back(std::move(pattern));
    }
  }
  for (const ops::Spelling& spelling : ops::spellings()) {
    const ops::Operator& op = ops::registry().find(spelling.op);
    if (elementwise_alone && !op.elementwise && !spelling.call) continue;
    const std::vector<TensorType> types = spelling.inputs.empty() ? types_of(op.samples().at(0)) : spelling.inputs;
    patterns.push_back(trace(op, &spelling, types, spelling.attributes));
  }
  std::stable_sort(patterns.begin(), patterns.end(), [](const Pattern& a, const Pattern& b) { return a.operations > b.operations; });
  return patterns;
}

/// Traced once for as many operators as there are: programs may add some.
const std::vector<Pattern>& all_patterns(bool elementwise_alone = false) {
  static std::mutex mutex;
  static std::map<std::pair<std::size_t, bool>, std::vector<Pattern>> known;
  const std::pair key(ops::registry().all().size(), elementwise_alone);
  const std::lock_guard lock(mutex);
  const auto place = known.find(key);
  return place != known.end() ? place->second : known.emplace(key, traced_patterns(elementwise_alone)).first->second;
}

/// What keeps a pattern from fitting: a node of the graph, and what is wrong with it.
struct Obstacle {
  int node = -1;
  std::string reason = {};
};

using MatchedValues = std::map<int, int>;  // value id of the pattern -> of the graph

/// Lays a pattern over a graph.
class Matcher {
 public:
  enum class Mode { operators_only, exact };
  using Accept = std::function<bool(const MatchedValues&)>;

  Matcher(const Pattern& pattern, const Graph& graph, Mode mode) : pattern_(pattern), graph_(graph), mode_(mode) {}

  /// Whether it fits in an order of operands in which what is matched is accepted.
  bool match_root(int value, const Accept& accept) { return match({{pattern_.root, value}}, accept); }

  // Where it does not: of the order in which most operations fitted, what came next, and the indices of these.
  const Obstacle& obstacle() const { return obstacle_; }
  const std::vector<int>& matched_nodes() const { return furthest_; }

 private:
  struct Pair {
    int wanted, value;
  };

  template <class... Parts>
  bool differs(int value, const Parts&... parts) {
    std::vector<int> nodes = nodes_of(values_);
    if (nodes.size() > furthest_.size() || obstacle_.reason.empty()) {
      furthest_ = std::move(nodes);
      obstacle_ = {graph_.producer_index(value), concat(parts...)};
    }
    return false;
  }

  std::vector<int> nodes_of(const MatchedValues& values) const {
    std::set<int> nodes;
    for (const auto& [wanted, value] : values) {
      if (pattern_.graph.producer(wanted).kind == NodeKind::operation) nodes.insert(graph_.producer_index(value));
    }
    return {nodes.begin(), nodes.end()};
  }

  /// Fits the last pair, what it leads to, and those before it.
  bool match(std::vector<Pair> pairs, const Accept& accept) {
    if (pairs.empty()) return accept(values_);
    const auto [wanted, value] = pairs.back();
    pairs.pop_back();
    const auto known = values_.find(wanted);
    if (known != values_.end()) {
      return known->second == value ? match(std::move(pairs), accept) : differs(value, "expected %", known->second, " a second time");
    }
    if (!fits(wanted, value)) return false;
    values_[wanted] = value;
    const Node& node = pattern_.graph.producer(wanted);
    const std::vector<int>& inputs = graph_.producer(value).inputs;
    const bool either_order = node.kind == NodeKind::operation && node.op->commutative;
    for (const bool swapped : {false, true}) {
      if (swapped && !either_order) break;
      std::vector<Pair> more = pairs;
      for (std::size_t i = node.inputs.size(); i-- > 0;) more.push_back({node.inputs[i], inputs[swapped && i < 2 ? 1 - i : i]});
      if (match(std::move(more), accept)) return true;
    }
    values_.erase(wanted);
    return false;
  }

  /// As far as can be said without what they are computed from.
  bool fits(int wanted_value, int value) {
    const Node& wanted = pattern_.graph.producer(wanted_value);
    const Node& node = graph_.producer(value);
    if (wanted.kind == NodeKind::constant) {
      if (node.kind != NodeKind::constant) return differs(value, "expected a constant");
      if (mode_ == Mode::exact && !equal(wanted.constant, node.constant)) return differs(value, "expected the constant ", wanted.constant);
    } else if (wanted.kind == NodeKind::operation) {
      if (node.op != wanted.op || node.inputs.size() != wanted.inputs.size()) return differs(value, "expected ", wanted.op->name);
      if (mode_ == Mode::exact && !same_call(wanted, node)) return differs(value, "expected attributes {", wanted.attributes.text(), '}');
      if (pattern_.graph.output_index(wanted_value) != graph_.output_index(value)) return differs(value, "expected another of its outputs");
    }
    return true;
  }

  /// What a view gives is said by its type, however its attributes put it: a size may be -1.
  bool same_call(const Node& wanted, const Node& node) const {
    if (wanted.op->view) return graph_.type(node.outputs[0]) == pattern_.graph.type(wanted.outputs[0]);
    return node.attributes == wanted.attributes;
  }

  /// But for a last place or two of float32 and float64: programs and files compute their constants in many ways.
  static bool equal(const Tensor& a, const Tensor& b) {
    if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
    const double tolerance = a.dtype() == DType::f32 ? 0x1p-22 : a.dtype() == DType::f64 ? 0x1p-51 : 0;
    const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
    return std::equal(x.begin(), x.end(), y.begin(),
                      [&](double one, double other) { return one == other || std::abs(one - other) <= tolerance * std::abs(other); });
  }

  const Pattern& pattern_;
  const Graph& graph_;
  Mode mode_;
  MatchedValues values_;
  std::vector<int> furthest_;
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
std::optional<Obstacle> read_from_outside(const Pattern& pattern, const MatchedValues& values, const Graph& graph,
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

bool calls_otherwise(const Pattern& pattern) { return pattern.spelling != nullptr && pattern.spelling->call; }

Value emitted(Graph& target, const Pattern& pattern, const Values& inputs, const ops::Attributes& attributes) {
  if (calls_otherwise(pattern)) return pattern.spelling->call(target, inputs, attributes).at(0);
  return target.emit(*pattern.op, inputs, attributes).at(0);
}

/// What the operators alone have matched, checked with the attributes that follow from it.
Match checked(const Pattern& pattern, const Graph& graph, int root, const std::vector<int>& uses, const MatchedValues& values) {
  Match match{pattern.op, {}, {}, {}, read_from_outside(pattern, values, graph, uses)};
  std::vector<ops::Attributes> matched;
  std::vector<TensorType> types;
  for (const Node& node : pattern.graph.nodes()) {
    const auto place = values.find(node.outputs.at(0));
    if (place == values.end()) {
      if (!match.obstacle) match.obstacle = {-1, "part of the decomposition is not needed here"};
      continue;
    }
    if (node.kind == NodeKind::operation) matched.push_back(graph.producer(place->second).attributes);
    if (node.kind == NodeKind::operation) match.nodes.push_back(graph.producer_index(place->second));
    if (node.kind == NodeKind::input) match.inputs.push_back(place->second);
    if (node.kind == NodeKind::input) types.push_back(graph.type(place->second));
  }
  std::sort(match.nodes.begin(), match.nodes.end());
  if (match.obstacle) return match;
  const auto attributes = pattern.spelling == nullptr ? pattern.op->fuse(matched, types) : pattern.spelling->attributes;
  if (!attributes) {
    match.obstacle = {-1, "the fused operator has no such attributes"};
    return match;
  }
  match.attributes = *attributes;
  try {
    if (!calls_otherwise(pattern)) pattern.op->infer_types(types, match.attributes);
    const Pattern spelled = trace(*pattern.op, pattern.spelling, types, match.attributes);
    Matcher exact(spelled, graph, Matcher::Mode::exact);
    bool reordered = false;
    const auto has_same_inputs = [&](const MatchedValues& again) {
      for (std::size_t i = 0; i < match.inputs.size(); ++i) {
        if (again.at(spelled.graph.nodes()[i].outputs[0]) != match.inputs[i]) return !(reordered = true);
      }
      return true;
    };
    const bool fits = exact.match_root(root, has_same_inputs);
    if (!fits) match.obstacle = reordered ? Obstacle{-1, "its inputs stand in another order"} : exact.obstacle();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::argument) throw;
    match.obstacle = {-1, error.what()};  // the fused operator does not take these inputs
  }
  return match;
}

/// In the order of operands with which most fits.
Match match_at(const Pattern& pattern, const Graph& graph, int root, const std::vector<int>& uses) {
  Match best{pattern.op, {}, {}, {}, Obstacle()};
  Matcher shape(pattern, graph, Matcher::Mode::operators_only);
  const bool found = shape.match_root(root, [&](const MatchedValues& values) {
    Match match = checked(pattern, graph, root, uses, values);
    if (!match.obstacle || match.nodes.size() > best.nodes.size()) best = std::move(match);
    return !best.obstacle;
  });
  if (!found && shape.matched_nodes().size() > best.nodes.size()) best = {pattern.op, {}, {}, shape.matched_nodes(), shape.obstacle()};
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
        rewriter.map(node.outputs[0], emitted(rewriter.target(), pattern, rewriter(match.inputs), match.attributes));
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
