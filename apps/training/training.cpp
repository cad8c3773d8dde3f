#include "apps/training/training.h"

#include <cmath>
#include <deque>
#include <iostream>

#include "apps/common/interrupt.h"
#include "apps/common/model_source.h"
#include "apps/common/progress.h"
#include "apps/common/text.h"
#include "apps/training/bundle.h"
#include "apps/training/training_graph.h"
#include "frit/core/data/fingerprint.h"
#include "frit/core/io/file.h"
#include "frit/core/text.h"
#include "frit/graph/find_non_finite.h"
#include "frit/graph/pipeline.h"

namespace frit::apps {
namespace {

TrainStep make_step(const Model& model, const Dataset& data, const std::string& source, const TrainingOptions& options) {
  const TrainSettings& settings = options.settings;
  Graph graph;
  const Value loss = with_content_of(source, [&] {
    require(data.size() > 0, "there are no examples");
    const BatchTypes batch = BatchTypes::of(data, std::min(settings.batch_size, data.size()));
    return build_loss(graph, model, batch, settings.dtype, settings.ignore_index);
  });
  const std::int64_t batches = (data.size() + settings.batch_size - 1) / settings.batch_size;
  return TrainStep(loss, settings.make_optimizer(), options.device, settings.step_options(batches));
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
      step_(make_step(model, *data, source, options)),
      averages_(options.settings.average_decay && validation != nullptr ? step_.averaged() : nullptr),
      validation_program_(graph::for_inference(step_.graph()), averages_ ? averages_ : step_.shared_state(), {},
                          options.settings.precision),
      data_(data, {.batch_size = options.settings.batch_size,
                   .shuffle = !options.settings.overfit_one_batch,
                   .seed = options.settings.seed,
                   .prefetch = options.prefetch,
                   .device = options.device}),
      position_{.examples = data->size()},
      learnt_(model.task),
      score_(model.task) {
  if (validation == nullptr) return;
  check_same_fields(source, *data, *validation);
  validation_ = std::make_unique<DataLoader>(
      std::move(validation),
      DataLoaderOptions{.batch_size = options.settings.batch_size, .prefetch = options.prefetch, .device = options.device});
}

std::int64_t Training::parameter_count() const {
  std::int64_t count = 0;
  for (const graph::Node* node : step_.graph().all(graph::NodeKind::variable)) {
    if (node->trainable) count += step_.graph().type(node->outputs[0]).elements();
  }
  return count;
}

const Graph& Training::compiled_graph() {
  std::map<std::string, TensorType> types;
  for (const graph::Node* node : step_.graph().all(graph::NodeKind::input)) types[node->name] = step_.graph().type(node->outputs[0]);
  return step_.compile(types).graph();
}

void Training::run() {
  if (options_.checkpoints != nullptr) take_fingerprints();
  const auto ended = [&] {
    return position_.epoch >= options_.settings.epochs || (options_.early_stopping > 0 && position_.stale >= options_.early_stopping);
  };
  while (!ended() && interrupt_signal() == 0) {
    const auto start = std::chrono::steady_clock::now();
    train_epoch();
    if (interrupt_signal() != 0 || !finish_epoch(start)) break;
  }
  if (interrupt_signal() != 0 && step_.position().batches > 0) save();
  if (options_.early_stopping > 0 && position_.stale >= options_.early_stopping && !options_.quiet) {
    std::cerr << "stopped early: no lower loss for " << position_.stale << " epochs" << std::endl;
  }
}

Bindings Training::inputs_of(const Batch& batch) const {
  return with_content_of(source_, [&] { return batch_inputs(model_, batch[0], batch[1], options_.settings.dtype); });
}

void Training::train_epoch() {
  const std::int64_t size = data_.dataset().size(), before = learnt_.examples(), epoch = position_.epoch;
  Progress progress(concat("epoch ", epoch + 1, '/', options_.settings.epochs), model_.has_classes() ? "images" : "examples", size - before,
                    size * options_.settings.epochs, size * epoch + before, options_.quiet);
  Readings readings(model_.task, options_.device, options_.settings.ignore_index);
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
  data_.set_epoch(epoch, position_.batch);
  for (const Batch& batch : data_) {
    if (interrupt_signal() != 0) break;
    const Bindings inputs = inputs_of(batch);
    rates.push_back(step_.learning_rate());
    if (options_.record != nullptr) options_.record->step_begins();
    const Tensor& loss = with_content_of(source_, [&]() -> decltype(auto) { return step_.start(inputs); });
    if (options_.record != nullptr) options_.record->step_ends();
    readings.start(loss, &step_.gradient_norm(), step_.output(output_name), inputs.at("target"));
    if (readings.full()) take();
    progress.update(learnt_.examples() - before, "loss " + fixed(learnt_.loss(), 4));
    const bool due = !options_.interval.epochs && step_.position().batches % options_.interval.count == 0;
    if (!due || options_.checkpoints == nullptr) continue;
    while (readings.pending() > 0) take();
    save();
  }
  while (readings.pending() > 0) take();
  if (options_.record != nullptr) options_.record->pause();
}

/// Measures the epoch that was learnt, and goes over to the next; false if an interrupt came.
bool Training::finish_epoch(std::chrono::steady_clock::time_point start) {
  const Score measured = validate();
  if (interrupt_signal() != 0) return false;
  score_ = validation_ == nullptr ? learnt_ : measured;
  const std::int64_t epoch = ++position_.epoch;
  if (!std::isfinite(score_.loss())) {
    fail(ErrorKind::diverged, "the validation loss is ", score_.loss(), " after step ", step_.position().batches, " (epoch ", epoch, ')');
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
  if (options_.checkpoints == nullptr) return true;
  const bool due = options_.interval.epochs && epoch % options_.interval.count == 0;
  if (best || due || epoch == options_.settings.epochs) save();
  if (best) options_.checkpoints->mark_best();
  return true;
}

Score Training::validate() {
  Score score(model_.task);
  if (validation_ == nullptr) return score;
  if (averages_) step_.copy_averages(*averages_);
  confusion_.reset();
  ConfusionMatrix* confusion = nullptr;
  Readings readings(model_.task, options_.device, options_.settings.ignore_index);
  const auto take = [&] { with_content_of(source_, [&] { readings.take(score, confusion); }); };
  for (const Batch& batch : *validation_) {
    if (interrupt_signal() != 0) break;
    const Bindings inputs = inputs_of(batch);
    const graph::Executable& result = with_content_of(source_, [&]() -> decltype(auto) { return validation_program_.run(inputs); });
    const Tensor& output = result.output(output_name);
    const bool counts = model_.has_classes() && output.dim(1) <= ConfusionMatrix::most_classes;
    if (counts && !confusion_) confusion = &confusion_.emplace(output.dim(1), options_.settings.ignore_index);
    readings.start(result.output("loss"), nullptr, output, inputs.at("target"));
    if (readings.full()) take();
  }
  while (readings.pending() > 0) take();
  if (confusion_) score.measure(*confusion_);
  return score;
}

Metadata Training::checkpoint_data() const {
  Metadata metadata = options_.metadata;
  metadata.merge(checkpoint_metadata(model_));
  metadata["settings"] = fields_to_json(options_.settings);
  metadata["data"] = fields_to_json(options_.data);
  metadata["position"] = fields_to_json(position_);
  metadata["epoch_score"] = fields_to_json(learnt_);
  metadata["score"] = fields_to_json(score_);
  return metadata;
}

void Training::save() {
  if (options_.checkpoints == nullptr) return;
  check_parameters_finite(step_);
  options_.checkpoints->save(step_, checkpoint_data());
}

void Training::resume(const TensorFile& checkpoint) {
  const auto entry = [&](const char* key) -> const std::string& {
    const auto place = checkpoint.metadata().find(key);
    if (place == checkpoint.metadata().end()) {
      fail(ErrorKind::format, checkpoint.file(), ": the metadata have no \"", key, "\": not written by `frit train`");
    }
    return place->second;
  };
  const Model recorded = model_of(checkpoint);
  if (recorded.name != model_.name || recorded.config != model_.config) {
    fail(ErrorKind::format, checkpoint.file(), ": model: expected ", model_.name, ' ', model_.config, ", got ", recorded.name, ' ',
         recorded.config);
  }
  check_same_settings(options_.settings, entry("settings"), checkpoint.file());
  check_same_settings(options_.data, entry("data"), checkpoint.file());
  auto position = fields_from_json<RunPosition>(entry("position"), {}, checkpoint.file());
  const Score learnt = fields_from_json(entry("epoch_score"), Score(model_.task), checkpoint.file()),
              score = fields_from_json(entry("score"), Score(model_.task), checkpoint.file());
  take_fingerprints();
  check_position(position, checkpoint.file());
  const bool scored = learnt.plausible() && score.plausible() && learnt.examples() <= position.examples;
  if (!scored) fail(ErrorKind::format, checkpoint.file(), ": the scores are none of ", position.examples, " examples");
  restore_training(checkpoint, step_);
  if (position.data.empty()) position.data = position_.data;
  if (position.validation.empty()) position.validation = position_.validation;
  position_ = position;
  learnt_ = learnt;
  score_ = score;
}

void Training::take_fingerprints() {
  if (position_.data.empty()) position_.data = fingerprint(data_.dataset());
  if (position_.validation.empty() && validation_ != nullptr) position_.validation = fingerprint(validation_->dataset());
}

/// Throws ErrorKind::format for a position of a run with other data, or that no run can have.
void Training::check_position(const RunPosition& position, const std::string& file) const {
  if (position.examples != position_.examples) {
    fail(ErrorKind::format, source_, ": has ", position_.examples, " examples; the run that is to go on (", file, ") has ",
         position.examples);
  }
  const auto check_same = [&](const char* what, const std::string& present, const std::string& recorded) {
    // Checkpoints did not always have fingerprints, and who measures on nothing has none.
    if (present.empty() || recorded.empty() || present == recorded) return;
    fail(ErrorKind::format, source_, ": the examples ", what, " are not those of the run that is to go on (", file, "): their checksum is ",
         present, ", was ", printable(recorded));
  };
  check_same("to learn", position_.data, position.data);
  check_same("to measure on", position_.validation, position.validation);
  const bool possible = position.epoch >= 0 && position.batch >= 0 && position.batch <= data_.batches() && position.stale >= 0 &&
                        position.stale <= position.epoch && !std::isnan(position.best);
  if (possible) return;
  fail(ErrorKind::format, file, ": position: epoch ", position.epoch, ", batch ", position.batch, " of ", data_.batches(), ", best loss ",
       position.best, ' ', position.stale, " epochs ago");
}

/// The step before the last `later` was not finite, and nothing was updated since (see TrainOptions::guarded): runs it again, operator by
/// operator.
void Training::diverged(double loss, double norm, std::int64_t later) {
  const std::int64_t before = step_.position().batches - later - 1;
  step_.return_to(before);
  data_.set_epoch(position_.epoch, position_.batch);
  const Batch& batch = *data_.begin();
  const Bindings inputs = inputs_of(batch);
  graph::Executable& executable = step_.compile(types_of(inputs));
  const std::string folder = options_.run_directory.empty() ? "" : concat(options_.run_directory, "/not-finite-step-", before + 1);
  if (!folder.empty()) write_bundle(folder, step_, checkpoint_data(), executable, inputs);
  const std::optional<graph::NonFinite> found = graph::find_non_finite(executable, inputs);
  const std::string what =
      concat(std::isfinite(loss) ? "the norm of the gradients is " : "the loss is ", std::isfinite(loss) ? norm : loss, " at step ",
             before + 1, " (epoch ", position_.epoch + 1, "): ", found ? found->text() : "operator by operator every value is finite");
  if (!folder.empty()) write_text(folder + "/report.txt", what + '\n');
  const std::string replay = folder.empty() ? "" : concat("; `frit replay ", printable(folder), "` runs it again");
  fail(ErrorKind::diverged, what, replay, "; hint: a smaller --lr, or --clip-norm");
}

}  // namespace frit::apps
