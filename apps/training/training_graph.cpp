#include "apps/training/training_graph.h"

#include <cmath>

namespace frit::apps {
namespace {

/// "the targets", or which.
std::string targets_text(const Model::Head& head) {
  return head.name == output_name ? "the targets" : concat("the targets \"", head.target(), '"');
}

/// Classes as whole numbers: a volume may hold them as floats.
Tensor as_classes(const Model::Head& head, const Tensor& target) {
  if (is_floating(target.dtype())) {
    for (const double value : target.to_vector<double>()) {
      require(value == std::floor(value) && std::isfinite(value), targets_text(head), " are classes, expected whole numbers, got ", value);
    }
  }
  return target.to(DType::i64);
}

}  // namespace

BatchTypes batch_types(const Dataset& data, std::int64_t batch_size) {
  BatchTypes types;
  for (const Dataset::Field& field : data.fields()) {
    Shape shape = field.shape;
    shape.insert(0, batch_size);
    types[field.name] = {field.dtype, shape};
  }
  return types;
}

Value build_loss(Graph& graph, const Model& model, const BatchTypes& batch, DType dtype, const LossOptions& options) {
  model.check_side_inputs(batch);
  const Shape& input = batch.at("input").shape;
  model.check_input(input);
  const ModelLoss result = add_loss(graph, model, input, dtype, options);
  graph.output(output_name, result.outputs.at(output_name));
  for (const Model::Head& head : model.learnt()) {
    const auto place = batch.find(head.target());
    require(place != batch.end(), "a batch has no \"", head.target(), '"');
    const auto& [type, found] = place->second;
    const Shape& expected = graph.type(graph.find(graph::NodeKind::input, head.target())->outputs[0]).shape;
    require(found == expected, targets_text(head), " of a batch have shape ", found, ", the model needs ", expected);
    const bool whole = !is_floating(type) || head.task != Model::Task::classification;
    require(whole, targets_text(head), " are ", type, ", a classifier needs integers");
  }
  if (!model.follows_shapes) graph.remake_by([=](const auto& inputs) { return loss_graph(model, inputs, dtype, options); });
  return result.loss;
}

Graph loss_graph(const Model& model, const BatchTypes& batch, DType dtype, const LossOptions& options) {
  Graph graph;
  const Value loss = build_loss(graph, model, batch, dtype, options);
  const Graph::Remake remake = graph.remake();
  graph.output("loss", loss);
  graph.remake_by(remake);
  return graph;
}

void check_ignorable(const Model& model) {
  require(model.task == Model::Task::segmentation, "--ignore-index goes with segmentations, whose masks may leave places out; ", model.name,
          " is none");
}

Bindings batch_inputs(const Model& model, const Batch& batch, DType dtype) {
  Bindings inputs = {{"input", batch["input"].to(dtype)}};
  for (const Model::SideInput& side : model.side_inputs)
    inputs[side.name] = batch[side.name].to(is_floating(side.dtype) ? dtype : side.dtype);
  for (const Model::Head& head : model.learnt()) {
    const Tensor& target = batch[head.target()];
    inputs[head.target()] = head.has_classes() ? as_classes(head, target) : target.to(dtype);
  }
  return inputs;
}

}  // namespace frit::apps
