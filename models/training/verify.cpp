#include "frit/models/training/verify.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "frit/autograd/gradient.h"
#include "frit/autograd/train_step.h"
#include "frit/core/io/json.h"
#include "frit/core/numerics.h"
#include "frit/core/text.h"
#include "frit/models/checkpoint.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

using nlohmann::json;

constexpr int trace_steps_limit = 100'000;
/// A reference below this part of the case's largest gradient is what rounding, or a norm's eps, leaves of a zero: the terms of its sum
/// cancel, and its own float64 value is off by more than the tolerance.
constexpr double all_but_zero = 1e-5;

struct Tolerances {
  double tensor;
  double trace;  ///< of losses, and of what a parameter becomes
  double
      adam;  ///< of what a parameter becomes when its gradient is divided by its own size: one that is truly zero moves it by its rounding
};

/// What a case is computed with.
struct Means {
  DType dtype;      ///< of parameters
  DType precision;  ///< see TrainOptions
  Device device;
};

Tolerances tolerances_of(const Means& means) {
  if (means.dtype == DType::f64) return {1e-10, 1e-9, 1e-6};
  const double tolerance = expected_error(means.dtype, means.precision, means.device);
  return {tolerance, tolerance, std::numeric_limits<double>::infinity()};
}

double largest(const Tensor& tensor) {
  double result = 0;
  for (const double value : tensor.to_vector<double>()) {
    if (std::isfinite(value)) result = std::max(result, std::abs(value));
  }
  return result;
}

/// Of a result of another shape than the reference's.
VerifyRow misshapen(const std::string& name, const Shape& found, const Tensor& reference, double tolerance) {
  return {.name = printable(name), .shape = reference.shape(), .tolerance = tolerance, .remark = concat("the shape is ", found)};
}

VerifyRow compare(const std::string& name, const Tensor& actual, const Tensor& reference, double scale, double tolerance) {
  if (!(actual.shape() == reference.shape())) return misshapen(name, actual.shape(), reference, tolerance);
  VerifyRow row{.name = printable(name), .shape = reference.shape(), .tolerance = tolerance};
  const std::vector<double> got = actual.to_vector<double>(), wanted = reference.to_vector<double>();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (std::isfinite(wanted[i]) && std::isfinite(got[i])) {
      row.absolute = std::max(row.absolute, std::abs(got[i] - wanted[i]));
    } else if (!(got[i] == wanted[i] || (std::isnan(got[i]) && std::isnan(wanted[i]))) && row.remark.empty()) {
      row.remark = concat("element ", i, ": expected ", wanted[i], ", got ", got[i]);
    }
  }
  row.relative = scale > 0 ? row.absolute / scale : row.absolute;
  row.passed = row.remark.empty() && row.relative <= tolerance;
  return row;
}

VerifyRow compare(const std::string& name, const Tensor& actual, const Tensor& reference, double tolerance) {
  return compare(name, actual, reference, largest(reference), tolerance);
}

/// `largest_gradient` is the case's.
VerifyRow compare_gradient(const std::string& name, const Tensor& actual, const Tensor& reference, double largest_gradient,
                           double tolerance) {
  const double scale = largest(reference);
  if (scale >= all_but_zero * largest_gradient) return compare(name, actual, reference, scale, tolerance);
  VerifyRow row = compare(name, actual, reference, largest_gradient, tolerance);
  if (row.passed && row.absolute > 0) row.remark = "all but zero: relative to the case's largest gradient";
  return row;
}

/// The rest of each tensor's name that begins with `prefix`.
std::vector<std::string> names_after(const TensorFile& file, const std::string& prefix) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < file.size(); ++i) {
    const std::string_view name = file.entry(i).name;
    if (name.starts_with(prefix)) names.emplace_back(name.substr(prefix.size()));
  }
  return names;
}

const std::string& metadata_at(const TensorFile& file, const std::string& key) {
  const auto place = file.metadata().find(key);
  if (place == file.metadata().end()) fail(ErrorKind::format, file.file(), ": the metadata have no \"", key, '"');
  return place->second;
}

/// A graph with its output "output" and everything that it needs to run once; `prefix` says which of the file's tensors are its own.
struct Case {
  const TensorFile& file;
  std::string prefix;
  Means means;
  Graph graph = {};
  Bindings inputs = {};
  std::shared_ptr<State> state = {};

  Tensor at(const std::string& name) const { return file.at(prefix + name); }
  /// Indices and conditions keep their type.
  Value input(const std::string& name, const Tensor& tensor) {
    return bind(name, is_floating(tensor.dtype()) ? tensor.to(means.dtype) : tensor);
  }
  std::vector<VerifyRow> run();

 private:
  Value bind(const std::string& name, const Tensor& tensor) {
    inputs[name] = tensor;
    return graph.input(name, tensor.shape(), tensor.dtype());
  }
  double largest_gradient(const std::vector<std::string>& names) const;
};

/// Adds the outputs "grad.NAME" of the inputs or variables `names`.
void append_gradients(Graph& graph, const std::vector<std::string>& names) {
  Values with_respect_to;
  for (const std::string& name : names) {
    const graph::Node* node = graph.find(graph::NodeKind::input, name);
    if (node == nullptr) node = graph.find(graph::NodeKind::variable, name);
    require(node != nullptr, "there is a gradient of \"", printable(name), "\", which is neither an input nor a parameter");
    with_respect_to.push_back(graph.value(node->outputs[0]));
  }
  const Value output = graph.output_value("output");
  const Value cotangent = graph.value(graph.find(graph::NodeKind::input, "cotangent")->outputs[0]);
  const Value seed = cast(cotangent, output.dtype());
  const Values gradients = gradient(std::span(&output, 1), std::span(&seed, 1), with_respect_to);
  for (std::size_t i = 0; i < names.size(); ++i) graph.output("grad." + names[i], gradients[i]);
}

std::vector<VerifyRow> Case::run() {
  const double tolerance = tolerances_of(means).tensor;
  const Shape& shape = graph.output_value("output").shape();
  // Before memory is taken for what the file does not have.
  if (!(shape == at("output").shape())) return {misshapen(prefix + "output", shape, at("output"), tolerance)};
  const std::vector<std::string> names = names_after(file, prefix + "grad.");
  Program::Extend extend;
  if (!names.empty()) {
    bind("cotangent", at("cotangent").to(graph.output_value("output").dtype()));
    extend = [names](Graph& fused) { append_gradients(fused, names); };
  }
  Program program(std::move(graph), state, std::move(extend), means.precision);
  const graph::Executable& executable = program.run(inputs);
  const double gradient_scale = largest_gradient(names);
  std::vector<VerifyRow> rows = {compare(prefix + "output", executable.output("output").to(Device::cpu()), at("output"), tolerance)};
  for (const std::string& name : names) {
    const std::string full = "grad." + name;
    rows.push_back(compare_gradient(prefix + full, executable.output(full).to(Device::cpu()), at(full), gradient_scale, tolerance));
  }
  return rows;
}

double Case::largest_gradient(const std::vector<std::string>& names) const {
  if (names.empty()) return 0;
  double result = 0;
  for (const std::string& name : names) result = std::max(result, largest(at("grad." + name)));
  const double cotangent = largest(at("cotangent"));
  return result < all_but_zero * cotangent ? cotangent : result;
}

/// Builds the model on the file's inputs, each of which `add` puts into the graph, and takes the parameters from "param.*" once `state` is
/// prepared.
template <class Add>
Value build_model(const TensorFile& file, Graph& graph, DType dtype, const Add& add) {
  const Model model = model_of(file, "param.");
  NamedValues inputs = {{"input", add("input", file.at("input"))}};
  for (const Model::SideInput& side : model.side_inputs) inputs[side.name] = add(side.name, file.at(side.name));
  return model.build(Scope(graph, "", dtype), inputs).at("output");
}

void set_parameters(const TensorFile& file, const Graph& graph, const State& state) {
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) state.set(node->name, file.at("param." + node->name));
}

std::vector<VerifyRow> verify_model(const TensorFile& file, const Means& means) {
  Case model{.file = file, .prefix = "", .means = means};
  const auto add = [&](const std::string& name, const Tensor& tensor) { return model.input(name, tensor); };
  model.graph.output("output", build_model(file, model.graph, means.dtype, add));
  model.state = std::make_shared<State>(means.device);
  model.state->prepare(model.graph);
  set_parameters(file, model.graph, *model.state);
  return model.run();
}

/// One call of the operator. Inputs that it updates in place are variables.
std::vector<VerifyRow> verify_call(const TensorFile& file, const ops::Operator& op, int index, const Means& means) {
  Case call{.file = file, .prefix = concat(index, "."), .means = means, .state = std::make_shared<State>(means.device)};
  Values inputs;
  const auto tensor_name = [&](std::size_t i) { return concat(call.prefix, "input.", i); };
  for (std::size_t i = 0; file.find(tensor_name(i)); ++i) {
    const Tensor tensor = file.at(tensor_name(i));
    const bool updated = std::find(op.mutates.begin(), op.mutates.end(), static_cast<int>(i)) != op.mutates.end();
    if (updated) {
      const auto initialize = [tensor](const Tensor& variable, std::uint64_t) { copy(variable, tensor); };
      inputs.push_back(
          call.graph.variable(concat(i), {is_floating(tensor.dtype()) ? means.dtype : tensor.dtype(), tensor.shape()}, initialize));
    } else {
      inputs.push_back(call.input(concat(i), tensor));
    }
  }
  const std::string attributes = metadata_at(file, call.prefix + "attributes");
  const Values outputs = call.graph.emit(op, inputs, op.attributes_from_json(attributes));
  require(!outputs.empty(), op.name, " has no result to compare");
  call.graph.output("output", outputs[0]);
  return call.run();
}

std::vector<VerifyRow> verify_operator(const TensorFile& file, const Means& means) {
  const ops::Operator& op = ops::registry().find(metadata_at(file, "operator"));
  std::vector<VerifyRow> rows;
  for (int index = 0; file.metadata().contains(concat(index, ".attributes")); ++index) {
    const std::vector<VerifyRow> call = verify_call(file, op, index, means);
    rows.insert(rows.end(), call.begin(), call.end());
  }
  if (rows.empty()) fail(ErrorKind::format, file.file(), ": there are no cases of ", op.name);
  return rows;
}

Optimizer optimizer_of(const TensorFile& file) {
  const std::string name = metadata_at(file, "optimizer");
  const json config = read_json(metadata_at(file, "optimizer_config"), file.file() + ": \"optimizer_config\"");
  if (!config.is_object()) fail(ErrorKind::format, file.file(), ": \"optimizer_config\" is not a JSON object");
  try {
    const double rate = config.at("lr").get<double>(), weight_decay = config.value("weight_decay", 0.0);
    if (name == "sgd") return Sgd{.learning_rate = rate, .momentum = config.value("momentum", 0.0), .weight_decay = weight_decay};
    const auto [beta1, beta2] = config.at("betas").get<std::pair<double, double>>();
    const double eps = config.at("eps").get<double>();
    if (name == "adam") return Adam{.learning_rate = rate, .beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = weight_decay};
    if (name == "adamw") return AdamW{.learning_rate = rate, .beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = weight_decay};
  } catch (const json::exception& error) {
    fail(ErrorKind::format, file.file(), ": \"optimizer_config\": ", json_fault(error));
  }
  fail(ErrorKind::format, file.file(), ": unknown optimizer \"", printable(name), "\"; optimizers: sgd adam adamw");
}

std::vector<VerifyRow> verify_trace(const TensorFile& file, const Means& means) {
  const DType dtype = means.dtype;
  const Tensor target = file.at("target").to(dtype), losses = file.at("losses");
  if (losses.rank() != 1 || losses.elements() > trace_steps_limit) fail(ErrorKind::format, file.file(), ": \"losses\" is ", losses.shape());
  Graph graph;
  Bindings inputs = {{"target", target}};
  const Value output = build_model(file, graph, dtype, [&](const std::string& name, const Tensor& tensor) {
    inputs[name] = is_floating(tensor.dtype()) ? tensor.to(dtype) : tensor;
    return graph.input(name, tensor.shape(), inputs[name].dtype());
  });
  TrainStep step(mean_squared_error(output, graph.input("target", target.shape(), dtype)), optimizer_of(file), means.device,
                 {.precision = means.precision});
  set_parameters(file, step.graph(), step.state());
  std::vector<double> found;
  for (std::int64_t i = 0; i < losses.elements(); ++i) found.push_back(step(inputs));

  const Tolerances tolerances = tolerances_of(means);
  const double final_tolerance = metadata_at(file, "optimizer") == "sgd" ? tolerances.trace : tolerances.adam;
  std::vector<VerifyRow> rows = {compare("losses", Tensor::from(found, losses.shape()), losses, tolerances.trace)};
  for (const std::string& name : names_after(file, "final.")) {
    rows.push_back(compare("final." + name, step.state().at(name).to(Device::cpu()), file.at("final." + name), final_tolerance));
  }
  return rows;
}

}  // namespace

std::vector<VerifyRow> verify_case(const TensorFile& file, DType dtype, Device device, DType precision) {
  const Means means{dtype, precision, device};
  try {
    if (file.metadata().contains("operator")) return verify_operator(file, means);
    if (file.metadata().contains("optimizer")) return verify_trace(file, means);
    if (file.metadata().contains("model")) return verify_model(file, means);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::argument) throw;
    fail(ErrorKind::format, file.file(), ": ", error.what());  // what the file says does not fit together
  }
  fail(ErrorKind::format, file.file(), ": not a golden case: the metadata name neither an \"operator\" nor a \"model\"");
}

}  // namespace frit
