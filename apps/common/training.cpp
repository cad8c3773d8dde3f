#include "apps/common/training.h"

#include <cmath>
#include <iostream>

#include "apps/common/interrupt.h"
#include "apps/common/model_source.h"
#include "apps/common/progress.h"
#include "apps/common/text.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/loss/loss.h"

namespace frit::apps {
namespace {

constexpr const char* output_name = "output";

/// Rows whose largest value stands at the target's index.
std::int64_t count_correct(const Tensor& logits, const Tensor& target) {
  const std::vector<float> values = logits.to(Device::cpu()).to_vector<float>();
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

}  // namespace

void Score::add(double loss, const Tensor& output, const Tensor& target) {
  const std::int64_t count = target.dim(0);
  loss_sum_ += loss * static_cast<double>(count);
  examples_ += count;
  if (task_ == Model::Task::classification) correct_ += count_correct(output, target);
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
      data_(data, {.batch_size = options.batch_size, .shuffle = true, .seed = options.step.seed}),
      score_(model.task) {
  if (validation == nullptr) return;
  check_same_fields(source, *data, *validation);
  validation_ = std::make_unique<DataLoader>(std::move(validation), DataLoaderOptions{.batch_size = options.batch_size});
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
    check_finite("the validation loss", score_.loss(), epoch);
    if (options_.quiet) continue;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::cerr << "epoch " << epoch + 1 << '/' << options_.epochs << "  " << learnt.text();
    if (validation_ != nullptr) std::cerr << "  |  validation " << measured.text();
    std::cerr << "  |  " << fixed(seconds, 1) << " s" << std::endl;
  }
}

Score Training::train_epoch(std::int64_t epoch) {
  const std::int64_t size = data_.dataset().size();
  Progress progress(concat("epoch ", epoch + 1, '/', options_.epochs), task_ == Model::Task::classification ? "images" : "examples", size,
                    size * options_.epochs, size * epoch, options_.quiet);
  Score score(task_);
  for (const Batch& batch : data_) {
    if (interrupt_signal() != 0) break;
    const Bindings inputs = bindings(batch);
    const double loss = with_content_of(source_, [&] { return step_(inputs); });
    check_finite("the loss", loss, epoch);
    score.add(loss, step_.output(output_name), inputs.at("target"));
    progress.update(score.examples(), "loss " + fixed(score.loss(), 4));
  }
  return score;
}

Score Training::validate() {
  Score score(task_);
  if (validation_ == nullptr) return score;
  for (const Batch& batch : *validation_) {
    if (interrupt_signal() != 0) break;
    const Bindings inputs = bindings(batch);
    const graph::Executable& result = with_content_of(source_, [&]() -> decltype(auto) { return validation_program_.run(inputs); });
    score.add(result.output("loss").item(), result.output(output_name), inputs.at("target"));
  }
  return score;
}

/// The batch in the graph's dtypes; itself where it has them.
Bindings Training::bindings(const Batch& batch) const {
  const DType target = task_ == Model::Task::classification ? DType::i64 : options_.dtype;
  return {{"input", batch[0].to(options_.dtype)}, {"target", batch[1].to(target)}};
}

void Training::check_finite(const char* what, double loss, std::int64_t epoch) const {
  if (std::isfinite(loss)) return;
  fail(ErrorKind::diverged, what, " is ", loss, " at step ", step_.steps(), " (epoch ", epoch + 1,
       "); nothing was saved; hint: a smaller --lr, or --clip-norm");
}

}  // namespace frit::apps
