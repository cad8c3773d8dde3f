#include "frit/graph/rewriter.h"

#include <algorithm>

#include "frit/ops/operator/operator.h"

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

namespace {

/// The operator that has such a rule.
template <class Rule>
const ops::Operator& operator_with(Rule ops::Operator::*rule) {
  const std::vector<const ops::Operator*> all = ops::registry().all();
  const auto found = std::find_if(all.begin(), all.end(), [rule](const ops::Operator* op) { return static_cast<bool>(op->*rule); });
  FRIT_CHECK(found != all.end());
  return **found;
}

}  // namespace

Value convert(Graph& target, const Value& value, DType dtype) {
  const ops::Operator& op = operator_with(&ops::Operator::conversion);
  return target.emit(op, std::span(&value, 1), op.conversion(dtype)).at(0);
}

Value reshape(Graph& target, const Value& value, const Shape& shape) {
  const ops::Operator& op = operator_with(&ops::Operator::reshaping);
  return target.emit(op, std::span(&value, 1), op.reshaping(shape)).at(0);
}

}  // namespace frit::graph
