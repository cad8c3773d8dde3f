#include <cmath>
#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/interrupt.h"
#include "apps/common/model_source.h"
#include "apps/common/options.h"
#include "apps/common/text.h"
#include "frit/core/io/file.h"
#include "frit/core/io/npy.h"
#include "frit/core/text.h"
#include "frit/core/thread_pool.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"

namespace frit::apps {
namespace {

struct InferArguments {
  std::string model, config, input, output;
  std::int64_t batch_size = 64;
  std::uint64_t seed = 0;
  DType dtype = DType::f32, precision = DType::f32;
  bool strict = false;
  bool allow_extra = false;
  bool quiet = false;
  RunOptions run;
};

void check_output(const InferArguments& a) {
  require(!same_file(a.output, a.input), "--output would overwrite --input: ", printable(a.output));
  require(!names_file(a.model) || !same_file(a.output, a.model), "--output would overwrite the checkpoint: ", printable(a.output));
  require(!is_config_file(a.output, a.config), "--output would overwrite the configuration of --config: ", printable(a.output));
  remove_stale_temporaries(a.output);
  check_writable(a.output);
}

void warn_of_nan(const std::string& what, const Tensor& tensor) {
  if (!is_floating(tensor.dtype())) return;
  std::int64_t count = 0;
  for (const double value : tensor.to_vector<double>()) count += std::isnan(value);
  if (count > 0) print_warning(concat(what, " has ", count, " NaN values"));
}

/// The forward graph for batches of `shape`.
Graph inference_graph(const InferArguments& a, const Model& model, const Shape& shape) {
  return with_content_of(printable(a.input), [&] {
    model.check_input(shape);
    Graph graph;
    const Value input = graph.input("input", shape, a.dtype);
    graph.output("output", model.build(Scope(graph, "", a.dtype), input));
    return graph::for_inference(graph);
  });
}

/// Fresh parameters, or the checkpoint's.
std::shared_ptr<State> load_parameters(const InferArguments& a, const ModelSource& source, const Graph& graph, Device device) {
  auto state = std::make_shared<State>(device, a.seed);
  state->prepare(graph);
  if (!source.checkpoint) {
    print_warning(concat(source.model.name, " has fresh parameters from seed ", a.seed, ", it was not trained"));
    return state;
  }
  const RestoreOptions options{.allow_extra = a.allow_extra, .strict = a.strict};
  for (const std::string& remark : restore(*source.checkpoint, graph, *state, options)) print_warning(remark);
  return state;
}

/// In batches, so that the memory of a run does not grow with the input.
Tensor infer(const InferArguments& a, Program& program, const Tensor& input, const Tensor& result) {
  const std::int64_t count = input.dim(0);
  for (std::int64_t begin = 0; begin < count; begin += a.batch_size) {
    if (interrupt_signal() != 0) fail(ErrorKind::interrupted, "interrupted by ", interrupt_name(), "; nothing was written");
    const std::int64_t end = std::min(count, begin + a.batch_size);
    const graph::Executable& executable = program.run({{"input", input.slice(0, begin, end).to(a.dtype)}});
    copy(result.slice(0, begin, end), executable.output("output").to(Device::cpu()));
  }
  return result;
}

int run_infer(const InferArguments& a) {
  const Device device = a.run.apply();
  check_output(a);
  const InterruptRequests requests;
  const ModelSource source = open_model(a.model, a.config);
  const Tensor input = read_npy(a.input);
  Shape batch = input.shape();
  if (batch.rank() > 0) batch[0] = std::min(batch[0], a.batch_size);
  Graph graph = inference_graph(a, source.model, batch);
  const auto state = load_parameters(a, source, graph, device);
  if (input.dtype() != a.dtype) print_warning(concat("the input was converted from ", input.dtype(), " to ", a.dtype));
  warn_of_nan("the input", input);

  Shape shape = graph.output_value("output").shape();
  shape[0] = input.dim(0);
  // NumPy has no bfloat16.
  const Tensor result = Tensor::empty(shape, a.dtype == DType::bf16 ? DType::f32 : a.dtype);
  Program program(std::move(graph), state, {}, a.precision);
  infer(a, program, input, result);
  warn_of_nan("the output", result);
  write_npy(a.output, result);
  if (!a.quiet) {
    std::cerr << source.model.name << ": " << result.dtype() << ' ' << shape << " in " << printable(a.output) << "; " << device << ", "
              << thread_count() << " threads" << std::endl;
  }
  return 0;
}

}  // namespace

void add_infer(CLI::App& app, Action& action) {
  CLI::App& command = *app.add_subcommand("infer", "Run a model forward over a NumPy array");
  const auto a = std::make_shared<InferArguments>();
  command.add_option("MODEL|CHECKPOINT", a->model, "A checkpoint, or a model's name for fresh parameters")->required()->type_name("");
  add_path(command, "--input", a->input, "A .npy file (N,C,...)")->required();
  add_path(command, "--output", a->output, "The .npy file to write")->required();
  add_number<std::int64_t>(command, "--batch-size", a->batch_size, 1, 1 << 20, "Examples at a time");
  add_seed(command, a->seed);
  add_dtype(command, a->dtype, {DType::f32, DType::f64, DType::f16, DType::bf16});
  add_precision(command, a->precision, a->dtype);
  add_config(command, a->config);
  command.add_flag("--strict", a->strict, "Refuse a checkpoint with NaN or infinite values");
  command.add_flag("--allow-extra", a->allow_extra, "Pass over a checkpoint's tensors that the model does not have");
  add_quiet(command, a->quiet);
  a->run.add_to(command);
  command.callback([a, &action] { action = [a] { return run_infer(*a); }; });
}

}  // namespace frit::apps
