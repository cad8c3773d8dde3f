#include "apps/common/model_graph.h"

#include "frit/graph/lint.h"
#include "frit/ops/loss/loss.h"

namespace frit::apps {

Value add_loss(Graph& graph, const Model& model, const Shape& input, DType dtype) {
  const Value output = model.build(Scope(graph, "", dtype), graph.input("input", input, dtype));
  const Value target = graph.input("target", model.target_shape(output.shape()), model.has_classes() ? DType::i64 : dtype);
  return model.has_classes() ? cross_entropy(output, target) : mean_squared_error(output, target);
}

std::map<std::string, TensorType> input_types(const Graph& graph) {
  std::map<std::string, TensorType> types;
  for (const graph::Node* node : graph.all(graph::NodeKind::input)) types[node->name] = graph.type(node->outputs[0]);
  return types;
}

std::string lint_text(const Graph& graph, const std::string& prefix) {
  std::string text, names;
  for (const graph::LintFinding& finding : graph::lint(graph, "loss")) {
    text += concat(prefix, finding.parameter, " cannot learn: ", finding.reason, '\n');
    names += (names.empty() ? "" : ",") + finding.parameter;
  }
  return names.empty() ? "" : concat(text, prefix, "to leave them out of training: --freeze ", names, '\n');
}

void check_input_shape(const Model& model, const Shape& shape) {
  try {
    model.check_input(shape);
  } catch (const Error& error) {
    fail(ErrorKind::argument, "--input-shape: ", error.what());
  }
}

}  // namespace frit::apps
