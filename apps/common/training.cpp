#include "apps/common/training.h"

#include <array>
#include <cmath>
#include <iostream>

#include "apps/common/interrupt.h"
#include "apps/common/model_source.h"
#include "apps/common/progress.h"
#include "apps/common/text.h"
#include "frit/core/readback.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/loss/loss.h"

namespace frit::apps {
namespace {

constexpr const char* output_name = "output";

/// Rows whose largest value stands at the target's index.
std::int64_t count_correct(const Tensor& logits, const Tensor& target) {
  const std::vector<float> values = logits.to_vector<float>();
  const std::vector<std::int64_t> classes = target.to_vector<std::int64_t>();
  const auto width = static_cast<std::ptrdiff_t>(logits.dim(1));
  std::int64_t correct = 0;
  auto row = values.begin();
  for (const std::int64_t expected : classes) {
    correct += std::max_element(row, row + width) - row == expected;
    row += width;
  }
  return correct;
}

Shape batch_shape(const Dataset& data, std::size_t field, std::int64_t batch_size) {
  Shape shape = data.fields()[field].shape;
  shape.insert(0, batch_size);
  return shape;
}

/// The model's loss on one batch, in a graph that lasts as long as the call's argument.
Value build_loss(Graph& graph, const Model& model, const Dataset& data, const TrainingOptions& options) {
  const std::int64_t batch_size = std::min(options.batch_size, data.size());
  const Shape input_shape = batch_shape(data, 0, batch_size), target_shape = batch_shape(data, 1, batch_size);
  model.check_input(input_shape);
  const Value output = model.build(Scope(graph, "", options.dtype), graph.input("input", input_shape, options.dtype));
  graph.output(output_name, output);
  const bool classes = model.task == Model::Task::classification;
  const Shape expected = classes ? Shape{batch_size} : output.shape();
  require(target_shape == expected, "the targets of a batch have shape ", target_shape, ", the model needs ", expected);
  require(!classes || !is_floating(data.fields()[1].dtype), "the targets are ", data.fields()[1].dtype, ", a classifier needs integers");
  const Value target = graph.input("target", target_shape, classes ? DType::i64 : options.dtype);
  return classes ? cross_entropy(output, target) : mean_squared_error(output, target);
}

TrainStep make_step(const Model& model, const Dataset& data, const std::string& source, const TrainingOptions& options) {
  return with_content_of(source, [&] {
    require(data.size() > 0, "there are no examples");
    Graph graph;
    return TrainStep(build_loss(graph, model, data, options), options.optimizer, options.device, options.step);
  });
}

void check_same_fields(const std::string& source, const Dataset& data, const Dataset& validation) {
  for (std::size_t i = 0; i < 2; ++i) {
    const Shape &wanted = data.fields()[i].shape, &found = validation.fields()[i].shape;
    if (!(found == wanted)) {
      fail(ErrorKind::format, source, ": \"", data.fields()[i].name, "\" of a validation example is ", found, ", of a training example ",
           wanted);
    }
  }
}

/// Losses of batches, and of a classifier the outputs and targets, on their way to the host. From a GPU they are taken while the next batch
/// is at work, so that it never waits.
class Readings {
 public:
  Readings(Model::Task task, Device device) : classifies_(task == Model::Task::classification), ahead_(device == Device::cpu() ? 0u : 1u) {}

  void start(const Tensor& loss, const Tensor& output, const Tensor& target) {
    Reading& reading = readings_[started_++ % readings_.size()];
    reading.examples = target.dim(0);
    reading.loss.start(loss);
    if (!classifies_) return;
    reading.output.start(output);
    reading.target.start(target);
  }

  std::size_t pending() const { return started_ - taken_; }
  /// One has to be taken before the next is started.
  bool full() const { return pending() > ahead_; }

  /// Adds the oldest to the score; returns its loss.
  double take(Score& score) {
    const Reading& reading = readings_[taken_++ % readings_.size()];
    const double loss = reading.loss.get().item();
    score.add(loss, reading.examples, classifies_ ? count_correct(reading.output.get(), reading.target.get()) : 0);
    return loss;
  }

 private:
  struct Reading {
    std::int64_t examples = 0;
    Readback loss, output, target;
  };

  bool classifies_;
  std::size_t ahead_;
  std::array<Reading, 2> readings_;
  std::size_t started_ = 0, taken_ = 0;
};

}  // namespace

void Score::add(double loss, std::int64_t examples, std::int64_t correct) {
  loss_sum_ += loss * static_cast<double>(examples);
  examples_ += examples;
  correct_ += correct;
}

double Score::loss() const { return examples_ == 0 ? 0 : loss_sum_ / static_cast<double>(examples_); }

double Score::accuracy() const { return examples_ == 0 ? 0 : 100.0 * static_cast<double>(correct_) / static_cast<double>(examples_); }

std::string Score::text() const {
  const std::string loss_text = "loss " + fixed(loss(), 4);
  return task_ == Model::Task::classification ? loss_text + "  accuracy " + fixed(accuracy(), 2) + " %" : loss_text;
}

Training::Training(const Model& model, std::shared_ptr<const Dataset> data, std::shared_ptr<const Dataset> validation,
                   const std::string& source, const TrainingOptions& options)
    : task_(model.task),
      source_(source),
      options_(options),
      step_(make_step(model, *data, source, options)),
      validation_program_(graph::for_inference(step_.graph()), step_.shared_state(), {}, options.step.precision),
      data_(data, {.batch_size = options.batch_size, .shuffle = true, .seed = options.step.seed, .device = options.device}),
      score_(model.task) {
  if (validation == nullptr) return;
  check_same_fields(source, *data, *validation);
  validation_ =
      std::make_unique<DataLoader>(std::move(validation), DataLoaderOptions{.batch_size = options.batch_size, .device = options.device});
}

std::int64_t Training::parameter_count() const {
  std::int64_t count = 0;
  for (const graph::Node* node : step_.graph().all(graph::NodeKind::variable)) {
    if (node->trainable) count += step_.graph().type(node->outputs[0]).elements();
  }
  return count;
}

void Training::run() {
  for (std::int64_t epoch = 0; epoch < options_.epochs && interrupt_signal() == 0; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    const Score learnt = train_epoch(epoch);
    if (interrupt_signal() != 0) return;
    const Score measured = validate();
    if (interrupt_signal() != 0) return;
    score_ = validation_ == nullptr ? learnt : measured;
    if (!std::isfinite(score_.loss())) diverged("the validation loss", score_.loss(), step_.steps(), epoch);
    if (options_.quiet) continue;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::cerr << "epoch " << epoch + 1 << '/' << options_.epochs << "  " << learnt.text();
    if (validation_ != nullptr) std::cerr << "  |  validation " << measured.text();
    std::cerr << "  |  " << fixed(seconds, 2) << " s" << std::endl;
  }
}

Score Training::train_epoch(std::int64_t epoch) {
  const std::int64_t size = data_.dataset().size();
  Progress progress(concat("epoch ", epoch + 1, '/', options_.epochs), task_ == Model::Task::classification ? "images" : "examples", size,
                    size * options_.epochs, size * epoch, options_.quiet);
  Score score(task_);
  Readings readings(task_, options_.device);
  const auto take = [&] {
    const double loss = readings.take(score);
    if (!std::isfinite(loss)) diverged("the loss", loss, step_.steps() - static_cast<std::int64_t>(readings.pending()), epoch);
  };
  for (const Batch& batch : data_) {
    if (interrupt_signal() != 0) break;
    const Bindings inputs = bindings(batch);
    const Tensor& loss = with_content_of(source_, [&]() -> decltype(auto) { return step_.start(inputs); });
    readings.start(loss, step_.output(output_name), inputs.at("target"));
    if (readings.full()) take();
    progress.update(score.examples(), "loss " + fixed(score.loss(), 4));
  }
  while (readings.pending() > 0) take();
  return score;
}

Score Training::validate() {
  Score score(task_);
  if (validation_ == nullptr) return score;
  Readings readings(task_, options_.device);
  for (const Batch& batch : *validation_) {
    if (interrupt_signal() != 0) break;
    const Bindings inputs = bindings(batch);
    const graph::Executable& result = with_content_of(source_, [&]() -> decltype(auto) { return validation_program_.run(inputs); });
    readings.start(result.output("loss"), result.output(output_name), inputs.at("target"));
    if (readings.full()) readings.take(score);
  }
  while (readings.pending() > 0) readings.take(score);
  return score;
}

/// The batch in the graph's dtypes; itself where it has them.
Bindings Training::bindings(const Batch& batch) const {
  const DType target = task_ == Model::Task::classification ? DType::i64 : options_.dtype;
  return {{"input", batch[0].to(options_.dtype)}, {"target", batch[1].to(target)}};
}

void Training::diverged(const char* what, double loss, std::int64_t step, std::int64_t epoch) {
  fail(ErrorKind::diverged, what, " is ", loss, " at step ", step, " (epoch ", epoch + 1,
       "); nothing was saved; hint: a smaller --lr, or --clip-norm");
}

}  // namespace frit::apps
