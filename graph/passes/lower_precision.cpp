#include <algorithm>

#include "frit/graph/index.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

bool holds(const std::vector<int>& list, std::size_t index) {
  return std::find(list.begin(), list.end(), static_cast<int>(index)) != list.end();
}

class Lowering {
 public:
  Lowering(const Graph& graph, DType half)
      : graph_(graph), half_(half), read_in_halves_(static_cast<std::size_t>(graph.value_count()), true), rewriter_(graph) {
    for (const Node* node : graph.all(NodeKind::operation)) {
      for (std::size_t i = 0; i < node->inputs.size(); ++i) {
        if (node->op->precision != ops::Precision::half || !is_data(*node, i)) read_in_halves_[index(node->inputs[i])] = false;
      }
    }
    for (const Output& output : graph.outputs()) read_in_halves_[index(output.value)] = false;
  }

  Graph run() {
    for (const Node& node : graph_.nodes()) {
      if (node.kind == NodeKind::operation) {
        lower(node);
      } else {
        rewriter_.copy(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  Value converted(const Value& value, DType dtype) { return value.dtype() == dtype ? value : convert(rewriter_.target(), value, dtype); }

  /// Of the operator's data, which is float32 in the graph as it was written; what it updates in place stays what it is.
  bool is_data(const Node& node, std::size_t input) const {
    return graph_.type(node.inputs[input]).dtype == DType::f32 && !holds(node.op->any_precision, input) && !holds(node.op->mutates, input);
  }

  /// An operator's dtypes are those of input 0; a selection's condition says nothing of what is selected.
  bool takes_halves(const Node& node) const {
    const bool of_data = node.inputs.empty() || is_floating(graph_.type(node.inputs[0]).dtype);
    return !of_data || std::find(node.op->dtypes.begin(), node.op->dtypes.end(), half_) != node.op->dtypes.end();
  }

  DType precision_of(const Node& node, const Values& inputs) const {
    const ops::Precision wanted = node.op->precision;
    const bool full = wanted == ops::Precision::full || (wanted == ops::Precision::as_read && !read_in_halves_[index(node.outputs[0])]);
    if (!takes_halves(node) || full) return DType::f32;
    bool any = wanted == ops::Precision::half;
    for (std::size_t i = 0; i < inputs.size(); ++i) any = any || (is_data(node, i) && inputs[i].dtype() == half_);
    return any ? half_ : DType::f32;
  }

  void lower(const Node& node) {
    Values inputs = rewriter_(node.inputs);
    const DType precision = precision_of(node, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (is_data(node, i)) inputs[i] = converted(inputs[i], precision);
    }
    const Values outputs = rewriter_.target().emit(*node.op, inputs, node.attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) rewriter_.map(node.outputs[i], outputs[i]);
  }

  const Graph& graph_;
  DType half_;
  std::vector<bool> read_in_halves_;  // by value: by all that read it
  Rewriter rewriter_;
};

}  // namespace

Graph lower_precision(const Graph& graph, DType half) {
  require(is_half(half), "lower_precision: expected f16 or bf16, got ", half);
  // First, as parts of what is spelled out may have to be float32: those of gelu are, and gelu is not.
  return Lowering(fuse_elementwise(graph), half).run();
}

}  // namespace frit::graph
