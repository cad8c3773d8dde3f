#include "frit/autograd/gradient.h"

#include <algorithm>

#include "frit/graph/influence.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

using graph::Node;
using graph::NodeKind;

/// Gradients of slices of one value that cover its axis without overlapping lie next to each other: joined, no zeros are added up.
class SliceGradients {
 public:
  /// Whether the gradient is that of a slice, and is kept.
  bool take(const Graph& graph, Value gradient) {
    const Node& node = graph.producer(gradient.id());
    if (node.kind != NodeKind::operation || node.op->name != "slice_backward") return false;
    const auto& slice = node.attributes.as<ops::SliceBackwardAttributes>();
    if (slice.step != 1 || (!parts_.empty() && slice.axis != axis_)) return false;
    axis_ = slice.axis;
    parts_.push_back({slice.begin, gradient, Value(gradient.emitter(), node.inputs[0])});
    return true;
  }
  /// Their sum, if they cover the axis; they are forgotten then.
  Value joined() {
    std::stable_sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.begin < b.begin; });
    std::int64_t end = 0;
    Values values;
    for (const Part& part : parts_) {
      if (part.begin != end) return {};
      end += part.given.dim(axis_);
      values.push_back(part.given);
    }
    if (parts_.empty() || end != parts_[0].gradient.dim(axis_)) return {};
    parts_.clear();
    return values.size() == 1 ? values[0] : concatenate(values, axis_);
  }
  /// Those that are left.
  Values take_all() {
    Values result;
    for (const Part& part : parts_) result.push_back(part.gradient);
    parts_.clear();
    return result;
  }

 private:
  struct Part {
    std::int64_t begin;
    Value gradient, given;  ///< with zeros around it, and the slice's
  };

  std::int64_t axis_ = 0;
  std::vector<Part> parts_;
};

/// One reverse pass over the nodes that the graph had when it began.
class ReversePass {
 public:
  ReversePass(Graph& graph, std::span<const Value> outputs, std::span<const Value> with_respect_to)
      : graph_(graph),
        nodes_(graph.nodes().size()),
        gradients_(static_cast<std::size_t>(graph.value_count())),
        slices_(gradients_.size()),
        active_(gradients_.size(), false) {
    std::vector<int> ids;
    for (const Value& output : outputs) ids.push_back(output.id());
    const graph::Influences influences(graph, ids);
    for (const Value& value : with_respect_to) {
      require(is_floating(value.dtype()), "gradient: with respect to a value of dtype ", value.dtype(), ", which has no gradient");
      const graph::Influence influence = influences.of(value.id());
      active_[static_cast<std::size_t>(value.id())] = influence.shows || !influence.exact;
    }
    for (const Node& node : graph.nodes()) {
      const bool reached =
          std::any_of(node.inputs.begin(), node.inputs.end(), [&](int id) { return active_[static_cast<std::size_t>(id)]; });
      for (const int id : node.outputs) {
        if (reached && is_floating(graph.type(id).dtype)) active_[static_cast<std::size_t>(id)] = true;
      }
    }
  }

  void add(int id, Value gradient) {
    SliceGradients& slices = slices_[static_cast<std::size_t>(id)];
    if (!slices.take(graph_, gradient)) return add_up(id, gradient);
    if (const Value joined = slices.joined()) add_up(id, joined);
  }

  void run() {
    for (std::size_t n = nodes_; n-- > 0;) {
      const Node node = graph_.nodes()[n];  // a copy: emitting moves the nodes
      if (node.kind == NodeKind::operation) visit(node);
    }
  }

  Value result(Value value) { return gradient_of(value.id()); }

 private:
  void add_up(int id, Value gradient) {
    Value& sum = gradients_[static_cast<std::size_t>(id)];
    sum = sum ? sum + gradient : gradient;
  }
  /// When all that read the value have been visited.
  Value gradient_of(int id) {
    for (const Value gradient : slices_[static_cast<std::size_t>(id)].take_all()) add_up(id, gradient);
    return gradients_[static_cast<std::size_t>(id)];
  }

  void visit(const Node& node) {
    Values inputs, outputs, gradients;
    std::vector<bool> wanted;
    bool any_gradient = false;
    for (const int id : node.outputs) {
      outputs.push_back(graph_.value(id));
      gradients.push_back(gradient_of(id));
      any_gradient = any_gradient || gradients.back();
    }
    for (const int id : node.inputs) {
      inputs.push_back(graph_.value(id));
      wanted.push_back(active_[static_cast<std::size_t>(id)]);
    }
    if (!any_gradient || std::none_of(wanted.begin(), wanted.end(), [](bool w) { return w; })) return;
    require(static_cast<bool>(node.op->gradient), "gradient: ", node.op->name, " has no gradient: ", node.op->no_gradient);
    const Values results = node.op->gradient(ops::GradientContext{graph_, inputs, outputs, gradients, node.attributes, wanted});
    if (results.size() != inputs.size()) {
      fail(ErrorKind::bug, "gradient of ", node.op->name, ": the rule gave ", results.size(), " values for ", inputs.size(), " inputs");
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (wanted[i] && results[i]) add(inputs[i].id(), matched(*node.op, inputs[i], results[i]));
    }
  }

  static Value matched(const ops::Operator& op, Value input, Value gradient) {
    if (&gradient.emitter() != &input.emitter()) {
      fail(ErrorKind::bug, "gradient of ", op.name, ": the rule gave a value of another graph");
    }
    if (gradient.dtype() != input.dtype()) {
      fail(ErrorKind::bug, "gradient of ", op.name, ": the rule gave ", gradient.dtype(), " for an input of ", input.dtype());
    }
    return gradient.shape() == input.shape() ? gradient : sum_to(gradient, input.shape());
  }

  Graph& graph_;
  std::size_t nodes_;  // how many there were
  Values gradients_;   // by value id, as are the next two
  std::vector<SliceGradients> slices_;
  std::vector<bool> active_;  // depends on what the gradient is taken of
};

void require_in(const Graph& graph, const char* role, std::span<const Value> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    require(values[i] && &values[i].emitter() == &graph, "gradient: ", role, " ", i, " does not belong to the graph of output 0");
  }
}

}  // namespace

Values gradient_or_none(std::span<const Value> outputs, std::span<const Value> seeds, std::span<const Value> with_respect_to) {
  require(!outputs.empty() && outputs.size() == seeds.size(), "gradient: ", outputs.size(), " outputs and ", seeds.size(), " seeds");
  Graph& graph = Graph::of(outputs[0]);
  require_in(graph, "output", outputs);
  require_in(graph, "seed", seeds);
  require_in(graph, "parameter", with_respect_to);
  ReversePass pass(graph, outputs, with_respect_to);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    require(outputs[i].type() == seeds[i].type(), "gradient: output ", i, " is ", outputs[i].type(), ", its seed ", seeds[i].type());
    pass.add(outputs[i].id(), seeds[i]);
  }
  pass.run();
  Values results;
  for (const Value& value : with_respect_to) results.push_back(pass.result(value));
  return results;
}

Values gradient(std::span<const Value> outputs, std::span<const Value> seeds, std::span<const Value> with_respect_to) {
  Values results = gradient_or_none(outputs, seeds, with_respect_to);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Value& value = with_respect_to[i];
    if (!results[i]) results[i] = expand(value.emitter().constant(Tensor::zeros({}, value.dtype())), value.shape());
  }
  return results;
}

Values gradient(Value loss, std::span<const Value> with_respect_to) {
  require(loss.type().elements() == 1, "gradient: the loss must have one element, got ", loss.type());
  const Value seed = loss.emitter().constant(Tensor::full(loss.shape(), 1, loss.dtype()));
  return gradient(std::span(&loss, 1), std::span(&seed, 1), with_respect_to);
}

}  // namespace frit
