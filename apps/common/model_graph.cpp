#include "apps/common/model_graph.h"

#include "frit/graph/lint.h"
#include "frit/ops/communication/collectives.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::apps {
namespace {

/// The mean over what is counted.
Value mean_of_counted(Value logits, Value target, std::int64_t ignore_index, const Communicator* communicator) {
  const Value losses = cross_entropy(logits, target, {.ignore_index = ignore_index, .reduction = Reduction::none});
  Value counted = mean(cast(not_equal(target, static_cast<double>(ignore_index)), losses.dtype()));
  if (communicator != nullptr) counted = ops::all_reduce(std::span(&counted, 1), *communicator)[0];
  return mean(losses) / where(equal(counted, 0), 1.0, counted);
}

Value loss_of(const Model::Head& head, Value output, Value target, const LossOptions& options) {
  if (!head.has_classes()) return mean_squared_error(output, target);
  if (head.task != Model::Task::segmentation || !options.ignore_index) return cross_entropy(output, target);
  return mean_of_counted(output, target, *options.ignore_index, options.communicator);
}

}  // namespace

ModelLoss add_loss(Graph& graph, const Model& model, const Shape& input, DType dtype, const LossOptions& options) {
  ModelLoss result{{}, model.add_to(Scope(graph, "", dtype), input)};
  for (const Model::Head& head : model.learnt()) {
    const Value output = result.outputs.at(head.name);
    const Value target = graph.input(head.target(), model.target_shape(head, output.shape()), head.has_classes() ? DType::i64 : dtype);
    const Value loss = loss_of(head, output, target, options), weighted = head.weight == 1 ? loss : loss * head.weight;
    result.loss = result.loss ? result.loss + weighted : weighted;
  }
  return result;
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
