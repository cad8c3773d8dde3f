#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "apps/report/run_record.h"
#include "apps/training/data_options.h"
#include "apps/training/process_group.h"
#include "apps/training/score.h"
#include "apps/training/train_settings.h"
#include "frit/autograd/train_step.h"
#include "frit/core/data/dataset.h"
#include "frit/core/data/loader.h"
#include "frit/models/model.h"
#include "frit/models/training/checkpoint_folder.h"

namespace frit::apps {

/// When to write a checkpoint: every so many batches or epochs.
struct CheckpointInterval {
  std::int64_t count = 1;
  bool epochs = true;
};

struct TrainingOptions {
  TrainSettings settings;
  DataOptions data = {};                                           ///< how the examples were read: a run that goes on must have the same
  std::string data_fingerprint = {}, validation_fingerprint = {};  ///< where they are known already
  Device device;
  ProcessGroup group = ProcessGroup();  ///< whose first process alone has checkpoints and a record
  bool shards_optimizer = false;        ///< see TrainOptions
  std::int64_t prefetch = 2;
  std::int64_t early_stopping = 0;          ///< epochs without a lower loss that end the run; 0: none do
  bool saves = false;                       ///< whether there are checkpoints
  CheckpointFolder* checkpoints = nullptr;  ///< of the caller
  CheckpointInterval interval = {};
  Metadata metadata = {};          ///< of every checkpoint
  std::string run_directory = {};  ///< where a step that was not finite is left to be replayed; empty: nowhere
  RunRecord* record = nullptr;     ///< of the caller, to be told of every step; may be null
  bool quiet = false;
};

/// How far a run is, besides its step.
struct RunPosition {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  ///< batches of the epoch that are done
  double best = std::numeric_limits<double>::infinity();
  std::int64_t stale = 0;     ///< epochs since the best
  std::int64_t examples = 0;  ///< of the training data
  /// Fingerprints of what is learnt and of what is measured on; empty if there is none, or where it is not known.
  std::string data = {}, validation = {};

  void fields(FieldVisitor& v);
};

/// Throws ErrorKind::diverged, naming it, if a variable of the model is not finite: an update can be too large for its number format.
void check_parameters_finite(const TrainStep& step);

/// The examples of a validation set that a process measures on: each has a share of them, of which some may have one more.
std::shared_ptr<const Dataset> share_of(std::shared_ptr<const Dataset> data, const ProcessGroup& group);

/// A model that learns a dataset, epoch by epoch, and is measured after each on another; by several processes as by one, with every batch
/// shared out among them.
class Training {
 public:
  /// `validation` may be null. Throws ErrorKind::format, naming `source`, for data that do not fit the model.
  Training(const Model& model, std::shared_ptr<const Dataset> data, std::shared_ptr<const Dataset> validation, const std::string& source,
           const TrainingOptions& options);

  /// Goes on where the checkpoint was written. Throws ErrorKind::format if it is not of such a run, ErrorKind::argument for a flag that
  /// differs.
  void resume(const TensorFile& checkpoint);
  /// Makes all processes go on with the first one's variables; to be called before `run`.
  void share();
  /// All epochs that are left, or until an interrupt is requested (see InterruptRequests), which writes a checkpoint. Throws
  /// ErrorKind::diverged, naming the step and the operator, when the loss or the gradients are not finite.
  void run();

  /// Whether an interrupt has ended the run.
  bool interrupted() { return interrupt_.signal(/*final=*/true) != 0; }

  const TrainStep& step() const { return step_; }
  const RunPosition& position() const { return position_; }
  /// The step that whole batches run.
  const Graph& compiled_graph();
  /// Of the last whole epoch: on the validation set, or without one on the examples as they were learnt.
  const Score& score() const { return score_; }
  /// Of the last validation in this process, where the targets are classes, not too many.
  const std::optional<ConfusionMatrix>& confusion() const { return confusion_; }
  std::int64_t parameter_count() const;

 private:
  Bindings inputs_of(const Batch& batch) const;
  void train_epoch();
  bool finish_epoch(std::chrono::steady_clock::time_point start);
  Score validate();
  void measure(const Batch& batch, Readings& readings);
  void save();
  void take_fingerprints();
  void check_position(const RunPosition& position, const std::string& file) const;
  Metadata checkpoint_data(const Score& learnt) const;
  TrainStep step_alone() const;
  [[noreturn]] void diverged(double loss, double norm, std::int64_t later);

  Model model_;
  std::string source_;
  TrainingOptions options_;
  TrainStep step_;
  std::shared_ptr<State> averages_;  ///< of the parameters, where they are what is measured
  Program validation_program_;
  DataLoader data_;
  std::shared_ptr<const Dataset> validation_data_;  ///< of all processes
  std::unique_ptr<DataLoader> validation_;          ///< of this one's share
  SharedInterrupt interrupt_;
  RunPosition position_;
  Score learnt_;  // in the epoch that runs
  Score score_;
  std::optional<ConfusionMatrix> confusion_;
};

}  // namespace frit::apps
