#include "frit/autograd/train_graph.h"

#include <algorithm>

#include "frit/autograd/gradient.h"
#include "frit/autograd/reduced_gradients.h"
#include "frit/autograd/synchronized.h"
#include "frit/core/text.h"
#include "frit/ops/communication/collectives.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::training {
namespace {

constexpr const char* loss_scale_name = "loss_scale";
constexpr const char* good_steps_name = "good_steps";

constexpr double first_loss_scale = 65536;

std::string prefix_of(const TrainOptions& options) { return options.name.empty() ? "optimizer." : "optimizer." + options.name + "/"; }

Initializer filled(double value) {
  return [value](const Tensor& tensor, std::uint64_t) { tensor.fill(value); };
}

/// The means over all processes, or this one's parts of them if it updates no more.
Values reduced(const Values& gradients, const TrainOptions& options) {
  if (!options.communicator) return gradients;
  return (shards(options) ? parts_of_reduced_gradients : reduced_gradients)(gradients, *options.communicator, options.reduces_halves);
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
  return options.accumulate > 1 ? gradients : reduced(gradients, options);
}

/// The mean over all processes of a number that they must agree on.
Value agreed(Value number, const TrainOptions& options) {
  return options.communicator ? ops::all_reduce(std::span(&number, 1), *options.communicator)[0] : number;
}

/// The norm of what `reduced` gives: of all processes' parts.
Value norm_of_reduced(const Values& gradients, const TrainOptions& options) {
  const Value norm = ops::global_norm(gradients);
  if (!shards(options)) return norm;
  const Value own = cast(norm, DType::f64);
  return cast(sqrt(agreed(own * own, options) * static_cast<double>(options.communicator->size())), norm.dtype());
}

/// The norm of the gradients: of means over processes, or of what each of them is to sum up, where all agree on whether it is finite.
Value norm_of(const Values& gradients, const TrainOptions& options) {
  return options.accumulate > 1 ? agreed(ops::global_norm(gradients), options) : norm_of_reduced(gradients, options);
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

Value accumulated(Graph& graph, const Parameter& parameter, const TrainOptions& options) {
  return graph.variable(accumulated_name(options, parameter.name), parameter.type, filled(0));
}

void append_update(Graph& graph, const Optimizer& optimizer, const TrainOptions& options, const std::vector<Parameter>& names,
                   const Values& parameters, const ScaledGradients& gradients, std::map<std::string, Shape>* buffers = nullptr) {
  const Value rate = graph.variable(kept_name(options, rate_name), {DType::f64, {}}, filled(optimizer.learning_rate));
  const Value step = graph.variable(kept_name(options, step_name), {DType::i64, {}}, filled(0));
  ops::UpdatedPart part;
  if (shards(options)) part = {options.communicator->rank(), options.communicator->size()};
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
        .update(UpdateSite{graph, names[i].name, parameters[i], gradients.values[i], own_rate, step, gradients.scale, prefix_of(options),
                           part, buffers});
  }
  ops::advance(step, gradients.scale);
  if (shards(options)) gather_parameters(parameters, *options.communicator);
}

/// The parameters as variables of a graph that does not compute them.
Values variables_of(Graph& graph, const std::vector<Parameter>& names) {
  Values parameters;
  for (const Parameter& parameter : names) parameters.push_back(graph.variable(parameter.name, parameter.type, filled(0), true));
  return parameters;
}

}  // namespace

std::string kept_name(const TrainOptions& options, const std::string& what) { return prefix_of(options) + what; }
std::string average_name(const TrainOptions& options, const std::string& parameter) { return kept_name(options, parameter + ".average"); }
std::string accumulated_name(const TrainOptions& options, const std::string& parameter) {
  return kept_name(options, parameter + ".accumulated");
}

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

bool shards(const TrainOptions& options) { return options.shards_optimizer && options.communicator && options.communicator->size() > 1; }

bool fits(const ParameterGroup& group, const Parameter& parameter) {
  const int rank = parameter.type.shape.rank();
  return rank >= group.least_rank && rank <= group.most_rank && matches_pattern(group.names, parameter.name);
}

void append_training(Graph& graph, const Optimizer& optimizer, const TrainOptions& options) {
  const bool together = options.sync_batch_norm && options.communicator && options.communicator->size() > 1;
  if (together) graph = synchronized(graph, *options.communicator);
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

Graph update_graph(const Graph& forward, const Optimizer& optimizer, const TrainOptions& options, std::map<std::string, Shape>* buffers) {
  Graph graph;
  const std::vector<Parameter> names = trained(forward);
  const Values parameters = variables_of(graph, names);
  ScaledGradients sums;
  for (const Parameter& parameter : names) sums.values.push_back(accumulated(graph, parameter, options));
  const Values local = sums.values;
  sums.values = reduced(local, options);
  sums.scale = graph.constant(Tensor::full({}, 1, parameters[0].dtype()));
  if (options.guarded || options.clip_norm) {
    const Value norm = norm_of_reduced(sums.values, options);
    if (faults(options, norm.dtype())) {
      sums.scale = guarded_scale(graph, norm, norm, options, options.clip_norm);
    } else if (options.clip_norm) {
      sums.scale = ops::clip_scale(norm, *options.clip_norm);
    }
  }
  append_update(graph, optimizer, options, names, parameters, sums, buffers);
  for (const Value& sum : local) ops::clear(sum, sums.scale);
  return graph;
}

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

}  // namespace frit::training
