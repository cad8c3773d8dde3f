#include "frit/autograd/train_step.h"

#include <algorithm>
#include <cmath>

#include "frit/autograd/synchronized.h"
#include "frit/autograd/train_graph.h"
#include "frit/core/text.h"
#include "frit/graph/pipeline.h"

namespace frit {

namespace {

// How far apart processes are in what counts random draws: further than any of them comes. Those of 8,192 are below most_counted.
constexpr std::int64_t draws_of_a_process = std::int64_t{1} << 40;

Graph with_loss(Value loss) {
  Graph& source = Graph::of(loss);
  require(loss.type().elements() == 1, "TrainStep: the loss must have one element, got ", loss.type());
  Graph graph = source;
  graph.output(training::loss_name, graph.value(loss.id()));
  if (source.remake()) {
    // A graph that is made for other inputs has the loss as an output, or as the one that it is here.
    const auto named = std::find_if(source.outputs().begin(), source.outputs().end(), [&](const auto& o) { return o.value == loss.id(); });
    const std::string name = named == source.outputs().end() ? training::loss_name : named->name;
    graph.remake_by([remake = source.remake(), name](const auto& inputs) {
      Graph made = remake(inputs);
      if (name != training::loss_name) made.output(training::loss_name, made.output_value(name));
      return made;
    });
  }
  return graph;
}

void check_shards(const Optimizer& optimizer, const State& state, const TrainOptions& options) {
  const std::map<std::string, Tensor> variables = state.tensors();
  const auto other = std::find_if(variables.begin(), variables.end(), [](const auto& variable) {
    return variable.first.starts_with("optimizer.") && variable.first.ends_with(std::string("/") + training::step_name);
  });
  require(other == variables.end(), "TrainStep: shards_optimizer goes with a step which alone trains its State; this one has \"",
          other == variables.end() ? "" : printable(other->first), "\" of another");
  require(options.name.empty(), "TrainStep: shards_optimizer goes with a step without a name, which alone trains its State; it has \"",
          printable(options.name), '"');
  const auto check = [](const Optimizer& checked) {
    require(checked.takes_parts, "TrainStep: shards_optimizer does not go with the optimizer ", printable(checked.name),
            ", which updates whole parameters (see Optimizer::takes_parts)");
  };
  check(optimizer);
  for (const ParameterGroup& group : options.groups) check(group.optimizer);
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
  require(!state.contains(training::kept_name(options, training::step_name)), "TrainStep: the state has \"",
          training::kept_name(options, training::step_name), "\" already: each of several steps needs a TrainOptions::name of its own");
  if (training::shards(options)) check_shards(optimizer, state, options);
  const std::vector<training::Parameter> parameters = training::trained(graph);
  for (const ParameterGroup& group : options.groups) {
    require(std::any_of(parameters.begin(), parameters.end(),
                        [&](const training::Parameter& parameter) { return training::fits(group, parameter); }),
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
          [optimizer, options](Graph& graph) { training::append_training(graph, optimizer, options); }, options.precision),
      position_{.learning_rate = optimizer.learning_rate} {
  check_options(graph(), optimizer, this->state(), options);
  std::map<std::string, TensorType> inputs;
  for (const graph::Node* node : graph().all(graph::NodeKind::input)) inputs[node->name] = graph().type(node->outputs[0]);
  program_.compile(inputs);  // mistakes show here, not at the first step
  const auto buffers = training::shards(options) ? &shards_ : nullptr;
  if (options.accumulate > 1) {
    update_.emplace(training::update_graph(graph(), optimizer, options, buffers), shared_state());
    update_->compile({});
  } else if (buffers != nullptr) {
    (void)training::update_graph(graph(), optimizer, options, buffers);  // makes the buffers that the program's graph has
  }
  if (options.average_decay) {
    average_.emplace(training::average_graph(graph(), options), shared_state());
    average_->compile({});
  }
}

double TrainStep::operator()(const Bindings& inputs) { return start(inputs).item(); }

const Tensor& TrainStep::start(const Bindings& inputs) {
  if (!shared_) share_variables();
  const bool updates = (position_.batches + 1) % options_.accumulate == 0;
  if (updates) set_rate();
  if (options_.guarded) keep_what_runs_change();
  if (options_.communicator && options_.sync_batch_norm) compare_calls(inputs);
  gathered_.clear();
  last_ = &program_.run(inputs);
  if (updates && update_) update_->run({});
  if (updates && average_) average_->run({});
  ++position_.batches;
  return last_->output(options_.communicator ? training::mean_loss_name : training::loss_name);
}

void TrainStep::compare_calls(const Bindings& inputs) {
  const std::map<std::string, TensorType> types = tensor_types(inputs);
  if (std::find(compared_.begin(), compared_.end(), types) != compared_.end()) return;
  require_same_calls(program_.compile(types).graph(), *options_.communicator);
  compared_.push_back(types);
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
  return output(training::norm_name);
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
  const std::string own = training::kept_name(options_, "");
  for (const auto& [name, tensor] : state().tensors()) {
    const bool of_another = name.starts_with("optimizer.") && !name.starts_with(own);  // of a step that shares them by itself
    if (!shards_.contains(name) && !of_another) communicator.broadcast(tensor);
  }
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
  for (const training::Parameter& parameter : training::trained(graph()))
    sums.push_back(state().at(training::accumulated_name(options_, parameter.name)));
  options_.communicator->mean(sums, sums);
}

void TrainStep::gather_shards(bool to_all) {
  gathered_.clear();
  for (const auto& [name, shape] : shards_) {
    const Tensor own = state().at(name), whole = Tensor::empty(shape, own.dtype(), own.device());
    options_.communicator->all_gather(std::span(&own, 1), std::span(&whole, 1));
    Tensor copied = whole.to(Device::cpu());  // in each process: it waits for the GPU, which writes there until then
    if (to_all || options_.communicator->is_first()) gathered_[name] = std::move(copied);
  }
}

std::map<std::string, Tensor> TrainStep::whole_variables() const {
  require(gathered_.size() == shards_.size(),
          "TrainStep: each process has a part of what the optimizer keeps: all of them must call gather_shards after the last step, with "
          "to_all if others than the first ask");
  std::map<std::string, Tensor> variables = gathered_;
  variables.merge(state().tensors());
  return variables;
}

Shape TrainStep::whole_shape(const std::string& name) const {
  const auto shard = shards_.find(name);
  return shard == shards_.end() ? state().at(name).shape() : shard->second;
}

void TrainStep::set_whole(const std::string& name, const Tensor& value) {
  gathered_.clear();
  if (!shards_.contains(name)) return state().set(name, value);
  const Parts parts = options_.communicator->parts(value.elements());
  const int rank = options_.communicator->rank();
  state().set(name, value.reshape({value.elements()}).slice(0, parts.begin(rank), parts.end(rank)));
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
  const bool begun = state().at(training::kept_name(options_, training::averaged_name)).item() > 0;
  for (const graph::Node* node : graph().all(graph::NodeKind::variable)) {
    const std::string average = training::average_name(options_, node->name);
    const std::string& name = begun && state().contains(average) ? average : node->name;
    if (state().contains(name)) result.set(node->name, state().at(name));  // else nothing that the step runs reads it
  }
}

std::int64_t TrainStep::later_bytes() const {
  return (update_ ? update_->plan({}).arena_bytes : 0) + (average_ ? average_->plan({}).arena_bytes : 0);
}

void TrainStep::set_rate() {
  const double rate = learning_rate();
  if (rate_ != rate) state().set(training::kept_name(options_, training::rate_name), Tensor::full({}, rate, DType::f64));
  rate_ = rate;
}

void TrainStep::observe(double loss) { options_.schedule.observe(loss, position_.plateau); }

std::int64_t TrainStep::steps() const {
  return static_cast<std::int64_t>(state().at(training::kept_name(options_, training::step_name)).item());
}

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
  const std::string failures = training::kept_name(options_, training::failures_name);
  if (state().contains(failures)) state().set(failures, Tensor::zeros({}, DType::i64));
  position_.batches = batch;
  rate_.reset();
}

}  // namespace frit
