#include "apps/training/training.h"

#include <cmath>
#include <deque>
#include <iostream>
#include <numeric>

#include "apps/common/model_source.h"
#include "apps/common/progress.h"
#include "apps/common/text.h"
#include "apps/training/bundle.h"
#include "apps/training/training_graph.h"
#include "frit/core/io/file.h"
#include "frit/core/text.h"
#include "frit/graph/find_non_finite.h"
#include "frit/graph/pipeline.h"

namespace frit::apps {
namespace {

/// What one process of the group learns at once.
BatchTypes batch_of(const Dataset& data, const TrainingOptions& options) {
  const int processes = options.group.size();
  require(data.size() > 0, "there are no examples");
  require(data.size() >= processes, "there are ", data.size(), " examples for ", processes, " processes, each of which needs one");
  return batch_types(data, std::min(options.settings.batch_size, data.size()) / processes);
}

TrainStep make_step(const Model& model, const Dataset& data, const std::string& source, const TrainingOptions& options,
                    std::shared_ptr<Communicator> communicator) {
  const TrainSettings& settings = options.settings;
  Graph graph;
  const Value loss = with_content_of(source, [&] {
    return build_loss(graph, model, batch_of(data, options), settings.dtype, {settings.ignore_index, communicator.get()});
  });
  const std::int64_t batches = (data.size() + settings.batch_size - 1) / settings.batch_size;
  TrainOptions step_options = settings.step_options(batches);
  step_options.communicator = std::move(communicator);
  step_options.shards_optimizer = options.shards_optimizer;
  return TrainStep(loss, settings.make_optimizer(), options.device, step_options);
}

/// What measures: each process by itself.
Graph inference_graph(const Model& model, const Dataset& data, const std::string& source, const TrainingOptions& options) {
  const TrainSettings& settings = options.settings;
  return graph::for_inference(with_content_of(
      source, [&] { return loss_graph(model, batch_of(data, options), settings.dtype, {.ignore_index = settings.ignore_index}); }));
}

void check_same_fields(const std::string& source, const Dataset& data, const Dataset& validation) {
  const BatchTypes found = batch_types(validation, 1);
  for (const auto& [name, wanted] : batch_types(data, 1)) {
    const auto place = found.find(name);
    if (place == found.end()) fail(ErrorKind::format, source, ": a validation example has no \"", name, '"');
    const auto example = [](Shape shape) { return shape.erase(0), shape; };
    if (place->second.shape == wanted.shape) continue;
    fail(ErrorKind::format, source, ": \"", name, "\" of a validation example is ", example(place->second.shape),
         ", of a training example ", example(wanted.shape));
  }
}

/// The examples of the group's largest share.
std::int64_t largest_share(const Dataset& data, const ProcessGroup& group) { return (data.size() + group.size() - 1) / group.size(); }

std::int64_t classes_of(const Graph& graph) {
  const auto output = std::find_if(graph.outputs().begin(), graph.outputs().end(), [](const auto& o) { return o.name == output_name; });
  return graph.type(output->value).shape[1];
}

ConfusionMatrix gathered(const ConfusionMatrix& own, const ProcessGroup& group) {
  if (group.size() == 1) return own;
  const std::vector<double> sums = group.sum({own.counts().begin(), own.counts().end()});
  ConfusionMatrix all(own.classes());
  all.add_counts(std::vector<std::int64_t>(sums.begin(), sums.end()));
  return all;
}

}  // namespace

std::shared_ptr<const Dataset> share_of(std::shared_ptr<const Dataset> data, const ProcessGroup& group) {
  if (group.size() == 1) return data;
  const std::int64_t begin = data->size() * group.rank() / group.size(), end = data->size() * (group.rank() + 1) / group.size();
  std::vector<std::int64_t> indices(static_cast<std::size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return subset(std::move(data), std::move(indices));
}

void RunPosition::fields(FieldVisitor& v) {
  v.field("epoch", epoch);
  v.field("batch", batch);
  v.field("best", best);
  v.field("stale", stale);
  v.field("examples", examples);
  v.field("data", data);
  v.field("validation", validation);
}

void check_parameters_finite(const TrainStep& step) {
  for (const graph::Node* node : step.graph().all(graph::NodeKind::variable)) {
    if (graph::range_of(step.state().at(node->name)).non_finite == 0) continue;
    fail(ErrorKind::diverged, "parameter \"", node->name, "\" is not finite after step ", step.position().batches, "; nothing was saved");
  }
}

Training::Training(const Model& model, std::shared_ptr<const Dataset> data, std::shared_ptr<const Dataset> validation,
                   const std::string& source, const TrainingOptions& options)
    : model_(model),
      source_(source),
      options_(options),
      step_(make_step(model, *data, source, options, options.group.communicator())),
      averages_(options.settings.average_decay && validation != nullptr ? step_.averaged() : nullptr),
      validation_program_(inference_graph(model, *data, source, options), averages_ ? averages_ : step_.shared_state(), {},
                          options.settings.precision),
      data_(data, {.batch_size = options.settings.batch_size,
                   .shuffle = !options.settings.overfit_one_batch,
                   .seed = options.settings.seed,
                   .prefetch = options.prefetch,
                   .device = options.device,
                   .rank = options.group.rank(),
                   .ranks = options.group.size()}),
      validation_data_(std::move(validation)),
      interrupt_(options.group),
      position_{.examples = data->size(), .data = options.data_fingerprint, .validation = options.validation_fingerprint},
      learnt_(model.task),
      score_(model.task) {
  if (validation_data_ == nullptr) return;
  check_same_fields(source, *data, *validation_data_);
  validation_ = std::make_unique<DataLoader>(
      share_of(validation_data_, options.group),
      DataLoaderOptions{
          .batch_size = options.settings.batch_size / options.group.size(), .prefetch = options.prefetch, .device = options.device});
}

void Training::share() {
  options_.group.require_same_entries("the position of the run, ", fields_to_json(position_));
  learnt_.leave_answers_to_first(options_.group);
  step_.share_variables();
}

std::int64_t Training::parameter_count() const {
  std::int64_t count = 0;
  for (const graph::Node* node : step_.graph().all(graph::NodeKind::variable)) {
    if (node->trainable) count += step_.graph().type(node->outputs[0]).elements();
  }
  return count;
}

const Graph& Training::compiled_graph() { return step_.compile(input_types(step_.graph())).graph(); }

void Training::run() {
  if (options_.saves) take_fingerprints();
  const auto ended = [&] {
    return position_.epoch >= options_.settings.epochs || (options_.early_stopping > 0 && position_.stale >= options_.early_stopping);
  };
  while (!ended() && !interrupted()) {
    const auto start = std::chrono::steady_clock::now();
    train_epoch();
    if (interrupted() || !finish_epoch(start)) break;
  }
  if (interrupted() && step_.position().batches > 0) save();
  options_.group.alike([&] { step_.require_same_parameters(); });
  if (options_.early_stopping > 0 && position_.stale >= options_.early_stopping && !options_.quiet) {
    std::cerr << "stopped early: no lower loss for " << position_.stale << " epochs" << std::endl;
  }
}

Bindings Training::inputs_of(const Batch& batch) const {
  return with_content_of(source_, [&] { return batch_inputs(model_, batch, options_.settings.dtype); });
}

void Training::train_epoch() {
  const std::int64_t size = data_.dataset().size(), before = learnt_.examples(), epoch = position_.epoch;
  Progress progress(concat("epoch ", epoch + 1, '/', options_.settings.epochs), model_.has_classes() ? "images" : "examples", size - before,
                    size * options_.settings.epochs, size * epoch + before, options_.quiet);
  Readings readings(model_.task, options_.device, options_.settings.ignore_index, options_.group.size());
  std::deque<double> rates;  // of the steps that are not taken yet
  const auto take = [&] {
    const std::int64_t examples = learnt_.examples();
    const Readings::Taken taken = with_content_of(source_, [&] { return readings.take(learnt_); });
    const auto pending = static_cast<std::int64_t>(readings.pending());
    if (options_.record != nullptr) {
      options_.record->add({.step = step_.position().batches - pending,
                            .epoch = epoch + 1,
                            .loss = taken.loss,
                            .learning_rate = rates.front(),
                            .gradient_norm = taken.norm},
                           learnt_.examples() - examples);
    }
    rates.pop_front();
    if (!step_.finite(taken.loss, taken.norm)) diverged(taken.loss, taken.norm, pending);
    ++position_.batch;
  };
  data_.set_epoch(epoch, std::min(position_.batch, data_.batches()));
  for (const Batch& batch : data_) {
    if (interrupt_.signal(/*final=*/false) != 0) break;
    const Bindings inputs = inputs_of(batch);
    rates.push_back(step_.learning_rate());
    if (options_.record != nullptr) options_.record->step_begins();
    const Tensor& loss = with_content_of(source_, [&]() -> decltype(auto) { return step_.start(inputs); });
    if (options_.record != nullptr) options_.record->step_ends();
    readings.start(loss, &step_.gradient_norm(), step_.output(output_name), inputs.at("target"));
    if (readings.full()) take();
    progress.update(learnt_.examples() - before, "loss " + fixed(learnt_.loss(), 4));
    const bool due = !options_.interval.epochs && step_.position().batches % options_.interval.count == 0;
    if (!due || !options_.saves) continue;
    while (readings.pending() > 0) take();
    save();
  }
  while (readings.pending() > 0) take();
  if (options_.record != nullptr) options_.record->pause();
}

/// Measures the epoch that was learnt, and goes over to the next; false if an interrupt came.
bool Training::finish_epoch(std::chrono::steady_clock::time_point start) {
  const Score measured = validate();
  if (interrupted()) return false;
  learnt_.gather(options_.group, /*shared_loss=*/true);
  score_ = validation_ == nullptr ? learnt_ : measured;
  const std::int64_t epoch = ++position_.epoch;
  if (!std::isfinite(score_.loss())) {
    throw ErrorOfAll(ErrorKind::diverged,
                     concat("the validation loss is ", score_.loss(), " after step ", step_.position().batches, " (epoch ", epoch, ')'));
  }
  if (!options_.quiet) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::cerr << "epoch " << epoch << '/' << options_.settings.epochs << "  " << learnt_.text();
    if (validation_ != nullptr) std::cerr << "  |  validation " << measured.text();
    std::cerr << "  |  " << fixed(seconds, 2) << " s" << std::endl;
  }
  if (options_.record != nullptr) {
    const bool classes = model_.has_classes();
    EpochMetrics metrics{.epoch = epoch, .step = step_.position().batches, .training_loss = learnt_.loss()};
    if (classes) metrics.training_accuracy = learnt_.accuracy() / 100;
    if (validation_ != nullptr) metrics.validation_loss = measured.loss();
    if (classes && validation_ != nullptr) metrics.validation_accuracy = measured.accuracy() / 100;
    if (const std::optional<double> top5 = measured.top5()) metrics.validation_top5 = *top5 / 100;
    metrics.validation_dice = measured.dice().value_or(not_measured);
    metrics.validation_iou = measured.iou().value_or(not_measured);
    options_.record->add(metrics, confusion_);
  }
  step_.observe(score_.loss());
  const bool best = score_.loss() < position_.best;
  position_.best = std::min(position_.best, score_.loss());
  position_.stale = best ? 0 : position_.stale + 1;
  position_.batch = 0;
  learnt_ = Score(model_.task);
  if (!options_.saves) return true;
  const bool due = options_.interval.epochs && epoch % options_.interval.count == 0;
  if (best || due || epoch == options_.settings.epochs) save();
  if (best && options_.checkpoints != nullptr) options_.checkpoints->mark_best();
  return true;
}

Score Training::validate() {
  Score score(model_.task);
  if (validation_ == nullptr) return score;
  step_.share_statistics();
  if (averages_) step_.copy_averages(*averages_);
  confusion_.reset();
  const std::int64_t classes = model_.has_classes() && validation_data_->size() > 0 ? classes_of(step_.graph()) : 0;
  if (classes > 0 && classes <= ConfusionMatrix::most_classes) confusion_.emplace(classes, options_.settings.ignore_index);
  Readings readings(model_.task, options_.device, options_.settings.ignore_index);
  const auto take = [&] { with_content_of(source_, [&] { readings.take(score, confusion_ ? &*confusion_ : nullptr); }); };
  // Some processes have a batch less: they ask for interrupts as often as the others.
  const std::int64_t size = options_.settings.batch_size / options_.group.size();
  const std::int64_t most_batches = (largest_share(*validation_data_, options_.group) + size - 1) / size;
  auto batch = validation_->begin();
  for (std::int64_t i = 0; i < most_batches && interrupt_.signal(/*final=*/false) == 0; ++i) {
    if (batch == validation_->end()) continue;
    measure(*batch, readings);
    if (readings.full()) take();
    ++batch;
  }
  while (readings.pending() > 0) take();
  if (interrupted()) return score;
  score.gather(options_.group, /*shared_loss=*/false);
  if (confusion_) score.measure(*(confusion_ = gathered(*confusion_, options_.group)));
  return score;
}

void Training::measure(const Batch& batch, Readings& readings) {
  const Bindings inputs = inputs_of(batch);
  const graph::Executable& result = with_content_of(source_, [&]() -> decltype(auto) { return validation_program_.run(inputs); });
  readings.start(result.output("loss"), nullptr, result.output(output_name), inputs.at("target"));
}

Metadata Training::checkpoint_data(const Score& learnt) const {
  Metadata metadata = options_.metadata;
  metadata.merge(checkpoint_metadata(model_));
  metadata["settings"] = fields_to_json(options_.settings);
  metadata["data"] = fields_to_json(options_.data);
  metadata["position"] = fields_to_json(position_);
  metadata["epoch_score"] = fields_to_json(learnt);
  metadata["score"] = fields_to_json(score_);
  return metadata;
}

/// Once all processes have come to this step; they go on when it is written.
void Training::save() {
  if (!options_.saves) return;
  options_.group.require_same("the step of a checkpoint", concat(step_.position().batches));
  options_.group.alike([&] { step_.require_same_parameters(); });
  step_.share_sums();
  step_.gather_shards();
  Score learnt = learnt_;
  learnt.gather(options_.group, /*shared_loss=*/true);
  options_.group.together([&] {
    if (options_.checkpoints == nullptr) return;
    check_parameters_finite(step_);
    options_.checkpoints->save(step_, checkpoint_data(learnt));
  });
}

/// The step before the last `later` was not finite, and nothing was updated since (see TrainOptions::guarded): runs it again, operator by
/// operator. Each process looks at its examples by itself; the first that finds a value leaves its step to be replayed.
void Training::diverged(double loss, double norm, std::int64_t later) {
  const ProcessGroup& group = options_.group;
  const std::int64_t before = step_.position().batches - later - 1;
  step_.return_to(before);
  data_.set_epoch(position_.epoch, position_.batch);
  const Batch& batch = *data_.begin();
  const Bindings inputs = inputs_of(batch);
  std::optional<TrainStep> alone;
  step_.gather_shards(/*to_all=*/true);
  if (group.size() > 1) alone.emplace(step_alone());
  TrainStep& step = alone ? *alone : step_;
  graph::Executable& executable = step.compile(tensor_types(inputs));
  const std::string folder = options_.run_directory.empty() ? "" : concat(options_.run_directory, "/not-finite-step-", before + 1);
  const auto leave_bundle = [&] {
    if (!folder.empty()) write_bundle(folder, step_, checkpoint_data(learnt_), executable, inputs);
  };
  if (!alone) leave_bundle();
  const std::optional<graph::NonFinite> found = graph::find_non_finite(executable, inputs);
  const std::vector<std::string> all = group.of_all(found ? found->text() : "");
  const auto first = std::find_if(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
  const std::int64_t finder = first == all.end() ? 0 : first - all.begin();
  const std::string where = first == all.end() ? "operator by operator every value is finite" : *first;
  const std::string what =
      concat(std::isfinite(loss) ? "the norm of the gradients is " : "the loss is ", std::isfinite(loss) ? norm : loss, " at step ",
             before + 1, " (epoch ", position_.epoch + 1, "): ", alone ? concat("process ", finder, ": ") : "", where);
  if (group.rank() == finder) {
    if (alone) leave_bundle();
    if (!folder.empty()) write_text(folder + "/report.txt", what + '\n');
  }
  const std::string replay = folder.empty() ? "" : concat("; `frit replay ", printable(folder), "` runs it again");
  throw ErrorOfAll(ErrorKind::diverged, concat(what, replay, "; hint: a smaller --lr, or --clip-norm"));
}

/// The step as this process would do it by itself, with variables of its own.
TrainStep Training::step_alone() const {
  TrainStep step = make_step(model_, data_.dataset(), source_, options_, nullptr);
  const std::map<std::string, Tensor> variables = step_.whole_variables();
  for (const auto& [name, tensor] : step.state().tensors()) step.state().set(name, variables.at(name));
  step.set_position(step_.position());
  return step;
}

}  // namespace frit::apps
