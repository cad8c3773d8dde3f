#include "frit/autograd/train_step.h"

#include "frit/autograd/gradient.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

constexpr const char* loss_name = "loss";
constexpr const char* rate_name = "optimizer.rate";
constexpr const char* step_name = "optimizer.step";
constexpr const char* loss_scale_name = "optimizer.loss_scale";
constexpr const char* good_steps_name = "optimizer.good_steps";

constexpr double first_loss_scale = 65536;

Graph with_loss(Value loss) {
  Graph& source = Graph::of(loss);
  require(loss.type().elements() == 1, "TrainStep: the loss must have one element, got ", loss.type());
  Graph graph = source;
  graph.output(loss_name, graph.value(loss.id()));
  return graph;
}

Initializer filled(double value) {
  return [value](const Tensor& tensor, std::uint64_t) { tensor.fill(value); };
}

/// The parameters' gradients, and the scalar that they are still to be multiplied by; a negative one: the update is to be skipped.
struct ScaledGradients {
  Values values;
  Value scale;
};

/// A loss that is multiplied by a number lifts its gradients above the least that f16 can hold; bf16 reaches as far down as float32.
ScaledGradients scaled_gradients(Graph& graph, std::span<const Value> parameters, const TrainOptions& options) {
  const Value loss = graph.output_value(loss_name);
  if (options.precision != DType::f16) {
    const Values gradients = gradient(loss, parameters);
    const DType dtype = gradients[0].dtype();
    return {gradients, options.clip_norm ? ops::clip_scale(ops::global_norm(gradients), *options.clip_norm)
                                         : graph.constant(Tensor::full({}, 1, dtype))};
  }
  const Value scale = graph.variable(loss_scale_name, {parameters[0].dtype(), {}}, filled(first_loss_scale));
  const Value good_steps = graph.variable(good_steps_name, {DType::i64, {}}, filled(0));
  const Value seed = reshape(cast(scale, loss.dtype()), loss.shape());
  const Values gradients = gradient(std::span(&loss, 1), std::span(&seed, 1), parameters);
  return {gradients, ops::update_loss_scale(ops::global_norm(gradients), scale, good_steps, options.clip_norm)};
}

/// Appends the gradient and the updates.
void append_updates(Graph& graph, const Optimizer& optimizer, const TrainOptions& options) {
  Values parameters;
  std::vector<std::string> names;
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
    if (!node->trainable) continue;
    parameters.push_back(graph.value(node->outputs[0]));
    names.push_back(node->name);
  }
  require(!parameters.empty(), "TrainStep: the loss depends on no trainable variable");
  const ScaledGradients gradients = scaled_gradients(graph, parameters, options);
  const Value rate = graph.variable(rate_name, {DType::f64, {}}, filled(optimizer.learning_rate));
  const Value step = graph.variable(step_name, {DType::i64, {}}, filled(0));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    optimizer.update(UpdateSite{graph, names[i], parameters[i], gradients.values[i], rate, step, gradients.scale});
  }
  ops::advance(step, gradients.scale);
}

}  // namespace

TrainStep::TrainStep(Value loss, const Optimizer& optimizer, Device device, const TrainOptions& options)
    : program_(
          with_loss(loss), std::make_shared<State>(device, options.seed),
          [optimizer, options](Graph& graph) { append_updates(graph, optimizer, options); }, options.precision) {
  std::map<std::string, TensorType> inputs;
  for (const graph::Node* node : graph().all(graph::NodeKind::input)) inputs[node->name] = graph().type(node->outputs[0]);
  program_.compile(inputs);  // mistakes show here, not at the first step
}

double TrainStep::operator()(const Bindings& inputs) { return start(inputs).item(); }

const Tensor& TrainStep::start(const Bindings& inputs) {
  last_ = &program_.run(inputs);
  return last_->output(loss_name);
}

const Tensor& TrainStep::output(std::string_view name) const {
  require(last_ != nullptr, "TrainStep::output: no step was run yet");
  return last_->output(name);
}

void TrainStep::set_learning_rate(double rate) { state().set(rate_name, Tensor::full({}, rate, DType::f64)); }

std::int64_t TrainStep::steps() const { return static_cast<std::int64_t>(state().at(step_name).item()); }

}  // namespace frit
