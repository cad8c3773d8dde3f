#include "frit/autograd/train_step.h"

#include <cmath>

#include "frit/autograd/gradient.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

constexpr const char* loss_name = "loss";
constexpr const char* norm_name = "gradient_norm";
constexpr const char* rate_name = "optimizer.rate";
constexpr const char* step_name = "optimizer.step";
constexpr const char* loss_scale_name = "optimizer.loss_scale";
constexpr const char* good_steps_name = "optimizer.good_steps";
constexpr const char* failures_name = "optimizer.failures";

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

struct Parameter {
  std::string name;
  TensorType type;
};

std::vector<Parameter> trained(const Graph& graph) {
  std::vector<Parameter> parameters;
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
    if (node->trainable) parameters.push_back({node->name, graph.type(node->outputs[0])});
  }
  return parameters;
}

/// Parameters' gradients, and the scalar that they are still to be multiplied by; a negative one: the update is to be skipped.
struct ScaledGradients {
  Values values;
  Value scale;
};

/// Whether a norm that is not finite is a fault: that of halves may be too large for a half, and in mixed precision its place is the loss
/// scale's.
bool faults(const TrainOptions& options, DType dtype) { return options.guarded && options.precision != DType::f16 && dtype != DType::f16; }

/// -1 from the first time on that `norm` or `loss` is not finite, else what the gradients are to be multiplied by.
Value guarded_scale(Graph& graph, Value norm, Value loss, const std::optional<double>& clip_norm) {
  const Value failures = graph.variable(failures_name, {DType::i64, {}}, filled(0));
  return ops::guard_update(norm, reshape(cast(loss, norm.dtype()), {}), failures, clip_norm);
}

/// A loss that is multiplied by a number lifts its gradients above the least that f16 can hold; bf16 reaches as far down as float32.
ScaledGradients scaled_gradients(Graph& graph, std::span<const Value> parameters, const TrainOptions& options) {
  const Value loss = graph.output_value(loss_name);
  // Gradients that are summed up are clipped as a sum.
  const std::optional<double> clip_norm = options.accumulate > 1 ? std::nullopt : options.clip_norm;
  if (options.precision != DType::f16) {
    const Values gradients = gradient(loss, parameters);
    const Value one = graph.constant(Tensor::full({}, 1, gradients[0].dtype()));
    if (!clip_norm && !options.guarded) return {gradients, one};
    const Value norm = ops::global_norm(gradients);
    if (options.guarded) graph.output(norm_name, norm);
    if (faults(options, norm.dtype())) return {gradients, guarded_scale(graph, norm, loss, clip_norm)};
    return {gradients, clip_norm ? ops::clip_scale(norm, *clip_norm) : one};
  }
  const Value scale = graph.variable(loss_scale_name, {parameters[0].dtype(), {}}, filled(first_loss_scale));
  const Value good_steps = graph.variable(good_steps_name, {DType::i64, {}}, filled(0));
  const Value seed = reshape(cast(scale, loss.dtype()), loss.shape());
  const Values gradients = gradient(std::span(&loss, 1), std::span(&seed, 1), parameters);
  const Value norm = ops::global_norm(gradients);
  if (options.guarded) graph.output(norm_name, norm / scale);
  return {gradients, ops::update_loss_scale(norm, scale, good_steps, clip_norm)};
}

/// The parameter's place for the sum of gradients.
Value accumulated(Graph& graph, const Parameter& parameter) {
  return graph.variable("optimizer." + parameter.name + ".accumulated", parameter.type, filled(0));
}

void append_update(Graph& graph, const Optimizer& optimizer, const std::vector<Parameter>& names, const Values& parameters,
                   const ScaledGradients& gradients) {
  const Value rate = graph.variable(rate_name, {DType::f64, {}}, filled(optimizer.learning_rate));
  const Value step = graph.variable(step_name, {DType::i64, {}}, filled(0));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    optimizer.update(UpdateSite{graph, names[i].name, parameters[i], gradients.values[i], rate, step, gradients.scale});
  }
  ops::advance(step, gradients.scale);
}

/// Appends the gradient and the updates, or where gradients are to be summed up, the sums.
void append_training(Graph& graph, const Optimizer& optimizer, const TrainOptions& options) {
  const std::vector<Parameter> names = trained(graph);
  require(!names.empty(), "TrainStep: the loss depends on no trainable variable");
  Values parameters;
  for (const Parameter& parameter : names)
    parameters.push_back(graph.value(graph.find(graph::NodeKind::variable, parameter.name)->outputs[0]));
  const ScaledGradients gradients = scaled_gradients(graph, parameters, options);
  if (options.accumulate == 1) return append_update(graph, optimizer, names, parameters, gradients);
  // sum += share * gradient is what gradient descent does at the rate -share.
  const Value rate = graph.constant(Tensor::full({}, -1.0 / static_cast<double>(options.accumulate), DType::f64));
  const Value step = graph.constant(Tensor::zeros({}, DType::i64));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ops::sgd_update(accumulated(graph, names[i]), gradients.values[i], rate, step, gradients.scale, {}, {});
  }
}

/// The updates by the sums of gradients, which are reset.
Graph update_graph(const Graph& forward, const Optimizer& optimizer, const TrainOptions& options) {
  Graph graph;
  const std::vector<Parameter> names = trained(forward);
  Values parameters;
  ScaledGradients sums;
  for (const Parameter& parameter : names) {
    parameters.push_back(graph.variable(parameter.name, parameter.type, filled(0), /*trainable=*/true));
    sums.values.push_back(accumulated(graph, parameter));
  }
  sums.scale = graph.constant(Tensor::full({}, 1, parameters[0].dtype()));
  if (options.guarded || options.clip_norm) {
    const Value norm = ops::global_norm(sums.values);
    if (faults(options, norm.dtype())) {
      sums.scale = guarded_scale(graph, norm, norm, options.clip_norm);
    } else if (options.clip_norm) {
      sums.scale = ops::clip_scale(norm, *options.clip_norm);
    }
  }
  append_update(graph, optimizer, names, parameters, sums);
  for (const Value& sum : sums.values) ops::clear(sum, sums.scale);
  return graph;
}

}  // namespace

void TrainPosition::fields(FieldVisitor& v) {
  v.field("batches", batches);
  v.field("learning_rate", learning_rate);
  v.field("plateau_best", plateau.best);
  v.field("plateau_waited", plateau.waited);
  v.field("plateau_factor", plateau.factor);
}

void TrainPosition::check() const {
  require(batches >= 0 && batches <= most_counted, "training: ", batches, " batches, expected 0 to ", most_counted);
  require(std::isfinite(learning_rate), "training: the learning rate is ", learning_rate);
  require(plateau.waited >= 0 && plateau.waited <= most_counted, "training: plateau_waited is ", plateau.waited, ", expected 0 to ",
          most_counted);
  require(!std::isnan(plateau.best), "training: plateau_best is ", plateau.best);
  require(plateau.factor >= 0 && std::isfinite(plateau.factor), "training: plateau_factor is ", plateau.factor, ", expected 0 or more");
}

TrainStep::TrainStep(Value loss, const Optimizer& optimizer, Device device, const TrainOptions& options)
    : optimizer_(optimizer),
      options_(options),
      program_(
          graph::freeze(with_loss(loss), options.freeze), std::make_shared<State>(device, options.seed),
          [optimizer, options](Graph& graph) { append_training(graph, optimizer, options); }, options.precision),
      position_{.learning_rate = optimizer.learning_rate} {
  options.schedule.check();
  require(options.accumulate >= 1, "TrainStep: accumulate is ", options.accumulate, ", expected 1 or more batches");
  require(!options.clip_norm || *options.clip_norm > 0, "TrainStep: clip_norm is ", options.clip_norm.value_or(0),
          ", expected a number above 0");
  std::map<std::string, TensorType> inputs;
  for (const graph::Node* node : graph().all(graph::NodeKind::input)) inputs[node->name] = graph().type(node->outputs[0]);
  program_.compile(inputs);  // mistakes show here, not at the first step
  if (options.accumulate == 1) return;
  update_.emplace(update_graph(graph(), optimizer, options), program_.shared_state());
  update_->compile({});
}

double TrainStep::operator()(const Bindings& inputs) { return start(inputs).item(); }

const Tensor& TrainStep::start(const Bindings& inputs) {
  const bool updates = (position_.batches + 1) % options_.accumulate == 0;
  if (updates) set_rate();
  if (options_.guarded) keep_what_runs_change();
  last_ = &program_.run(inputs);
  if (updates && update_) update_->run({});
  ++position_.batches;
  return last_->output(loss_name);
}

const Tensor& TrainStep::output(std::string_view name) const {
  require(last_ != nullptr, "TrainStep::output: no step was run yet");
  return last_->output(name);
}

bool TrainStep::finite(double loss, double norm) const {
  const bool norm_matters = gradient_norm().dtype() != DType::f16 && options_.precision != DType::f16;
  return std::isfinite(loss) && (std::isfinite(norm) || !norm_matters);
}

const Tensor& TrainStep::gradient_norm() const {
  require(options_.guarded, "TrainStep::gradient_norm: only a guarded step measures it");
  return output(norm_name);
}

void TrainStep::set_learning_rate(double rate) {
  position_.learning_rate = rate;
  set_rate();
}

double TrainStep::learning_rate() const {
  return position_.learning_rate * options_.schedule.factor_at(position_.batches / options_.accumulate, position_.plateau);
}

void TrainStep::set_rate() {
  const double rate = learning_rate();
  if (rate_ != rate) state().set(rate_name, Tensor::full({}, rate, DType::f64));
  rate_ = rate;
}

void TrainStep::observe(double loss) { options_.schedule.observe(loss, position_.plateau); }

std::int64_t TrainStep::steps() const { return static_cast<std::int64_t>(state().at(step_name).item()); }

void TrainStep::set_position(const TrainPosition& position) {
  position.check();
  position_ = position;
  rate_.reset();
}

/// Only what the forward pass mutates: a guarded update changes nothing once something was not finite.
void TrainStep::keep_what_runs_change() {
  std::map<std::string, Tensor>& kept = before_[static_cast<std::size_t>(position_.batches % 2)];
  for (const graph::Node* node : graph().all(graph::NodeKind::operation)) {
    for (const int input : node->op->mutates) {
      if (static_cast<std::size_t>(input) >= node->inputs.size()) continue;
      const std::string& name = graph().producer(node->inputs[static_cast<std::size_t>(input)]).name;
      const Tensor& variable = state().at(name);
      Tensor& copy_of = kept[name];
      if (!copy_of.defined()) copy_of = Tensor::empty(variable.shape(), variable.dtype(), variable.device());
      copy(copy_of, variable);
    }
  }
}

void TrainStep::return_to(std::int64_t batch) {
  require(options_.guarded && batch >= 0 && batch < position_.batches && position_.batches - batch <= 2,
          "TrainStep::return_to: cannot go back from ", position_.batches, " to ", batch, " batches");
  for (const auto& [name, tensor] : before_[static_cast<std::size_t>(batch % 2)]) state().set(name, tensor);
  if (state().contains(failures_name)) state().set(failures_name, Tensor::zeros({}, DType::i64));
  position_.batches = batch;
  rate_.reset();
}

}  // namespace frit
