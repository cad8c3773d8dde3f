#include "frit/graph/lint.h"

#include <algorithm>
#include <array>

namespace frit::graph {
namespace {

/// The axes along which something differs; along all others it is the same.
using Axes = std::array<bool, Dims::max_rank>;

/// How a value depends on the parameter that is looked at.
struct Dependence {
  enum Kind {
    none,
    itself,   ///< it is the parameter
    shifted,  ///< the parameter's change is added to it
    scaled,   ///< the parameter's change multiplies it
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

/// Follows one parameter through the graph.
class Trace {
 public:
  Trace(const Graph& graph, const Node& parameter) : graph_(graph), values_(static_cast<std::size_t>(graph.value_count())) {
    at(parameter.outputs[0]) = {Dependence::itself, axes_of(graph.type(parameter.outputs[0]).shape)};
    for (const Node& node : graph.nodes()) {
      if (node.kind == NodeKind::operation) visit(node);
    }
  }

  Dependence::Kind at_output(int value) { return at(value).kind; }
  /// What hid the parameter first, if anything did.
  const std::string& hidden_by() const { return hidden_by_; }

 private:
  Dependence& at(int value) { return values_[static_cast<std::size_t>(value)]; }
  const Shape& shape(int value) const { return graph_.type(value).shape; }

  void visit(const Node& node) {
    std::vector<int> dependent;
    for (int i = 0; i < std::ssize(node.inputs); ++i) {
      if (at(node.inputs[static_cast<std::size_t>(i)]).kind != Dependence::none) dependent.push_back(i);
    }
    if (dependent.empty() || node.outputs.empty()) return;
    for (const int output : node.outputs) at(output) = {Dependence::other, {}};
    if (dependent.size() == 1) at(node.outputs[0]) = through(node, dependent[0]);
  }

  /// Of output 0, which depends on one input only.
  Dependence through(const Node& node, int input) {
    const Dependence& given = at(node.inputs[static_cast<std::size_t>(input)]);
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
    if (hidden_by_.empty()) {
      const bool shift = given.kind == Dependence::shifted;
      hidden_by_ = concat(shift ? "what it adds, " : "what it multiplies, ", node.op->name, " (%", node.outputs[0], ')',
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
  std::vector<Dependence> values_;  // by value id
  std::string hidden_by_;
};

}  // namespace

std::vector<LintFinding> lint(const Graph& graph, std::string_view output) {
  const auto named = std::find_if(graph.outputs().begin(), graph.outputs().end(), [&](const Output& o) { return o.name == output; });
  require(named != graph.outputs().end(), "lint: the graph has no output \"", output, '"');
  std::vector<LintFinding> findings;
  for (const Node* node : graph.all(NodeKind::variable)) {
    if (!node->trainable) continue;
    Trace trace(graph, *node);
    if (trace.at_output(named->value) != Dependence::none) continue;
    findings.push_back({node->name, trace.hidden_by().empty() ? concat("no way leads from it to \"", output, '"') : trace.hidden_by()});
  }
  return findings;
}

}  // namespace frit::graph
