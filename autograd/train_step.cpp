#include "frit/autograd/train_step.h"

#include "frit/autograd/gradient.h"

namespace frit {
namespace {

constexpr const char* loss_name = "loss";
constexpr const char* rate_name = "optimizer.rate";
constexpr const char* step_name = "optimizer.step";

Graph with_loss(Value loss) {
  Graph& source = Graph::of(loss);
  require(loss.type().elements() == 1, "TrainStep: the loss must have one element, got ", loss.type());
  Graph graph = source;
  graph.output(loss_name, graph.value(loss.id()));
  return graph;
}

/// Appends the gradient and the updates.
void append_updates(Graph& graph, const Optimizer& optimizer, std::optional<double> clip_norm) {
  Values parameters;
  std::vector<std::string> names;
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
    if (!node->trainable) continue;
    parameters.push_back(graph.value(node->outputs[0]));
    names.push_back(node->name);
  }
  require(!parameters.empty(), "TrainStep: the loss depends on no trainable variable");
  Values gradients = gradient(graph.output_value(loss_name), parameters);
  if (clip_norm) gradients = ops::clip_by_global_norm(gradients, *clip_norm);

  const double rate = optimizer.learning_rate;
  const auto set_rate = [rate](const Tensor& tensor, std::uint64_t) { tensor.fill(rate); };
  const auto set_zero = [](const Tensor& tensor, std::uint64_t) { tensor.fill(0); };
  const Value rate_value = graph.variable(rate_name, {DType::f64, {}}, set_rate);
  const Value step_value = graph.variable(step_name, {DType::i64, {}}, set_zero);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    optimizer.update(UpdateSite{graph, names[i], parameters[i], gradients[i], rate_value, step_value});
  }
  ops::advance(step_value);
}

}  // namespace

TrainStep::TrainStep(Value loss, const Optimizer& optimizer, Device device, const TrainOptions& options)
    : program_(with_loss(loss), std::make_shared<State>(device, options.seed),
               [optimizer, clip = options.clip_norm](Graph& graph) { append_updates(graph, optimizer, clip); }) {
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
