#include "frit/graph/rewriter.h"

#include <algorithm>

#include "frit/ops/operator/registry.h"

namespace frit::graph {

Value Rewriter::operator()(int old_value) const {
  const Value value = map_[static_cast<std::size_t>(old_value)];
  FRIT_CHECK(static_cast<bool>(value));
  return value;
}

Values Rewriter::operator()(const std::vector<int>& old_values) const {
  Values values;
  for (const int id : old_values) values.push_back((*this)(id));
  return values;
}

void Rewriter::copy(const Node& node) {
  switch (node.kind) {
    case NodeKind::input: {
      const TensorType& type = source_.type(node.outputs[0]);
      return map(node.outputs[0], target_.input(node.name, type.shape, type.dtype));
    }
    case NodeKind::variable:
      return map(node.outputs[0], target_.variable(node.name, source_.type(node.outputs[0]), node.initialize, node.trainable));
    case NodeKind::constant: return map(node.outputs[0], target_.constant(node.constant));
    case NodeKind::operation: {
      const Values outputs = target_.emit(*node.op, (*this)(node.inputs), node.attributes);
      for (std::size_t i = 0; i < outputs.size(); ++i) map(node.outputs[i], outputs[i]);
    }
  }
}

Graph Rewriter::finish() {
  for (const Output& output : source_.outputs()) target_.output(output.name, (*this)(output.value));
  return std::move(target_);
}

Value convert(Graph& target, const Value& value, DType dtype) {
  const std::vector<const ops::Operator*> all = ops::registry().all();
  const auto found = std::find_if(all.begin(), all.end(), [](const ops::Operator* op) { return static_cast<bool>(op->conversion); });
  FRIT_CHECK(found != all.end());
  return target.emit(**found, std::span(&value, 1), (*found)->conversion(dtype)).at(0);
}

}  // namespace frit::graph
