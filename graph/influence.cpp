#include "frit/graph/influence.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace frit::graph {
namespace {

/// Operations that a change is followed through; beyond them it counts as shown.
constexpr int most_followed = 64;

/// The axes along which something differs; along all others it is the same.
using Axes = std::array<bool, Dims::max_rank>;

/// How a value depends on the one that is looked at.
struct Dependence {
  enum Kind {
    none,
    itself,   ///< it is that one
    shifted,  ///< that one's change is added to it
    scaled,   ///< that one's change multiplies it
    other
  };
  Kind kind = none;
  Axes varies = {};  ///< the change
};

Axes axes_of(const Shape& shape) {
  Axes axes = {};
  for (int i = 0; i < shape.rank(); ++i) axes[static_cast<std::size_t>(i)] = shape[i] > 1;
  return axes;
}

/// Along the axes of a tensor of `to` axes that a value of `from` axes broadcasts to, or along the one axis.
Axes carried(const Axes& axes, int from, int to, const std::optional<int>& axis) {
  Axes result = {};
  if (axis) {
    result[static_cast<std::size_t>(*axis < 0 ? *axis + to : *axis)] = std::any_of(axes.begin(), axes.end(), [](bool v) { return v; });
    return result;
  }
  for (int i = 0; i < from; ++i) result[static_cast<std::size_t>(i + to - from)] = axes[static_cast<std::size_t>(i)];
  return result;
}

bool same_within(const Dims& block, const Axes& varies) {
  for (int i = 0; i < block.rank(); ++i) {
    if (varies[static_cast<std::size_t>(i)] && block[i] > 1) return false;
  }
  return true;
}

/// Follows one value through the graph.
class Trace {
 public:
  Trace(const Graph& graph, int value) : graph_(graph) { values_[value] = {Dependence::itself, axes_of(graph.type(value).shape)}; }

  /// Of output 0, as far as the node's inputs are known; all others may be anything.
  std::vector<Dependence> visit(const Node& node) {
    std::vector<int> dependent;
    for (int i = 0; i < std::ssize(node.inputs); ++i) {
      if (at(node.inputs[static_cast<std::size_t>(i)]).kind != Dependence::none) dependent.push_back(i);
    }
    std::vector<Dependence> results(node.outputs.size(), {dependent.empty() ? Dependence::none : Dependence::other, {}});
    if (dependent.size() == 1 && !results.empty()) results[0] = through(node, dependent[0]);
    for (std::size_t i = 0; i < results.size(); ++i) values_[node.outputs[i]] = results[i];
    return results;
  }

  const Influence& hidden() const { return influence_; }

 private:
  Dependence at(int value) const {
    const auto known = values_.find(value);
    return known == values_.end() ? Dependence{} : known->second;
  }
  const Shape& shape(int value) const { return graph_.type(value).shape; }

  /// Of output 0, which depends on one input only.
  Dependence through(const Node& node, int input) {
    const Dependence given = at(node.inputs[static_cast<std::size_t>(input)]);
    if (node.op->conversion) return given;
    if (input == 0 && node.op->invariance && hides(node, given)) return {};
    for (const ops::LinearInput& linear : node.op->linear_inputs) {
      if (linear.input == input)
        return linear.role == ops::LinearInput::addend ? added(node, linear, given) : multiplied(node, linear, given);
    }
    return {Dependence::other, {}};
  }

  bool hides(const Node& node, const Dependence& given) {
    const ops::Invariance invariance = node.op->invariance(shape(node.inputs[0]), node.attributes);
    const bool kind = given.kind == Dependence::shifted || (given.kind == Dependence::scaled && invariance.scale);
    if (!kind || invariance.block.empty() || !same_within(invariance.block, given.varies)) return false;
    const bool shift = given.kind == Dependence::shifted;
    influence_.exact = influence_.exact && shift;
    if (influence_.hidden_by.empty()) {
      influence_.hidden_by = concat(shift ? "what it adds, " : "what it multiplies, ", node.op->name, " (%", node.outputs[0], ')',
                                    shift ? " takes away again" : " divides out again, but for its eps");
    }
    return true;
  }

  Axes carried_to_output(const Node& node, const ops::LinearInput& linear, const Axes& axes) const {
    return carried(axes, shape(node.inputs[static_cast<std::size_t>(linear.input)]).rank(), shape(node.outputs[0]).rank(), linear.axis);
  }

  Dependence added(const Node& node, const ops::LinearInput& linear, const Dependence& given) const {
    if (given.kind != Dependence::itself && given.kind != Dependence::shifted) return {Dependence::other, {}};
    return {Dependence::shifted, carried_to_output(node, linear, given.varies)};
  }

  Dependence multiplied(const Node& node, const ops::LinearInput& linear, const Dependence& given) const {
    const auto given_input = [&](int input) { return static_cast<std::size_t>(input) < node.inputs.size(); };
    for (const ops::LinearInput& also : node.op->linear_inputs) {
      if (also.role == ops::LinearInput::addend && given_input(also.input)) return {Dependence::other, {}};
    }
    Axes varies = carried_to_output(node, linear, given.varies);
    if (given.kind == Dependence::itself || given.kind == Dependence::scaled) return {Dependence::scaled, varies};
    if (given.kind != Dependence::shifted) return {Dependence::other, {}};
    // A change that is added comes out multiplied by what the value is multiplied by.
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (static_cast<int>(i) == linear.input) continue;
      const Shape& factor = shape(node.inputs[i]);
      const Axes of_factor = carried(axes_of(factor), factor.rank(), shape(node.outputs[0]).rank(), {});
      for (std::size_t axis = 0; axis < varies.size(); ++axis) varies[axis] = varies[axis] || of_factor[axis];
    }
    return {Dependence::shifted, varies};
  }

  const Graph& graph_;
  std::map<int, Dependence> values_;  // by id, of those that were reached
  Influence influence_{.shows = false};
};

}  // namespace

Influences::Influences(const Graph& graph, std::span<const int> outputs)
    : graph_(graph), readers_(static_cast<std::size_t>(graph.value_count())), leads_(readers_.size(), false), is_output_(leads_) {
  for (const int output : outputs) leads_[static_cast<std::size_t>(output)] = is_output_[static_cast<std::size_t>(output)] = true;
  for (std::size_t n = graph.nodes().size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](int id) { return leads_[static_cast<std::size_t>(id)]; })) continue;
    for (const int id : node.inputs) {
      leads_[static_cast<std::size_t>(id)] = true;
      readers_[static_cast<std::size_t>(id)].push_back(static_cast<int>(n));
    }
  }
}

Influence Influences::of(int value) const {
  if (!leads_[static_cast<std::size_t>(value)]) return {.shows = false};
  if (is_output_[static_cast<std::size_t>(value)]) return {};
  Trace trace(graph_, value);
  const auto readers = [&](int id) -> const std::vector<int>& { return readers_[static_cast<std::size_t>(id)]; };
  std::set<int> next(readers(value).begin(), readers(value).end());
  for (int followed = 0; !next.empty(); ++followed) {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(*next.begin())];
    next.erase(next.begin());
    const std::vector<Dependence> results = trace.visit(node);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const int id = node.outputs[i];
      if (results[i].kind == Dependence::none || !leads_[static_cast<std::size_t>(id)]) continue;
      if (results[i].kind == Dependence::other || is_output_[static_cast<std::size_t>(id)] || followed >= most_followed) return {};
      next.insert(readers(id).begin(), readers(id).end());
    }
  }
  return trace.hidden();
}

}  // namespace frit::graph
