#include <algorithm>
#include <set>

#include "frit/graph/graph.h"

namespace frit::graph {
namespace {

template <class... Parts>
void check(bool holds, const Node& node, const Parts&... parts) {
  if (holds) return;
  fail(ErrorKind::bug, "graph is broken at ",
       node.op != nullptr  ? node.op->name
       : node.name.empty() ? "a constant"
                           : node.name,
       ": ", parts...);
}

bool updates(const Node& node, std::size_t input) {
  if (node.op == nullptr) return false;
  const std::vector<int>& mutated = node.op->mutates;
  return std::find(mutated.begin(), mutated.end(), static_cast<int>(input)) != mutated.end();
}

void check_types(const Graph& graph, const Node& node) {
  const std::vector<TensorType> inferred = node.op->infer_types(graph.types(node.inputs), node.attributes);
  check(inferred.size() == node.outputs.size(), node, "it has ", node.outputs.size(), " outputs, inferred ", inferred.size());
  for (std::size_t i = 0; i < inferred.size(); ++i) {
    check(inferred[i] == graph.type(node.outputs[i]), node, "output ", i, " is ", graph.type(node.outputs[i]), ", inferred ", inferred[i]);
  }
}

}  // namespace

void verify(const Graph& graph) {
  std::vector<bool> known(static_cast<std::size_t>(graph.value_count()), false), mutated = known;
  std::set<std::string> names;
  for (const Node& node : graph.nodes()) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const int id = node.inputs[i];
      check(known[static_cast<std::size_t>(id)], node, "value %", id, " is read before it is given");
      check(!mutated[static_cast<std::size_t>(id)] || updates(node, i), node, "variable \"", graph.producer(id).name,
            "\" is read after it was updated");
    }
    if (node.kind == NodeKind::operation) {
      check(node.op != nullptr, node, "an operation without an operator");
      check_types(graph, node);
      for (const int input : node.op->mutates) {
        if (static_cast<std::size_t>(input) >= node.inputs.size()) continue;
        const int id = node.inputs[static_cast<std::size_t>(input)];
        check(graph.producer(id).kind == NodeKind::variable, node, "it updates %", id, ", which is no variable");
        mutated[static_cast<std::size_t>(id)] = true;
      }
    } else {
      check(node.inputs.empty() && node.outputs.size() == 1, node, "a leaf has inputs or not one output");
      if (node.kind != NodeKind::constant) {
        check(names.insert(node.name).second, node, "its name is not unique");
      }
    }
    for (const int id : node.outputs) known[static_cast<std::size_t>(id)] = true;
  }
  for (const Output& output : graph.outputs()) FRIT_CHECK(known[static_cast<std::size_t>(output.value)]);
}

}  // namespace frit::graph
