#pragma once

#include <string>
#include <vector>

#include "frit/models/training/checkpoint.h"

namespace frit {

/// The folder that one training writes its checkpoints to: step-000000001200.safetensors and so on, of which the newest few are kept,
/// last.safetensors, which is the newest, and best.safetensors. A lock keeps other processes out for as long as the object lives.
class CheckpointFolder {
 public:
  struct Entry {
    std::int64_t step;
    std::string path;
  };

  /// Makes the folder if it is missing, and removes what processes that died left unfinished. Throws ErrorKind::file_system, also if
  /// another training writes there; ErrorKind::argument for a `keep` below 2: the newest could be damaged.
  explicit CheckpointFolder(const std::string& path, std::int64_t keep = 3);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const std::string& path() const { return path_; }
  /// The checkpoints by step, the newest last; without last and best.
  std::vector<Entry> entries() const;

  /// Writes a checkpoint of the step (see save_training) and then removes those that are no longer to be kept.
  void save(const TrainStep& step, const Metadata& metadata);
  /// Makes the checkpoint that was saved last best.safetensors.
  void mark_best() const { call_newest("best"); }

  /// The newest checkpoint, read and checked. Throws ErrorKind::format if it is damaged, naming the newest good one.
  TensorFile read_newest() const;
  /// Passes damaged ones over, which are renamed to NAME.damaged; `remarks` says which and why. Throws ErrorKind::format if none is good.
  TensorFile read_newest_good(std::vector<std::string>& remarks) const;
  /// For a training that goes on from an earlier step: checkpoints of later ones are renamed to NAME.aside. Returns how many.
  std::int64_t set_aside_after(std::int64_t step) const;

 private:
  std::string path_of(std::int64_t step) const;
  void call_newest(const char* name) const;

  std::string path_;
  std::int64_t keep_;
  int lock_;
  std::string newest_;  ///< that was saved
};

}  // namespace frit
