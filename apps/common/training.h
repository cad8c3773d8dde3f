#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "frit/autograd/train_step.h"
#include "frit/core/data/dataset.h"
#include "frit/core/data/loader.h"
#include "frit/models/model.h"

namespace frit::apps {

/// The mean loss over some examples and, for a classifier, how many were right.
class Score {
 public:
  explicit Score(Model::Task task) : task_(task) {}

  /// One batch: its mean loss, its examples, and how many of them were right.
  void add(double loss, std::int64_t examples, std::int64_t correct);
  double loss() const;
  double accuracy() const;  ///< per cent
  std::int64_t examples() const { return examples_; }
  /// "loss 0.3121  accuracy 88.70 %".
  std::string text() const;

 private:
  Model::Task task_;
  double loss_sum_ = 0;
  std::int64_t correct_ = 0;
  std::int64_t examples_ = 0;
};

struct TrainingOptions {
  Optimizer optimizer;
  TrainOptions step;
  Device device;
  DType dtype = DType::f32;
  std::int64_t epochs = 1;
  std::int64_t batch_size = 1;
  bool quiet = false;
};

/// A model that learns a dataset, epoch by epoch, and is measured after each on another.
class Training {
 public:
  /// `validation` may be null. Throws ErrorKind::format, naming `source`, for data that do not fit the model.
  Training(const Model& model, std::shared_ptr<const Dataset> data, std::shared_ptr<const Dataset> validation, const std::string& source,
           const TrainingOptions& options);

  /// All epochs, or until an interrupt is requested (see InterruptRequests). Throws ErrorKind::diverged, naming the step, when the loss is
  /// not finite.
  void run();

  const TrainStep& step() const { return step_; }
  /// Of the last whole epoch: on the validation set, or without one on the examples as they were learnt.
  const Score& score() const { return score_; }
  std::int64_t parameter_count() const;

 private:
  Score train_epoch(std::int64_t epoch);
  Score validate();
  Bindings bindings(const Batch& batch) const;
  [[noreturn]] static void diverged(const char* what, double loss, std::int64_t step, std::int64_t epoch);

  Model::Task task_;
  std::string source_;
  TrainingOptions options_;
  TrainStep step_;
  Program validation_program_;
  DataLoader data_;
  std::unique_ptr<DataLoader> validation_;
  Score score_;
};

}  // namespace frit::apps
