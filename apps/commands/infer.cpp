#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>

#include "apps/commands/commands.h"
#include "apps/common/interrupt.h"
#include "apps/common/json.h"
#include "apps/common/model_source.h"
#include "apps/common/options.h"
#include "apps/common/process.h"
#include "apps/common/text.h"
#include "apps/serving/array_stream.h"
#include "apps/serving/comparison.h"
#include "apps/serving/inference.h"
#include "apps/serving/stages.h"
#include "frit/core/data/files.h"
#include "frit/core/io/file.h"
#include "frit/core/io/npy.h"
#include "frit/core/numerics.h"
#include "frit/core/text.h"
#include "frit/core/thread_pool.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/libraries/library_plans.h"

namespace frit::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* standard_stream = "-";

struct InferArguments {
  std::string model, config, input, output, reference;
  Tolerance tolerance;
  std::int64_t batch_size = 64, queue = 16;
  int warmup = 0;
  std::uint64_t seed = 0;
  DType dtype = DType::f32, precision = DType::f32;
  bool strict = false;
  bool allow_extra = false;
  bool quiet = false, json = false, timing = false;
  RunOptions run;
};

bool streams(const InferArguments& a) { return a.input == standard_stream; }

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

/// The files of a folder that can be read, by name; otherwise the one file.
std::vector<std::string> input_files(const InferArguments& a) {
  if (streams(a)) return {};
  return is_folder(a.input) ? example_files(a.input) : std::vector<std::string>{a.input};
}

/// Next to the input: the file itself, or in a folder the .npy file of the same name: of a.nii.gz, a.npy.
std::string partner(const InferArguments& a, const std::string& path, const std::string& input) {
  if (!is_folder(a.input)) return path;
  fs::path name = fs::path(input).filename();
  if (name.extension() == ".gz") name = name.stem();
  return (fs::path(path) / name.replace_extension(".npy")).string();
}

/// The partners of all that is read, none for no path and for a stream.
std::vector<std::string> partners(const InferArguments& a, const std::string& path) {
  std::vector<std::string> files;
  if (path.empty() || path == standard_stream) return files;
  for (const std::string& input : input_files(a)) files.push_back(partner(a, path, input));
  return files;
}

/// Before anything is read or computed.
void check_arguments(const InferArguments& a) {
  require(!a.output.empty() || !a.reference.empty(), "one of --output and --ref is required");
  require(!streams(a) || a.output == standard_stream, "--input - is a stream of arrays, and goes with --output -");
  require(!streams(a) || a.reference.empty(), "--ref does not go with --input -");
  require(a.output != standard_stream || !a.json, "--json does not go with --output -: both are for standard output");
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
  for (const std::string& reference : partners(a, a.reference)) FileInput(reference, "a .npy file");
}

std::int64_t count_nan(const Tensor& tensor) {
  if (!is_floating(tensor.dtype())) return 0;
  const std::vector<double> values = tensor.to_vector<double>();
  return std::count_if(values.begin(), values.end(), [](double value) { return std::isnan(value); });
}

/// What is said once of all arrays.
class Remarks {
 public:
  void note_input(const Tensor& input, DType dtype) {
    if (input.dtype() != dtype && !std::exchange(converted_, true)) {
      print_warning(concat("the input was converted from ", input.dtype(), " to ", dtype));
    }
    note_nan(input, "input", input_);
  }
  void note_output(const Tensor& output) { note_nan(output, "output", output_); }

 private:
  static void note_nan(const Tensor& tensor, const char* what, bool& noted) {
    if (noted) return;
    const std::int64_t count = count_nan(tensor);
    if (count == 0) return;
    noted = true;
    print_warning(concat("the ", what, " has ", count, " NaN values"));
  }

  bool converted_ = false, input_ = false, output_ = false;
};

/// The forward graph for batches of the job's examples.
Graph inference_graph(const InferArguments& a, const Model& model, const Job& job) {
  Shape shape = job.input.shape();
  shape[0] = std::min(shape[0], a.batch_size);
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
  const RestoreOptions options{.allow_extra = a.allow_extra, .strict = a.strict};
  for (const std::string& remark : restore(*source.checkpoint, graph, *state, options)) print_warning(remark);
  return state;
}

/// Where arrays come from: one file after another, or standard input. What the model does not take is refused by its shape.
class Source {
 public:
  Source(const InferArguments& a, const Model& model) : model_(model), files_(input_files(a)) {
    if (streams(a)) stream_.emplace();
  }

  std::optional<Job> next() {
    if (stream_) {
      const std::string name = concat("standard input: array ", ++taken_);
      std::optional<Tensor> input = stream_->next(check(name));
      if (!input) return std::nullopt;
      return Job{.name = name, .input = std::move(*input)};
    }
    if (taken_ == files_.size()) return std::nullopt;
    const std::string& file = files_[taken_++];
    return Job{.name = file, .input = read_examples(file, check(file))};
  }
  void stop() {
    if (stream_) stream_->stop();
  }

 private:
  ShapeCheck check(const std::string& name) const {
    return [this, name](const Shape& shape) { with_content_of(printable(name), [&] { model_.check_input(shape); }); };
  }

  const Model& model_;
  std::vector<std::string> files_;
  std::optional<ArrayInput> stream_;
  std::size_t taken_ = 0;
};

/// Where results go, and what became of the comparison with a reference.
class Sink {
 public:
  Sink(const InferArguments& a, Device device) : a_(a), tolerance_(a.tolerance) {
    tolerance_.of_largest = expected_error(a.dtype, a.precision, device);
  }

  void take(const Job& job) {
    remarks_.note_output(job.output);
    if (a_.output == standard_stream)
      write_array(job.output);
    else if (!a_.output.empty())
      write_npy(partner(a_, a_.output, job.name), job.output);
    if (!a_.reference.empty()) check(job);
    shape_ = job.output.shape();
    dtype_ = job.output.dtype();
  }

  /// What was written, of one array.
  std::string text() const {
    const bool file = !a_.output.empty() && a_.output != standard_stream;
    return concat(dtype_, ' ', shape_, file ? " in " + printable(a_.output) : "");
  }
  const Comparison& comparison() const { return comparison_; }
  int differing_files() const { return differing_files_; }

 private:
  void check(const Job& job) {
    const std::string path = partner(a_, a_.reference, job.name);
    Comparison found = compare(job.output, read_npy(path), tolerance_);
    comparison_.elements += found.elements;
    comparison_.differing += found.differing;
    comparison_.largest_error = std::max(comparison_.largest_error, found.largest_error);
    if (found.difference.empty()) return;
    if (differing_files_++ == 0) comparison_.difference = concat(printable(path), ": ", found.difference);
  }

  const InferArguments& a_;
  Tolerance tolerance_;
  Remarks remarks_;
  Comparison comparison_;
  int differing_files_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
};

std::string times_text(const char* what, const std::vector<double>& times) {
  const Percentiles p = percentiles(times);
  return concat(what, " p50 ", fixed(p.p50, 2), " p90 ", fixed(p.p90, 2), " p99 ", fixed(p.p99, 2), " ms");
}

Json json_of(const std::vector<double>& times) {
  const Percentiles p = percentiles(times);
  return {{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}};
}

double rate(const InferenceStatistics& statistics) { return static_cast<double>(statistics.examples) / std::max(statistics.seconds, 1e-9); }

void print_result(const InferArguments& a, const std::string& model, Device device, const InferenceStatistics& s, const Sink& sink,
                  const Stages& stages) {
  if (a.json) {
    Json json = {{"model", model},
                 {"device", concat(device)},
                 {"threads", thread_count()},
                 {"arrays", s.arrays},
                 {"examples", s.examples},
                 {"batches", s.batch.size()},
                 {"seconds", s.seconds},
                 {"examples_per_second", rate(s)},
                 {"batch_milliseconds", json_of(s.batch)},
                 {"response_milliseconds", json_of(s.response)}};
    if (!a.reference.empty()) {
      json["reference"] = {{"elements", sink.comparison().elements},
                           {"differing", sink.comparison().differing},
                           {"largest_error", sink.comparison().largest_error}};
    }
    for (const Stages::Stage& stage : a.timing ? stages.list() : std::vector<Stages::Stage>()) {
      json["start_milliseconds"][stage.name] = stage.milliseconds;
    }
    return print(std::cout, json);
  }
  if (a.timing) {
    std::cerr << "start:";
    for (const Stages::Stage& stage : stages.list()) std::cerr << "  " << stage.name << ' ' << fixed(stage.milliseconds, 1);
    std::cerr << "  = " << fixed(stages.total(), 1) << " ms to the first result" << std::endl;
  }
  if (a.quiet) return;
  std::cerr << model << ": " << (s.arrays == 1 ? sink.text() : concat(grouped(s.arrays), " arrays, ", grouped(s.examples), " examples"))
            << "; " << device << ", " << thread_count() << " threads; " << fixed(rate(s), 0) << " examples/s; "
            << times_text("batch", s.batch) << "; " << times_text("response", s.response) << std::endl;
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
  stages.done("model");

  Source arrays(a, source.model);
  std::optional<Job> first = arrays.next();
  if (!first) return exit_success;
  Sink sink(a, device);
  Remarks remarks;
  stages.done("input");
  Graph graph = inference_graph(a, source.model, *first);
  const auto state = load_parameters(a, source, graph, device);
  Program program(std::move(graph), state, {}, a.precision);
  Inference inference(
      program, {.dtype = a.dtype, .batch_size = a.batch_size, .combine = !a.run.deterministic, .queue = a.queue, .warmup = a.warmup});
  inference.prepare(*first);
  auto libraries = [loaded = 0.0]() mutable {
    const double now = ops::LibraryLoad::milliseconds();
    return Stages::Stage{"libraries", now - std::exchange(loaded, now)};
  };
  stages.done("plans", libraries());
  Job sample{.name = first->name, .input = first->input.slice(0, 0, std::min(first->input.dim(0), a.batch_size))};
  if (a.timing) inference.complete(sample);
  stages.done("first run", libraries());

  const auto read = [&]() -> std::optional<Job> {
    std::optional<Job> job = first ? std::exchange(first, std::nullopt) : arrays.next();
    if (job) remarks.note_input(job->input, a.dtype);
    return job;
  };
  const InferenceStatistics statistics = inference.run(
      read, [&](Job& job) { sink.take(job); }, [&] { arrays.stop(); });
  print_result(a, source.model.name, device, statistics, sink, stages);
  if (sink.differing_files() == 0) return exit_success;
  print_error(sink.comparison().difference);
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
           "another on standard input")
      .required()
      .reads([a](const std::string&) { return input_files(*a); });
  add_path(command, "--output", a->output,
           "The .npy file to write, for a folder the folder for them, as a.npy of a.png, or -: standard output, an array for each that "
           "was read")
      .writes([a](const std::string& word) { return partners(*a, word); });
  add_path(command, "--ref", a->reference, "What the output should be: a .npy file, or a folder; if it differs, the exit code is 1")
      .reads([a](const std::string& word) { return partners(*a, word); });
  add_number<double>(command, "--rtol", a->tolerance.relative, 0, 1, "How far from the reference, relative to it");
  add_number<double>(
      command, "--atol", a->tolerance.absolute, 0, 1e30,
      "How far from the reference besides that; if not given, what the arithmetic rounds: of the largest value 2e-5, with TF32 "
      "on a GPU 2e-3, in halves 2e-2");
  add_number<std::int64_t>(command, "--batch-size", a->batch_size, 1, 1 << 20, "Examples at a time; arrays that wait are put together");
  add_number<std::int64_t>(command, "--queue", a->queue, 1, 1 << 20, "Arrays that may wait to be computed, and to be written");
  add_number<int>(command, "--warmup", a->warmup, 0, 1'000'000, "Runs of the first batch before those that count in the times");
  add_seed(command, a->seed);
  add_dtype(command, a->dtype, {DType::f32, DType::f64, DType::f16, DType::bf16});
  add_precision(command, a->precision, a->dtype);
  add_config(command, a->config);
  add_flag(command, "--strict", a->strict, "Refuse a checkpoint with NaN or infinite values");
  add_flag(command, "--allow-extra", a->allow_extra, "Pass over a checkpoint's tensors that the model does not have");
  add_flag(command, "--timing", a->timing, "Say how long it took from the start of the process to the first result, and what took it");
  add_quiet(command, a->quiet);
  add_json(command, a->json);
  a->run.add_to(command);
  set_action(command, action, [a] { return run_infer(*a); });
}

}  // namespace frit::apps
