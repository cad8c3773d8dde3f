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
#include "apps/serving/inference_files.h"
#include "apps/serving/stages.h"
#include "apps/training/score.h"
#include "frit/core/data/files.h"
#include "frit/core/io/file.h"
#include "frit/core/io/folder.h"
#include "frit/core/io/nifti.h"
#include "frit/core/io/npy.h"
#include "frit/core/io/png.h"
#include "frit/core/numerics.h"
#include "frit/core/text.h"
#include "frit/core/thread_pool.h"
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
  int warmup = 0;
  std::uint64_t seed = 0;
  DType dtype = DType::f32, precision = DType::f32;
  bool strict = false;
  bool allow_extra = false;
  bool quiet = false, json = false, timing = false;
  RunOptions run;
};

/// Windows of volumes are large: one at a time, unless it is said.
std::int64_t batch_size(const InferArguments& a) { return a.batch_size.value_or(a.window.empty() ? 64 : 1); }

/// What the model is given of an array of this shape: all of its rows, or windows of its images.
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
  for (const std::string& reference : references(a, a.reference)) FileInput(reference, "a .npy file or a mask");
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
  Shape shape = model_input(a, job.input.shape());
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
  const RestoreOptions options{.allow_extra = a.allow_extra, .strict = a.strict};
  for (const std::string& remark : restore(*source.checkpoint, graph, *state, options)) print_warning(remark);
  return state;
}

/// Where arrays come from: one file after another, or standard input. What the model does not take is refused by its shape.
class Source {
 public:
  Source(const InferArguments& a, const Model& model) : a_(a), model_(model), files_(input_files(a)) {
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
    return [this, name](const Shape& shape) { with_content_of(printable(name), [&] { model_.check_input(model_input(a_, shape)); }); };
  }

  const InferArguments& a_;
  const Model& model_;
  std::vector<std::string> files_;
  std::optional<ArrayInput> stream_;
  std::size_t taken_ = 0;
};

/// Where results go, and what became of the comparison with a reference.
class Sink {
 public:
  Sink(const InferArguments& a, const Model& model, Device device) : a_(a), model_(model), tolerance_(a.tolerance), score_(model.task) {
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
  /// Of references that are classes; without a matrix there was none.
  const Score& score() const { return score_; }
  const std::optional<ConfusionMatrix>& confusion() const { return confusion_; }
  int differing_files() const { return differing_files_; }

 private:
  void check(const Job& job) {
    const std::string path = reference_of(a_, a_.reference, job.name);
    const bool mask = is_image_name(path) || is_volume_name(path);
    const Tensor reference = !model_.has_classes() || !mask ? read_examples(path)
                             : is_image_name(path)          ? as_batch(read_png_classes(path))
                                                            : as_batch(read_nifti(path).voxels);
    if (model_.has_classes() && (mask || !is_floating(reference.dtype()))) {
      return with_content_of(printable(path), [&] { count(job.output, reference); });
    }
    Comparison found = compare(job.output, reference, tolerance_);
    comparison_.elements += found.elements;
    comparison_.differing += found.differing;
    comparison_.largest_error = std::max(comparison_.largest_error, found.largest_error);
    if (found.difference.empty()) return;
    if (differing_files_++ == 0) comparison_.difference = concat(printable(path), ": ", found.difference);
  }

  static Tensor as_batch(const Tensor& mask) {
    Shape shape = mask.shape();
    shape.insert(0, 1);
    return mask.reshape(shape);
  }

  void count(const Tensor& logits, const Tensor& classes) {
    if (!confusion_) confusion_.emplace(logits.dim(1));
    confusion_->add(logits, classes);
    score_.add(0, logits.dim(0), count_answers(model_.task, logits, classes));
    score_.measure(*confusion_);
  }

  const InferArguments& a_;
  const Model& model_;
  Tolerance tolerance_;
  Score score_;
  std::optional<ConfusionMatrix> confusion_;
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

/// What was right of the classes in the reference.
Json json_of(const Score& score, const ConfusionMatrix& confusion) {
  Json json = {{"accuracy", score.accuracy() / 100}};
  if (score.top5()) json["top5"] = *score.top5() / 100;
  if (score.dice()) json["dice"] = *score.dice(), json["iou"] = *score.iou();
  for (std::int64_t c = 0; c < confusion.classes(); ++c) {
    Json counts = Json::array();
    for (std::int64_t predicted = 0; predicted < confusion.classes(); ++predicted) counts.push_back(confusion.count(c, predicted));
    json["confusion"].push_back(counts);
    json["class_dice"].push_back(confusion.dice(c));  // null where there is none
    json["class_iou"].push_back(confusion.iou(c));
  }
  return json;
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
    if (sink.confusion()) json["classes"] = json_of(sink.score(), *sink.confusion());
    if (!a.reference.empty() && !sink.confusion()) {
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
            << times_text("batch", s.batch) << "; " << times_text("response", s.response);
  if (sink.confusion()) std::cerr << "; " << sink.score().answers_text();
  std::cerr << std::endl;
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
  require(a.window.empty() || a.window.rank() == source.model.image_rank, "--window ", a.window, ": an image of ", source.model.name,
          " has ", source.model.image_rank, " axes");
  stages.done("model");

  Source arrays(a, source.model);
  std::optional<Job> first = arrays.next();
  if (!first) return exit_success;
  Sink sink(a, source.model, device);
  Remarks remarks;
  stages.done("input");
  Graph graph = inference_graph(a, source.model, *first);
  const auto state = load_parameters(a, source, graph, device);
  Program program(std::move(graph), state, {}, a.precision);
  Inference inference(program, {.dtype = a.dtype,
                                .batch_size = batch_size(a),
                                .combine = !a.run.deterministic,
                                .queue = a.queue,
                                .warmup = a.warmup,
                                .window = a.window,
                                .overlap = a.overlap.value_or(0.5)});
  inference.prepare(*first);
  auto libraries = [loaded = 0.0]() mutable {
    const double now = ops::LibraryLoad::milliseconds();
    return Stages::Stage{"libraries", now - std::exchange(loaded, now)};
  };
  stages.done("plans", libraries());
  Job sample{.name = first->name, .input = first->input.slice(0, 0, std::min(first->input.dim(0), batch_size(a)))};
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
  add_flag(command, "--timing", a->timing, "Say how long it took from the start of the process to the first result, and what took it");
  add_quiet(command, a->quiet);
  add_json(command, a->json);
  a->run.add_to(command);
  set_action(command, action, [a] { return run_infer(*a); });
}

}  // namespace frit::apps
