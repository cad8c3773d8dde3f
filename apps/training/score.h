#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "frit/core/readback.h"
#include "frit/models/model.h"

namespace frit::apps {

/// The mean loss over some examples and, for a classifier, how many were right.
class Score {
 public:
  explicit Score(Model::Task task = Model::Task::regression) : task_(task) {}

  /// One batch: its mean loss, its examples, and how many of them were right.
  void add(double loss, std::int64_t examples, std::int64_t correct);
  double loss() const;
  double accuracy() const;  ///< per cent
  std::int64_t examples() const { return examples_; }
  /// "loss 0.3121  accuracy 88.70 %".
  std::string text() const;
  void fields(FieldVisitor& v);
  /// Whether the numbers, as read from a file, are those of any examples.
  bool plausible() const { return std::isfinite(loss_sum_) && correct_ >= 0 && correct_ <= examples_; }

 private:
  Model::Task task_;
  double loss_sum_ = 0;
  std::int64_t correct_ = 0;
  std::int64_t examples_ = 0;
};

/// What the host takes note of each batch, on its way there: the loss, in training the norm of the gradients, and of a classifier the
/// outputs and targets. From a GPU it is taken while the next batch is at work, so that it never waits.
class Readings {
 public:
  Readings(Model::Task task, Device device) : classifies_(task == Model::Task::classification), ahead_(device == Device::cpu() ? 0u : 1u) {}

  /// `norm` may be null.
  void start(const Tensor& loss, const Tensor* norm, const Tensor& output, const Tensor& target);

  std::size_t pending() const { return started_ - taken_; }
  /// One has to be taken before the next is started.
  bool full() const { return pending() > ahead_; }

  struct Taken {
    double loss, norm;
  };
  /// Adds the oldest to the score.
  Taken take(Score& score);

 private:
  struct Reading {
    std::int64_t examples = 0;
    bool has_norm = false;
    Readback loss, norm, output, target;
  };

  bool classifies_;
  std::size_t ahead_;
  std::array<Reading, 2> readings_;
  std::size_t started_ = 0, taken_ = 0;
};

}  // namespace frit::apps
