#include "frit/graph/find_non_finite.h"

#include <algorithm>
#include <cmath>

#include "frit/core/text.h"

namespace frit::graph {
namespace {

/// Nothing if the tensor is finite, or has no values that could be otherwise.
std::optional<NonFinite> look(const Tensor& tensor, const std::string& where) {
  if (!tensor.defined() || !is_floating(tensor.dtype())) return std::nullopt;
  const NumberRange range = range_of(tensor);
  return range.non_finite > 0 ? std::optional(NonFinite{where, range}) : std::nullopt;
}

/// What a call gave or updated.
std::vector<Tensor> results(const ops::Operator& op, const Call& call) {
  std::vector<Tensor> tensors = call.outputs;
  for (const int input : op.mutates) {
    if (static_cast<std::size_t>(input) < call.inputs.size()) tensors.push_back(call.inputs[static_cast<std::size_t>(input)]);
  }
  return tensors;
}

}  // namespace

NumberRange range_of(const Tensor& tensor) {
  const std::vector<double> values = tensor.to(Device::cpu()).contiguous().to_vector<double>();
  NumberRange range{.elements = std::ssize(values)};
  bool any = false;
  for (std::int64_t i = 0; i < range.elements; ++i) {
    const double value = values[static_cast<std::size_t>(i)];
    if (!std::isfinite(value)) {
      if (range.non_finite++ == 0) range.first_non_finite = i;
      continue;
    }
    range.least = any ? std::min(range.least, value) : value;
    range.largest = any ? std::max(range.largest, value) : value;
    any = true;
  }
  return range;
}

std::string NonFinite::text() const {
  return concat(where, ": ", range.non_finite, " of ", range.elements, " values are NaN or infinite, the first at ",
                range.first_non_finite);
}

std::string describe(const Graph& graph, const Call& call) {
  const Node& node = graph.nodes()[static_cast<std::size_t>(call.node)];
  std::string names;
  for (const int id : node.inputs) {
    const Node& producer = graph.producer(id);
    if (producer.kind == NodeKind::variable) names += concat(names.empty() ? " of \"" : ", \"", printable(producer.name), '"');
  }
  return concat("operator ", node.op->name, names, ", ", to_text(graph, node));
}

std::optional<NonFinite> find_non_finite(Executable& executable, const Bindings& inputs, const std::function<void(const Call&)>& see) {
  const Graph& graph = executable.graph();
  for (const auto& [name, tensor] : inputs) {
    if (auto found = look(tensor, concat("input \"", printable(name), '"'))) return found;
  }
  for (const Node* node : graph.all(NodeKind::variable)) {
    if (auto found = look(executable.value(node->outputs[0]), concat("variable \"", printable(node->name), '"'))) return found;
  }
  std::optional<NonFinite> found;
  executable.run_each(inputs, [&](const Step& step) {
    if (step.prepacks >= 0) return true;
    for (const Call& call : step.calls) {
      if (see) see(call);
      for (const Tensor& tensor : results(*step.op, call)) {
        const std::string part = step.parts == 1 ? "" : concat(", in one of ", step.parts, " parts of the batch");
        if (!found) found = look(tensor, describe(graph, call) + part);
      }
    }
    return !found;
  });
  return found;
}

}  // namespace frit::graph
