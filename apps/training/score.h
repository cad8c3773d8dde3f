#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "apps/training/process_group.h"
#include "frit/core/readback.h"
#include "frit/models/metrics.h"
#include "frit/models/model.h"

namespace frit::apps {

/// How many answers a batch gave, of a classifier an example, of a segmentation a position, and how many were right; and of classifiers of
/// more than five classes how often the target was among the five largest.
struct Answers {
  std::int64_t given = 0, correct = 0, with_five = 0, among_five = 0;
};
/// Targets of `ignore_index` are not asked for.
Answers count_answers(Model::Task task, const Tensor& logits, const Tensor& target, std::optional<std::int64_t> ignore_index = {});

/// The mean loss over some examples, or their positions, and, where the targets are classes, how many were right.
class Score {
 public:
  explicit Score(Model::Task task = Model::Task::regression) : task_(task) {}

  /// One batch: its mean loss, and of how many examples or positions it is the mean.
  void add(double loss, std::int64_t examples, const Answers& answers = {});
  /// Adds up what the processes counted, each on examples of its own; with `shared_loss`, as in training, the loss and the examples are of
  /// all already.
  void gather(const ProcessGroup& group, bool shared_loss);
  /// Leaves the answers of a score that all processes have to the first.
  void leave_answers_to_first(const ProcessGroup& group);
  /// Takes the means of a segmentation over its classes, once all is added.
  void measure(const ConfusionMatrix& confusion);
  double loss() const;
  double accuracy() const;                                     ///< per cent
  std::optional<double> top5() const;                          ///< per cent; of a classifier of more than five classes
  const std::optional<double>& dice() const { return dice_; }  ///< of 1, of a segmentation that was measured
  const std::optional<double>& iou() const { return iou_; }
  std::int64_t examples() const { return examples_; }
  /// "loss 0.3121  accuracy 88.70 %", and what follows the loss alone, without blanks before it.
  std::string text() const;
  std::string answers_text() const;
  void fields(FieldVisitor& v);
  /// Whether the numbers, as read from a file, are those of any examples.
  bool plausible() const;

 private:
  std::int64_t given() const { return task_ == Model::Task::segmentation ? answers_.given : examples_; }

  Model::Task task_;
  double loss_sum_ = 0;
  std::int64_t examples_ = 0;  ///< or positions: what the losses are the means of
  Answers answers_;
  std::optional<double> dice_, iou_;
};

/// What a run tells besides its score: the most bytes that it had from the allocator, besides its data, and its folder.
struct RunSummary {
  std::size_t memory;
  std::string run_directory;
};
/// On stdout, as lines or as JSON; `what` are the examples that it is of.
void print_score(const Model& model, const std::string& what, const Score& score, const RunSummary& run, bool json);

/// What the host takes note of each batch, on its way there: the loss, in training the norm of the gradients, and of a classifier the
/// outputs and targets. From a GPU it is taken while the next batch is at work, so that it never waits.
class Readings {
 public:
  /// A loss counts for the examples of so many processes, as in training, where all have the same; without a number for what it is the mean
  /// of, in a segmentation the positions of this process that are not ignored, so that the losses of batches add up to that of all
  /// examples.
  Readings(Model::Task task, Device device, std::optional<std::int64_t> ignore_index, std::optional<int> processes = {})
      : task_(task), ignore_index_(ignore_index), processes_(processes), ahead_(device == Device::cpu() ? 0u : 1u) {}

  /// `norm` may be null.
  void start(const Tensor& loss, const Tensor* norm, const Tensor& output, const Tensor& target);

  std::size_t pending() const { return started_ - taken_; }
  /// One has to be taken before the next is started.
  bool full() const { return pending() > ahead_; }

  struct Taken {
    double loss, norm;
  };
  /// Adds the oldest to the score and, if it is there, the matrix.
  Taken take(Score& score, ConfusionMatrix* confusion = nullptr);

 private:
  struct Reading {
    std::int64_t examples = 0;
    bool has_norm = false;
    Readback loss, norm, output, target;
  };

  Model::Task task_;
  std::optional<std::int64_t> ignore_index_;
  std::optional<int> processes_;
  std::size_t ahead_;
  std::array<Reading, 2> readings_;
  std::size_t started_ = 0, taken_ = 0;
};

}  // namespace frit::apps
