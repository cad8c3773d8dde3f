#pragma once

#include <optional>
#include <string>

#include "apps/common/options.h"
#include "apps/common/processes.h"
#include "apps/training/data_options.h"
#include "apps/training/process_group.h"
#include "apps/training/train_settings.h"
#include "apps/training/training.h"

namespace frit::apps {

inline constexpr const char* no_folder = "none";  // of --run-dir

/// What `frit train` is told.
struct TrainArguments {
  std::string model, config, data, validation, save, weights;
  DataOptions input;
  TrainSettings settings;
  std::string run_directory, resume, profile;  ///< run_directory: empty for a new one, "none" for none
  std::optional<CheckpointInterval> interval;
  std::optional<std::int64_t> keep;
  std::int64_t early_stopping = 0, prefetch = 2;
  bool quiet = false, json = false, dry_run = false, shards_optimizer = false;
  RunOptions run;
  GpuOption gpus;

  void add_to(CLI::App& command);
  static constexpr std::int64_t default_keep = 3;
  std::int64_t checkpoints_kept() const { return keep.value_or(default_keep); }
  CheckpointInterval checkpoint_interval() const { return interval.value_or(CheckpointInterval()); }
  bool resumes_in_folder() const { return resume == "auto" || resume == "latest-good"; }
  /// Throws ErrorKind::argument for a flag that needs the run's folder where there is none.
  void check_folder_flags() const;
  /// Throws ErrorKind::argument in all processes of a group that were not told alike, or whose number does not divide the batch size.
  void require_same(Device on, const ProcessGroup& group) const;
};

}  // namespace frit::apps
