#include "apps/benchmark/benchmark.h"

#include <algorithm>

#include "apps/common/model_graph.h"
#include "apps/common/model_source.h"
#include "apps/common/sample_graph.h"
#include "apps/report/trace.h"
#include "frit/autograd/gradient.h"
#include "frit/autograd/train_step.h"
#include "frit/core/cuda/device.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/random.h"
#include "frit/core/timer.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::apps {
namespace {

Shape input_shape(const BenchmarkOptions& a, const Model& model, Device device) {
  Shape shape = a.input_shape.empty() ? model.full_input : a.input_shape;
  if (a.input_shape.empty() && !on_gpu(device)) shape[0] = 8;
  if (a.batch_size) shape[0] = *a.batch_size;
  check_input_shape(model, shape);
  return shape;
}

Optimizer optimizer_named(const std::string& name) {
  if (name == "sgd") return Sgd{.learning_rate = 1e-3, .momentum = 0.9};
  return name == "adam" ? Optimizer(Adam{}) : Optimizer(AdamW{});
}

/// How many classes the targets of that name have.
using Classes = std::map<std::string, std::int64_t>;

/// Random values for every input of a graph: numbers in [0, 1); integers are below the number of classes, or 0.
Bindings random_inputs(const std::map<std::string, TensorType>& types, const Classes& classes, Device device) {
  constexpr std::uint64_t seed = 0;
  Bindings inputs;
  for (const auto& [name, type] : types) {
    const Tensor tensor = Tensor::empty(type.shape, type.dtype);
    if (is_floating(type.dtype)) {
      fill_uniform(tensor, 0, 1, seed, stream_of(name));
    } else {
      std::uint64_t counter = 0;
      const auto known = classes.find(name);
      const std::int64_t count = known == classes.end() ? 1 : known->second;
      const Tensor numbers = Tensor::empty(type.shape, DType::i64);
      for (std::int64_t& value : numbers.span<std::int64_t>()) value = philox(seed, stream_of(name), counter++)[0] % count;
      copy(tensor, numbers.to(type.dtype));
    }
    inputs[name] = tensor.to(device);
  }
  return inputs;
}

/// Without what others left in the cache: a block of that may be larger than what is asked for.
std::int64_t bytes_in_use(Device device) {
  allocator_of(device).trim();
  return static_cast<std::int64_t>(allocator_of(device).statistics().in_use);
}

constexpr const char* backward = "backward";

/// The inputs lie in their places, in the layout that the model prefers, before the time is taken. `before` is what was in use before the
/// model was there; backward is what comes after the result `forward`.
ModeTimes measure(const std::string& mode, graph::Executable& executable, const Bindings& inputs, const Benchmark& bench,
                  std::int64_t before, std::string_view forward) {
  allocator_of(bench.device).reset_peaks();
  executable.run(inputs);
  if (on_gpu(bench.device)) cuda::synchronize(bench.device.index);
  const std::chrono::duration<double> first = std::chrono::steady_clock::now() - bench.begin;
  for (int i = 0; i < bench.warmup; ++i) executable.run();
  const auto peak = static_cast<std::int64_t>(allocator_of(bench.device).statistics().peak_in_use);
  std::vector<double> times;
  if (mode == backward) {
    times = graph::time_gradient(executable, forward, bench.warmup, bench.repeats);
  } else {
    Timer timer(bench.device);
    for (int i = 0; i < bench.repeats; ++i) timer.time([&] { executable.run(); });
    times = timer.take();
  }
  ModeTimes result{mode,          quantile(times, 0.5),         quantile(times, 0.1), quantile(times, 0.9),
                   first.count(), executable.predicted_bytes(), peak - before};
  if (mode == backward) return result;  // what runs is what trains
  result.prepared = static_cast<int>(executable.preparation().size());
  if (bench.per_operator) {
    result.operators = by_operator(graph::profile(executable, bench.repeats));
    for (const graph::StepProfile& step : graph::profile(executable.preparation(), bench.device, bench.repeats))
      result.preparation += step.microseconds;
  }
  if (bench.trace != nullptr) {
    graph::Tracing tracing;
    for (int i = 0; i < 3; ++i) executable.run();
    bench.trace->add(mode, tracing.runs());
  }
  if (bench.inspect) bench.inspect(executable, result);
  return result;
}

ModeTimes measure_forward(const Model& model, const Shape& shape, const Benchmark& bench) {
  Graph graph = graph::for_inference(forward_graph(model, shape, bench.dtype));
  const auto types = input_types(graph);
  const Bindings inputs = random_inputs(types, {}, bench.device);
  const std::int64_t before = bytes_in_use(bench.device);
  Program program(std::move(graph), std::make_shared<State>(bench.device), {}, bench.precision);
  return measure("forward", program.compile(types), inputs, bench, before, "output");
}

/// A whole step: forward, gradient of the parameters, their update. The loss stays on the device. Or of that the gradient alone.
ModeTimes measure_train(const std::string& mode, const Model& model, const Shape& shape, const Optimizer& optimizer,
                        const Benchmark& bench) {
  Graph graph;
  const ModelLoss model_loss = add_loss(graph, model, shape, bench.dtype);
  Classes classes;
  for (const Model::Head& head : model.learnt()) {
    if (head.has_classes()) classes[head.target()] = model_loss.outputs.at(head.name).dim(1);
  }
  const auto types = input_types(graph);
  const Bindings inputs = random_inputs(types, classes, bench.device);
  const std::int64_t before = bytes_in_use(bench.device);
  TrainStep step(model_loss.loss, optimizer, bench.device,
                 {.precision = bench.precision, .communicator = bench.communicator, .sync_batch_norm = bench.sync_batch_norm});
  return measure(mode, step.compile(types), inputs, bench, before, "loss");
}

/// What is typical for the operator or its largest sample, its first input, and all inputs that are of the same shape, changed to what the
/// command line says.
ops::Sample sample_of(const ops::Operator& op, const BenchmarkOptions& a) {
  const auto first_elements = [](const ops::Sample& sample) { return sample.inputs.empty() ? 0 : element_count(sample.inputs[0].shape); };
  std::vector<ops::Sample> samples = op.samples();
  if (!op.typical.inputs.empty()) samples = {op.typical};
  ops::Sample sample = *std::max_element(samples.begin(), samples.end(),
                                         [&](const auto& one, const auto& other) { return first_elements(one) < first_elements(other); });
  if (sample.inputs.empty()) return sample;
  const bool taken = std::find(op.dtypes.begin(), op.dtypes.end(), a.dtype) != op.dtypes.end();
  require(taken || !sample.inputs[0].floating, "--dtype: ", op.name, " does not take ", a.dtype);
  const Shape old = sample.inputs[0].shape;
  Shape shape = a.input_shape.empty() ? old : a.input_shape;
  require(!a.batch_size || shape.rank() > 0, "--batch-size: the input of ", op.name, " is a scalar");
  if (a.batch_size) shape[0] = *a.batch_size;
  for (ops::SampleInput& input : sample.inputs) {
    if (input.shape == old) input.shape = shape;
  }
  return sample;
}

constexpr const char* cotangent = "cotangent";  // the input that the gradient of the output comes in

/// Appends the gradient of the output with respect to every floating input.
void append_gradients(Graph& graph) {
  Values inputs;
  for (const graph::Node* node : graph.all(graph::NodeKind::input)) {
    const Value input = graph.value(node->outputs[0]);
    if (is_floating(input.dtype()) && node->name != cotangent) inputs.push_back(input);
  }
  const Value output = graph.output_value("output");
  const Value seed = cast(graph.value(graph.find(graph::NodeKind::input, cotangent)->outputs[0]), output.dtype());
  const Values gradients = gradient(std::span(&output, 1), std::span(&seed, 1), inputs);
  for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat("gradient ", i), gradients[i]);
}

/// A call for its first result, or with its gradient too, or of that the gradient alone.
ModeTimes measure_operator(const std::string& mode, const ops::Operator& op, const ops::Sample& sample, const Benchmark& bench) {
  SampleGraph call = sample_graph(op, sample, bench.dtype, /*seed=*/0);
  Program::Extend extend;
  if (mode != "forward") {
    const Value output = call.graph.output_value("output");
    call.graph.input(cotangent, output.shape(), output.dtype());
    call.inputs[cotangent] = Tensor::empty(output.shape(), output.dtype());
    call.inputs[cotangent].fill(1);
    extend = append_gradients;
  }
  for (auto& [name, tensor] : call.inputs) tensor = tensor.to(bench.device);
  const std::int64_t before = bytes_in_use(bench.device);
  const auto types = input_types(call.graph);
  Program program(std::move(call.graph), std::make_shared<State>(bench.device), std::move(extend), bench.precision);
  return measure(mode, program.compile(types), call.inputs, bench, before, "output");
}

std::vector<std::string> all_modes() { return {"forward", backward, "train"}; }

Subject model_subject(const BenchmarkOptions& a, Device device) {
  const Model model = configured_model(a.model, a.config);
  const Shape shape = input_shape(a, model, device);
  return {model.config, shape, all_modes(), [=, &a](const std::string& mode, const Benchmark& bench) {
            return mode == "forward" ? measure_forward(model, shape, bench)
                                     : measure_train(mode, model, shape, optimizer_named(a.optimizer), bench);
          }};
}

Subject operator_subject(const BenchmarkOptions& a) {
  require(a.config.empty(), "--model-config goes with a model, not with an operator");
  const ops::Operator& op = ops::registry().find(a.model);
  require(op.gradient || a.mode == "forward" || a.mode == "all", "--mode: ", op.name, " has no gradient: ", op.no_gradient);
  const ops::Sample sample = sample_of(op, a);
  return {sample.attributes.json(), sample.inputs.empty() ? Shape{} : sample.inputs[0].shape,
          op.gradient ? all_modes() : std::vector<std::string>{"forward"},
          [&op, sample](const std::string& mode, const Benchmark& bench) { return measure_operator(mode, op, sample, bench); }};
}

}  // namespace

void BenchmarkOptions::add_to(CLI::App& command, bool with_search, bool required) {
  Option named = add_option(command, "MODEL|OPERATOR", model, "A name (see `frit info`)").type_name("");
  if (required) named.required();
  add_number<std::int64_t>(command, "--batch-size", batch_size, 1, 1 << 20, "Examples a step; the default is 128, on the CPU 8");
  add_shape(command, "--input-shape", input_shape, "Of the input; the default is the model's full size, or what is typical of an operator");
  std::vector<std::string> modes = all_modes();
  modes.emplace_back("all");
  add_choice(command, "--mode", mode, modes,
             "Inference, a training step (of an operator: with its gradient), of that the gradient alone, or all");
  add_choice(command, "--optimizer", optimizer, {"sgd", "adam", "adamw"}, "Of the training step; sgd has momentum 0.9");
  add_number<int>(command, "--warmup", warmup, 1, 1'000'000, "Steps before those that count; the default is 10, on the CPU 2");
  add_number<int>(command, "--repeats", repeats, 1, 1'000'000, "Steps that count; the default is 100, on the CPU 10");
  add_dtype(command, dtype, {DType::f32, DType::f64, DType::f16, DType::bf16});
  add_precision(command, precision, dtype);
  add_config(command, config);
  if (with_search) add_flag(command, "--sync-batch-norm", sync_batch_norm, "Of several processes: as frit train does with it");
  run.add_to(command, with_search);
}

Benchmark BenchmarkOptions::on(Device device) const {
  const bool gpu = on_gpu(device);
  return {device, dtype, precision, warmup.value_or(gpu ? 10 : 2), repeats.value_or(gpu ? 100 : 10), sync_batch_norm};
}

Subject BenchmarkOptions::subject(Device device) const {
  Subject subject = names_model(model) ? model_subject(*this, device) : operator_subject(*this);
  std::erase_if(subject.modes, [&](const std::string& other) { return mode != other && mode != "all"; });
  return subject;
}

}  // namespace frit::apps
