#include <algorithm>
#include <filesystem>
#include <map>

#include "apps/commands/commands.h"
#include "apps/common/interrupt.h"
#include "apps/common/model_source.h"
#include "apps/common/options.h"
#include "apps/common/process.h"
#include "apps/serving/array_source.h"
#include "apps/serving/inference_report.h"
#include "apps/training/training_graph.h"
#include "frit/core/io/file.h"
#include "frit/core/io/folder.h"
#include "frit/core/numerics.h"
#include "frit/core/text.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/libraries/library_plans.h"

namespace frit::apps {
namespace {

struct InferArguments : InferenceFiles {
  std::string model, config;
  Tolerance tolerance;
  std::optional<std::int64_t> batch_size;
  std::int64_t queue = 16;
  Shape window;
  std::optional<double> overlap;
  std::optional<std::int64_t> ignore_index;
  int warmup = 0;
  std::uint64_t seed = 0;
  DType dtype = DType::f32, precision = DType::f32;
  bool strict = false;
  bool allow_extra = false;
  bool last_parameters = false;
  InferenceReport report;
  RunOptions run;
};

/// Windows of volumes are large: one at a time, unless it is said.
std::int64_t batch_size(const InferArguments& a) { return a.batch_size.value_or(a.window.empty() ? 64 : 1); }

/// What the model is given of images of this shape: all of its rows, or windows of its images.
Shape model_input(const InferArguments& a, Shape shape) {
  if (shape.rank() != a.window.rank() + 2) return shape;
  std::copy(a.window.begin(), a.window.end(), shape.begin() + 2);
  return shape;
}

/// Before anything is read or computed.
void check_arguments(const InferArguments& a) {
  require(!a.overlap || !a.window.empty(), "--overlap goes with --window");
  for (const std::int64_t size : a.window) require(size > 0, "--window: expected sizes from 1 on, got ", a.window);
  require(!a.output.empty() || !a.reference.empty(), "one of --output and --ref is required");
  require(!streams(a) || a.output == standard_stream, "--input - is a stream of arrays, and goes with --output -");
  require(!streams(a) || a.reference.empty(), "--ref does not go with --input -");
  require(!a.ignore_index || !a.reference.empty(), "--ignore-index is of the classes in --ref, which is not given");
  require(a.output != standard_stream || !a.report.json, "--json does not go with --output -: both are for standard output");
  if (streams(a)) return;
  if (is_folder(a.input) && !a.output.empty()) {
    require(a.output != standard_stream, "--output - takes one array, and --input is a folder");
    const char* const lacking = std::filesystem::exists(a.output) ? ": not a folder, as --input is" : ": no such folder";
    if (!is_folder(a.output)) fail(ErrorKind::file_system, printable(a.output), lacking);
  }
  std::map<std::string, std::string> inputs;
  for (const std::string& input : input_files(a)) {
    const auto [other, is_new] = inputs.emplace(partner(a, "", input), input);
    require(is_new, "--input: ", printable(other->second), " and ", printable(input), " would both give ", printable(other->first));
  }
  for (const std::string& output : partners(a, a.output)) {
    remove_stale_temporaries(output);
    check_writable(output);
  }
  for (const std::string& reference : references(a, a.reference)) FileInput(reference, "a file of arrays or a mask");
}

/// Throws for inputs that the model does not take.
void check_inputs(const InferArguments& a, const Model& model, const std::map<std::string, TensorType>& types) {
  model.check_side_inputs(types);
  model.check_input(model_input(a, types.at(main_input).shape));
}

/// The forward graph for batches of the job's examples.
Graph inference_graph(const InferArguments& a, const Model& model, const Job& job) {
  Shape shape = model_input(a, job.inputs.at(main_input).shape());
  shape[0] = a.window.empty() ? std::min(shape[0], batch_size(a)) : batch_size(a);
  return graph::for_inference(forward_graph(model, shape, a.dtype));
}

/// Fresh parameters, or the checkpoint's.
std::shared_ptr<State> load_parameters(const InferArguments& a, const ModelSource& source, const Graph& graph, Device device) {
  auto state = std::make_shared<State>(device, a.seed);
  state->prepare(graph);
  if (source.model.has_parameters && !source.checkpoint) return state;
  if (!source.checkpoint) {
    print_warning(concat(source.model.name, " has fresh parameters from seed ", a.seed, ", it was not trained"));
    return state;
  }
  const RestoreOptions options{.allow_extra = a.allow_extra, .strict = a.strict, .averages = !a.last_parameters};
  for (const std::string& remark : restore(*source.checkpoint, graph, *state, options)) print_warning(remark);
  return state;
}

Tolerance tolerance(const InferArguments& a, Device device) {
  Tolerance tolerance = a.tolerance;
  tolerance.of_largest = expected_error(a.dtype, a.precision, device);
  return tolerance;
}

Inference::Options inference_options(const InferArguments& a) {
  return {.dtype = a.dtype,
          .batch_size = batch_size(a),
          .combine = !a.run.deterministic,
          .queue = a.queue,
          .warmup = a.warmup,
          .window = a.window,
          .overlap = a.overlap.value_or(0.5)};
}

/// Throws for options that the model has no use for.
void check_model(const InferArguments& a, const Model& model) {
  require(a.window.empty() || a.window.rank() == model.image_rank, "--window ", a.window, ": an image of ", model.name, " has ",
          model.image_rank, " axes");
  if (a.ignore_index) check_ignorable(model);
  if (!a.window.empty() && !model.heads.empty())
    print_warning(concat("with --window only \"output\" is given, of ", model.heads.size() + 1, " outputs"));
  for (const Model::SideInput& side : model.side_inputs) {
    require(side.is_fixed() || a.window.empty(), "--window does not go with \"", printable(side.name),
            "\", an input as large as the image");
  }
}

int run_infer(const InferArguments& a) {
  Stages stages;
  stages.done("command line");
  const Device device = a.run.apply();
  check_arguments(a);
  (void)Tensor::zeros({1}, DType::u8, device);
  stages.done("device");
  // A filter of streams ends where it is interrupted, and has written what it has read.
  std::optional<InterruptRequests> requests;
  if (!streams(a)) requests.emplace();
  const ModelSource source = open_model(a.model, a.config);
  check_model(a, source.model);
  stages.done("model");

  ArraySource arrays(a, source.model, a.dtype, [&](const auto& types) { check_inputs(a, source.model, types); });
  std::optional<Job> first = arrays.next();
  if (!first) return exit_success;
  stages.done("input");
  Graph graph = inference_graph(a, source.model, *first);
  const auto state = load_parameters(a, source, graph, device);
  Program program(std::move(graph), state, {}, a.precision);
  Inference inference(program, inference_options(a));
  inference.prepare(*first);
  auto libraries = [loaded = 0.0]() mutable {
    const double now = ops::LibraryLoad::milliseconds();
    return Stages::Stage{"libraries", now - std::exchange(loaded, now)};
  };
  stages.done("plans", libraries());
  Job sample{.name = first->name, .inputs = first->inputs};
  for (auto& [name, tensor] : sample.inputs) tensor = tensor.slice(0, 0, std::min(tensor.dim(0), batch_size(a)));
  if (a.report.timing) inference.complete(sample);
  stages.done("first run", libraries());

  ResultSink results(a, source.model, {.tolerance = tolerance(a, device), .ignore_index = a.ignore_index});
  const auto read = [&] { return first ? std::exchange(first, std::nullopt) : arrays.next(); };
  const InferenceStatistics statistics = inference.run(
      read, [&](Job& job) { results.take(job); }, [&] { arrays.stop(); });
  InferenceReport report = a.report;
  report.compared = !a.reference.empty();
  report.model = source.model.name;
  report.device = device;
  report.print(statistics, results, stages);
  if (results.differing_files() == 0) return exit_success;
  print_error(results.comparison().difference);
  return exit_check_failed;
}

}  // namespace

void add_infer(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "infer", "Run a model forward over arrays, images or volumes");
  const auto a = std::make_shared<InferArguments>();
  add_option(command, "MODEL|CHECKPOINT", a->model, "A checkpoint, or a model's name for fresh parameters")
      .required()
      .type_name("")
      .reads(checkpoint_of);
  add_path(command, "--input", a->input,
           "A .npy file (N,C,...), IDX images, a PNG or JPEG image, a NIfTI volume, a folder of such files, or -: NumPy arrays one after "
           "another on standard input. Or a .npz or .safetensors file with \"input\" and the model's other inputs by name")
      .required()
      .reads([a](const std::string&) { return input_files(*a); });
  add_path(command, "--output", a->output,
           "The .npy file to write, for a folder the folder for them, as a.npy of a.png, or -: standard output, an array for each that "
           "was read. Or a .safetensors file, which holds all outputs by name")
      .writes([a](const std::string& word) { return partners(*a, word); });
  add_path(command, "--ref", a->reference,
           "What the output should be: a .npy file, or a folder; if it differs, the exit code is 1. Or whole numbers, the classes of each "
           "input or of each place of its image, also as PNG masks or NIfTI volumes: accuracy, Dice and IoU are then said")
      .reads([a](const std::string& word) { return references(*a, word); });
  add_number<double>(command, "--rtol", a->tolerance.relative, 0, 1, "How far from the reference, relative to it");
  add_number<double>(
      command, "--atol", a->tolerance.absolute, 0, 1e30,
      "How far from the reference besides that; if not given, what the arithmetic rounds: of the largest value 2e-5, with TF32 "
      "on a GPU 2e-3, in halves 2e-2");
  add_number<std::int64_t>(
      command, "--batch-size", a->batch_size, 1, 1 << 20,
      "Examples at a time, 64 if not given; arrays that wait are put together. With --window, windows at a time, of one array: 1");
  add_ignore_index(command, a->ignore_index);
  add_shape(command, "--window", a->window, "Compute each image in windows of this size, which are blended where they overlap")
      .type_name("[D,]H,W");
  add_number<double>(command, "--overlap", a->overlap, 0, 0.95, "The part of a window that the next one shares with it; 0.5 if not given");
  add_number<std::int64_t>(command, "--queue", a->queue, 1, 1 << 20, "Arrays that may wait to be computed, and to be written");
  add_number<int>(command, "--warmup", a->warmup, 0, 1'000'000, "Runs of the first batch before those that count in the times");
  add_seed(command, a->seed);
  add_dtype(command, a->dtype, {DType::f32, DType::f64, DType::f16, DType::bf16});
  add_precision(command, a->precision, a->dtype);
  add_config(command, a->config);
  add_flag(command, "--strict", a->strict, "Refuse a checkpoint with NaN or infinite values");
  add_flag(command, "--allow-extra", a->allow_extra, "Pass over a checkpoint's tensors that the model does not have");
  add_flag(command, "--last-parameters", a->last_parameters,
           "Of a training that kept averages (--average-decay): the parameters as they were last, not their averages");
  add_flag(command, "--timing", a->report.timing,
           "Say how long it took from the start of the process to the first result, and what took it");
  add_quiet(command, a->report.quiet);
  add_json(command, a->report.json);
  a->run.add_to(command);
  set_action(command, action, [a] { return run_infer(*a); });
}

}  // namespace frit::apps
