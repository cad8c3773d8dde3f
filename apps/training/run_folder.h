#pragma once

#include <string>
#include <vector>

namespace frit::apps {

/// The files that a run writes to its folder, by the names that can be known before: what it has of them may be replaced.
std::vector<std::string> run_files(const std::string& folder);
/// Whether `path` lies among the checkpoints of the run's folder.
bool is_checkpoint_of(const std::string& folder, const std::string& path);

/// A new folder for a run that was given none: runs/<model>-<local time>, such as runs/classifier-20250131-235959, with -2, -3 and so on
/// after it where that is taken. It goes with the object if no file was written to it, so that a run which cannot begin leaves nothing.
class NewRunFolder {
 public:
  /// Makes it. Throws ErrorKind::file_system.
  explicit NewRunFolder(const std::string& model);
  ~NewRunFolder();
  NewRunFolder(const NewRunFolder&) = delete;
  NewRunFolder& operator=(const NewRunFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_parent_ = false;
};

}  // namespace frit::apps
