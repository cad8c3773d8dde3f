#include "frit/autograd/train_step.h"

#include <algorithm>
#include <cmath>

#include "frit/autograd/gradient.h"
#include "frit/autograd/reduced_gradients.h"
#include "frit/autograd/synchronized.h"
#include "frit/core/text.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/communication/all_reduce.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

constexpr const char* loss_name = "loss";
constexpr const char* mean_loss_name = "mean_loss";  // over processes
constexpr const char* norm_name = "gradient_norm";

// What a step keeps besides the parameters, after its prefix.
constexpr const char* rate_name = "rate";
constexpr const char* step_name = "step";
constexpr const char* loss_scale_name = "loss_scale";
constexpr const char* good_steps_name = "good_steps";
constexpr const char* failures_name = "failures";
constexpr const char* averaged_name = "averaged";  // how many updates the averages have seen

constexpr double first_loss_scale = 65536;

// How far apart processes are in what counts random draws: further than any of them comes. Those of 8,192 are below most_counted.
constexpr std::int64_t draws_of_a_process = std::int64_t{1} << 40;

std::string prefix_of(const TrainOptions& options) { return options.name.empty() ? "optimizer." : "optimizer." + options.name + "/"; }
std::string kept_name(const TrainOptions& options, const char* what) { return prefix_of(options) + what; }
std::string average_name(const TrainOptions& options, const std::string& parameter) { return prefix_of(options) + parameter + ".average"; }

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

/// The trainable variables that the loss depends on, by numbers that can change a little.
std::vector<Parameter> trained(const Graph& graph) {
  std::vector<bool> leads(static_cast<std::size_t>(graph.value_count()), false);
  for (const graph::Output& output : graph.outputs()) {
    if (output.name == loss_name) leads[static_cast<std::size_t>(output.value)] = true;
  }
  std::vector<Parameter> parameters;
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    const bool read = std::any_of(node->outputs.begin(), node->outputs.end(), [&](int id) { return leads[static_cast<std::size_t>(id)]; });
    if (!read) continue;
    for (const int id : node->inputs) leads[static_cast<std::size_t>(id)] = is_floating(graph.type(id).dtype);
    if (node->trainable) parameters.push_back({node->name, graph.type(node->outputs[0])});
  }
  std::reverse(parameters.begin(), parameters.end());
  return parameters;
}

bool fits(const ParameterGroup& group, const Parameter& parameter) {
  const int rank = parameter.type.shape.rank();
  return rank >= group.least_rank && rank <= group.most_rank && matches_pattern(group.names, parameter.name);
}

/// The gradients of `loss`, some of which may be zero, but not all; the means over all processes where they become an update at once.
Values gradients_of(Graph& graph, Value loss, Value seed, std::span<const Value> parameters, const std::vector<Parameter>& names,
                    const TrainOptions& options) {
  Values gradients = gradient_or_none(std::span(&loss, 1), std::span(&seed, 1), parameters);
  const bool flows = std::any_of(gradients.begin(), gradients.end(), [](const Value& gradient) { return static_cast<bool>(gradient); });
  require(flows, "TrainStep: no gradient of the loss reaches any of the ", names.size(),
          " trainable variables that it depends on, such as \"", names[0].name, '"');
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i]) gradients[i] = expand(graph.constant(Tensor::zeros({}, names[i].type.dtype)), names[i].type.shape);
  }
  if (!options.communicator || options.accumulate > 1) return gradients;
  return reduced_gradients(gradients, *options.communicator, options.reduces_halves);
}

/// The mean over all processes of a number that they must agree on.
Value agreed(Value number, const TrainOptions& options) {
  return options.communicator ? ops::all_reduce(std::span(&number, 1), *options.communicator)[0] : number;
}

/// The norm of the gradients: of means over processes, or of what each of them is to sum up, where all agree on whether it is finite.
Value norm_of(const Values& gradients, const TrainOptions& options) {
  const Value norm = ops::global_norm(gradients);
  return options.accumulate > 1 ? agreed(norm, options) : norm;
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
Value guarded_scale(Graph& graph, Value norm, Value loss, const TrainOptions& options, const std::optional<double>& clip_norm) {
  const Value failures = graph.variable(kept_name(options, failures_name), {DType::i64, {}}, filled(0));
  return ops::guard_update(norm, reshape(cast(loss, norm.dtype()), {}), failures, clip_norm);
}

/// A loss that is multiplied by a number lifts its gradients above the least that f16 can hold; bf16 reaches as far down as float32.
ScaledGradients scaled_gradients(Graph& graph, std::span<const Value> parameters, const std::vector<Parameter>& names,
                                 const TrainOptions& options) {
  const Value loss = graph.output_value(loss_name), mean_loss = agreed(loss, options);
  if (options.communicator) graph.output(mean_loss_name, mean_loss);
  // Gradients that are summed up are clipped as a sum.
  const std::optional<double> clip_norm = options.accumulate > 1 ? std::nullopt : options.clip_norm;
  if (options.precision != DType::f16) {
    const Value seed = graph.constant(Tensor::full(loss.shape(), 1, loss.dtype()));
    const Values gradients = gradients_of(graph, loss, seed, parameters, names, options);
    const Value one = graph.constant(Tensor::full({}, 1, gradients[0].dtype()));
    if (!clip_norm && !options.guarded) return {gradients, one};
    const Value norm = norm_of(gradients, options);
    if (options.guarded) graph.output(norm_name, norm);
    if (faults(options, norm.dtype())) return {gradients, guarded_scale(graph, norm, mean_loss, options, clip_norm)};
    return {gradients, clip_norm ? ops::clip_scale(norm, *clip_norm) : one};
  }
  const Value scale = graph.variable(kept_name(options, loss_scale_name), {parameters[0].dtype(), {}}, filled(first_loss_scale));
  const Value good_steps = graph.variable(kept_name(options, good_steps_name), {DType::i64, {}}, filled(0));
  const Value seed = reshape(cast(scale, loss.dtype()), loss.shape());
  const Values gradients = gradients_of(graph, loss, seed, parameters, names, options);
  const Value norm = norm_of(gradients, options);
  if (options.guarded) graph.output(norm_name, norm / scale);
  return {gradients, ops::update_loss_scale(norm, scale, good_steps, clip_norm)};
}

/// The parameter's place for the sum of gradients.
std::string accumulated_name(const TrainOptions& options, const Parameter& parameter) {
  return prefix_of(options) + parameter.name + ".accumulated";
}
Value accumulated(Graph& graph, const Parameter& parameter, const TrainOptions& options) {
  return graph.variable(accumulated_name(options, parameter), parameter.type, filled(0));
}

void append_update(Graph& graph, const Optimizer& optimizer, const TrainOptions& options, const std::vector<Parameter>& names,
                   const Values& parameters, const ScaledGradients& gradients) {
  const Value rate = graph.variable(kept_name(options, rate_name), {DType::f64, {}}, filled(optimizer.learning_rate));
  const Value step = graph.variable(kept_name(options, step_name), {DType::i64, {}}, filled(0));
  Values rates;
  for (const ParameterGroup& group : options.groups) {
    const bool same = group.optimizer.learning_rate == optimizer.learning_rate;
    rates.push_back(same ? rate : rate * (group.optimizer.learning_rate / optimizer.learning_rate));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto group = std::find_if(options.groups.begin(), options.groups.end(), [&](const auto& g) { return fits(g, names[i]); });
    const bool grouped = group != options.groups.end();
    const Value own_rate = grouped ? rates[static_cast<std::size_t>(group - options.groups.begin())] : rate;
    (grouped ? group->optimizer : optimizer)
        .update(UpdateSite{graph, names[i].name, parameters[i], gradients.values[i], own_rate, step, gradients.scale, prefix_of(options)});
  }
  ops::advance(step, gradients.scale);
}

/// Appends the gradient and the updates, or where gradients are to be summed up, the sums.
void append_training(Graph& graph, const Optimizer& optimizer, const TrainOptions& options) {
  const bool shares = options.sync_batch_norm && options.communicator && options.communicator->size() > 1;
  if (shares) graph = synchronized(graph, *options.communicator);
  const std::vector<Parameter> names = trained(graph);
  require(!names.empty(), "TrainStep: the loss depends on no trainable variable");
  Values parameters;
  for (const Parameter& parameter : names)
    parameters.push_back(graph.value(graph.find(graph::NodeKind::variable, parameter.name)->outputs[0]));
  const ScaledGradients gradients = scaled_gradients(graph, parameters, names, options);
  if (options.accumulate == 1) return append_update(graph, optimizer, options, names, parameters, gradients);
  // sum += share * gradient is what gradient descent does at the rate -share.
  const Value rate = graph.constant(Tensor::full({}, -1.0 / static_cast<double>(options.accumulate), DType::f64));
  const Value step = graph.constant(Tensor::zeros({}, DType::i64));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ops::sgd_update(accumulated(graph, names[i], options), gradients.values[i], rate, step, gradients.scale, {}, {});
  }
}

/// The parameters as variables of a graph that does not compute them.
Values variables_of(Graph& graph, const std::vector<Parameter>& names) {
  Values parameters;
  for (const Parameter& parameter : names) parameters.push_back(graph.variable(parameter.name, parameter.type, filled(0), true));
  return parameters;
}

/// The updates by the sums of gradients, which are reset.
Graph update_graph(const Graph& forward, const Optimizer& optimizer, const TrainOptions& options) {
  Graph graph;
  const std::vector<Parameter> names = trained(forward);
  const Values parameters = variables_of(graph, names);
  ScaledGradients sums;
  for (const Parameter& parameter : names) sums.values.push_back(accumulated(graph, parameter, options));
  const Values local = sums.values;
  if (options.communicator) sums.values = reduced_gradients(local, *options.communicator, options.reduces_halves);
  sums.scale = graph.constant(Tensor::full({}, 1, parameters[0].dtype()));
  if (options.guarded || options.clip_norm) {
    const Value norm = ops::global_norm(sums.values);
    if (faults(options, norm.dtype())) {
      sums.scale = guarded_scale(graph, norm, norm, options, options.clip_norm);
    } else if (options.clip_norm) {
      sums.scale = ops::clip_scale(norm, *options.clip_norm);
    }
  }
  append_update(graph, optimizer, options, names, parameters, sums);
  for (const Value& sum : local) ops::clear(sum, sums.scale);
  return graph;
}

/// The averages after an update, if there was one: a step may be skipped.
Graph average_graph(const Graph& forward, const TrainOptions& options) {
  Graph graph;
  const std::vector<Parameter> names = trained(forward);
  const Values parameters = variables_of(graph, names);
  const Value step = graph.variable(kept_name(options, step_name), {DType::i64, {}}, filled(0));
  const Value averaged = graph.variable(kept_name(options, averaged_name), {DType::i64, {}}, filled(0));
  const auto number = [&](double value, DType dtype) { return graph.constant(Tensor::full({}, value, dtype)); };
  const DType dtype = parameters[0].dtype();
  const Value scale = where(step > averaged, number(1, dtype), number(-1, dtype));
  // average -= (1 - decay) * (average - parameter) is what gradient descent does; the first average is the parameter itself.
  const Value rate = where(equal(averaged, 0), number(1, DType::f64), number(1 - *options.average_decay, DType::f64));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Value average = graph.variable(average_name(options, names[i].name), names[i].type, filled(0));
    ops::sgd_update(average, average - parameters[i], rate, number(0, DType::i64), scale, {}, {});
  }
  ops::advance(averaged, scale);
  return graph;
}

void check_options(const Graph& graph, const Optimizer& optimizer, const State& state, const TrainOptions& options) {
  options.schedule.check();
  require(options.name.find('/') == std::string::npos, "TrainStep: the name \"", printable(options.name),
          "\" has a '/', which ends it in the names of what the optimizer keeps");
  require(options.accumulate >= 1, "TrainStep: accumulate is ", options.accumulate, ", expected 1 or more batches");
  require(!options.clip_norm || *options.clip_norm > 0, "TrainStep: clip_norm is ", options.clip_norm.value_or(0),
          ", expected a number above 0");
  const double decay = options.average_decay.value_or(0);
  require(decay >= 0 && decay < 1, "TrainStep: average_decay is ", decay, ", expected a number in [0, 1)");
  require(!state.contains(kept_name(options, step_name)), "TrainStep: the state has \"", kept_name(options, step_name),
          "\" already: each of several steps needs a TrainOptions::name of its own");
  const std::vector<Parameter> parameters = trained(graph);
  for (const ParameterGroup& group : options.groups) {
    require(std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& parameter) { return fits(group, parameter); }),
            "TrainStep: no trained parameter has a name like \"", group.names, "\" and a rank from ", group.least_rank, " to ",
            group.most_rank);
    require(optimizer.learning_rate > 0 || group.optimizer.learning_rate == optimizer.learning_rate,
            "TrainStep: a group's learning rate is ", group.optimizer.learning_rate, ", no multiple of the step's, which is 0");
  }
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
    : TrainStep(std::make_shared<State>(device, options.seed), loss, optimizer, options) {}

TrainStep::TrainStep(std::shared_ptr<State> state, Value loss, const Optimizer& optimizer, const TrainOptions& options)
    : optimizer_(optimizer),
      options_(options),
      program_(
          graph::freeze(with_loss(loss), options.freeze), std::move(state),
          [optimizer, options](Graph& graph) { append_training(graph, optimizer, options); }, options.precision),
      position_{.learning_rate = optimizer.learning_rate} {
  check_options(graph(), optimizer, this->state(), options);
  std::map<std::string, TensorType> inputs;
  for (const graph::Node* node : graph().all(graph::NodeKind::input)) inputs[node->name] = graph().type(node->outputs[0]);
  program_.compile(inputs);  // mistakes show here, not at the first step
  if (options.accumulate > 1) {
    update_.emplace(update_graph(graph(), optimizer, options), shared_state());
    update_->compile({});
  }
  if (options.average_decay) {
    average_.emplace(average_graph(graph(), options), shared_state());
    average_->compile({});
  }
}

double TrainStep::operator()(const Bindings& inputs) { return start(inputs).item(); }

const Tensor& TrainStep::start(const Bindings& inputs) {
  if (!shared_) share_variables();
  const bool updates = (position_.batches + 1) % options_.accumulate == 0;
  if (updates) set_rate();
  if (options_.guarded) keep_what_runs_change();
  last_ = &program_.run(inputs);
  if (updates && update_) update_->run({});
  if (updates && average_) average_->run({});
  ++position_.batches;
  return last_->output(options_.communicator ? mean_loss_name : loss_name);
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

void TrainStep::share_variables() {
  shared_ = true;
  if (!options_.communicator) return;
  Communicator& communicator = *options_.communicator;
  for (auto& [name, tensor] : state().tensors()) communicator.broadcast(tensor);
  for (const graph::Node* node : graph().all(graph::NodeKind::operation)) {
    if (!node->op->counter) continue;
    const std::string& name = graph().producer(node->inputs[static_cast<std::size_t>(*node->op->counter)]).name;
    const auto draws = static_cast<std::int64_t>(state().at(name).item()) % draws_of_a_process;
    state().set(name, Tensor::from({draws + communicator.rank() * draws_of_a_process}, {}));
  }
}

void TrainStep::share_sums() {
  if (!options_.communicator || options_.accumulate == 1) return;
  std::vector<Tensor> sums;
  for (const Parameter& parameter : trained(graph())) sums.push_back(state().at(accumulated_name(options_, parameter)));
  options_.communicator->mean(sums, sums);
}

void TrainStep::share_statistics() {
  if (!options_.communicator) return;
  for (const graph::Node* node : graph().all(graph::NodeKind::operation)) {
    for (const int input : node->op->mutates) {
      if (static_cast<std::size_t>(input) >= node->inputs.size() || node->op->counter == input) continue;
      options_.communicator->broadcast(state().at(graph().producer(node->inputs[static_cast<std::size_t>(input)]).name));
    }
  }
}

std::shared_ptr<State> TrainStep::averaged() const {
  require(options_.average_decay.has_value(), "TrainStep::averaged: the step was made without average_decay");
  const auto result = std::make_shared<State>(state().device());
  result->prepare(graph());
  copy_averages(*result);
  return result;
}

void TrainStep::copy_averages(State& result) const {
  require(options_.average_decay.has_value(), "TrainStep::copy_averages: the step was made without average_decay");
  const bool begun = state().at(kept_name(options_, averaged_name)).item() > 0;
  for (const graph::Node* node : graph().all(graph::NodeKind::variable)) {
    const std::string average = average_name(options_, node->name);
    const std::string& name = begun && state().contains(average) ? average : node->name;
    if (state().contains(name)) result.set(node->name, state().at(name));  // else nothing that the step runs reads it
  }
}

std::int64_t TrainStep::later_bytes() const {
  return (update_ ? update_->plan({}).arena_bytes : 0) + (average_ ? average_->plan({}).arena_bytes : 0);
}

void TrainStep::set_rate() {
  const double rate = learning_rate();
  if (rate_ != rate) state().set(kept_name(options_, rate_name), Tensor::full({}, rate, DType::f64));
  rate_ = rate;
}

void TrainStep::observe(double loss) { options_.schedule.observe(loss, position_.plateau); }

std::int64_t TrainStep::steps() const { return static_cast<std::int64_t>(state().at(kept_name(options_, step_name)).item()); }

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
  const std::string failures = kept_name(options_, failures_name);
  if (state().contains(failures)) state().set(failures, Tensor::zeros({}, DType::i64));
  position_.batches = batch;
  rate_.reset();
}

}  // namespace frit
