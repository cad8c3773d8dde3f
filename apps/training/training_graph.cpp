#include "apps/training/training_graph.h"

#include <cmath>

#include "frit/ops/communication/all_reduce.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::apps {
namespace {

TensorType batch_type(const Dataset::Field& field, std::int64_t batch_size) {
  Shape shape = field.shape;
  shape.insert(0, batch_size);
  return {field.dtype, shape};
}

/// Classes as whole numbers: a volume may hold them as floats.
Tensor as_classes(const Tensor& target) {
  if (is_floating(target.dtype())) {
    for (const double value : target.to_vector<double>()) {
      require(value == std::floor(value) && std::isfinite(value), "the targets are classes, expected whole numbers, got ", value);
    }
  }
  return target.to(DType::i64);
}

/// The mean over what is counted.
Value class_loss(Value logits, Value target, std::optional<std::int64_t> ignore_index, const Communicator* communicator) {
  if (!ignore_index) return cross_entropy(logits, target);
  const Value losses = cross_entropy(logits, target, {.ignore_index = ignore_index, .reduction = Reduction::none});
  Value counted = mean(cast(not_equal(target, static_cast<double>(*ignore_index)), losses.dtype()));
  if (communicator != nullptr) counted = ops::all_reduce(std::span(&counted, 1), *communicator)[0];
  return mean(losses) / where(equal(counted, 0), 1.0, counted);
}

}  // namespace

BatchTypes BatchTypes::of(const Dataset& data, std::int64_t batch_size) {
  return {batch_type(data.fields()[0], batch_size), batch_type(data.fields()[1], batch_size)};
}

Value build_loss(Graph& graph, const Model& model, const BatchTypes& batch, DType dtype, std::optional<std::int64_t> ignore_index,
                 const Communicator* communicator) {
  const Shape &input = batch.input.shape, &target = batch.target.shape;
  model.check_input(input);
  const Value output = model.build(Scope(graph, "", dtype), graph.input("input", input, dtype));
  graph.output(output_name, output);
  if (!model.follows_shapes) {
    graph.remake_by([=](const auto& inputs) {
      Graph other;
      other.output("loss", build_loss(other, model, {inputs.at("input"), inputs.at("target")}, dtype, ignore_index, communicator));
      return other;
    });
  }
  const Shape expected = model.target_shape(output.shape());
  require(target == expected, "the targets of a batch have shape ", target, ", the model needs ", expected);
  const bool whole = !is_floating(batch.target.dtype) || model.task != Model::Task::classification;
  require(whole, "the targets are ", batch.target.dtype, ", a classifier needs integers");
  if (model.has_classes()) return class_loss(output, graph.input("target", target, DType::i64), ignore_index, communicator);
  return mean_squared_error(output, graph.input("target", target, dtype));
}

void check_ignorable(const Model& model) {
  require(model.task == Model::Task::segmentation, "--ignore-index goes with segmentations, whose masks may leave places out; ", model.name,
          " is none");
}

std::map<std::string, Tensor> batch_inputs(const Model& model, const Tensor& input, const Tensor& target, DType dtype) {
  return {{"input", input.to(dtype)}, {"target", model.has_classes() ? as_classes(target) : target.to(dtype)}};
}

std::map<std::string, TensorType> types_of(const std::map<std::string, Tensor>& inputs) {
  std::map<std::string, TensorType> types;
  for (const auto& [name, tensor] : inputs) types[name] = {tensor.dtype(), tensor.shape()};
  return types;
}

}  // namespace frit::apps
