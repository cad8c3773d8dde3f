#include <map>
#include <tuple>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// Larger constants are not compared.
constexpr std::int64_t comparable_bytes = 1024;

using OperationKey = std::tuple<const ops::Operator*, std::string, std::vector<int>>;
using ConstantKey = std::tuple<DType, std::vector<std::int64_t>, std::string>;

ConstantKey constant_key(const Tensor& tensor) {
  return {tensor.dtype(),
          {tensor.shape().begin(), tensor.shape().end()},
          std::string(static_cast<const char*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes()))};
}

}  // namespace

Graph share_common_subexpressions(const Graph& graph) {
  Rewriter rewriter(graph);
  std::map<OperationKey, const Node*> operations;
  std::map<ConstantKey, const Node*> constants;
  for (const Node& node : graph.nodes()) {
    const Node** known = nullptr;
    if (node.kind == NodeKind::operation && node.op->mutates.empty()) {
      std::vector<int> inputs;
      for (const int id : node.inputs) inputs.push_back(rewriter(id).id());
      known = &operations[{node.op, node.attributes.text(), std::move(inputs)}];
    } else if (node.kind == NodeKind::constant && node.constant.bytes() <= comparable_bytes && node.constant.elements() > 0) {
      known = &constants[constant_key(node.constant)];
    }
    if (known != nullptr && *known != nullptr) {
      for (std::size_t i = 0; i < node.outputs.size(); ++i) rewriter.map(node.outputs[i], rewriter((*known)->outputs[i]));
      continue;
    }
    if (known != nullptr) *known = &node;
    rewriter.copy(node);
  }
  return rewriter.finish();
}

}  // namespace frit::graph
