#include "apps/training/run_folder.h"

#include <array>
#include <ctime>
#include <filesystem>

#include "frit/core/error.h"
#include "frit/core/io/folder.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* parent = "runs";

std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &parts)};
}

/// Makes a folder whose parent is there; false if something of the name was there already.
bool make_folder(const std::string& path) {
  std::error_code error;
  const bool made = fs::create_directory(path, error);
  if (error && error != std::errc::file_exists) {
    fail(ErrorKind::file_system, printable(path), ": cannot be made: ", error.message(),
         "; hint: --run-dir DIR writes the run's folder elsewhere, --run-dir none writes none");
  }
  return made;
}

/// Whether the folder holds what a run would miss; its lock is none of that.
bool holds_files(const std::string& folder) {
  std::error_code error;
  fs::recursive_directory_iterator file(folder, error);
  for (; !error && file != fs::recursive_directory_iterator(); file.increment(error)) {
    if (!file->is_directory(error) && file->path().filename() != "lock") return true;
  }
  return static_cast<bool>(error);
}

}  // namespace

std::vector<std::string> run_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const char* const name :
       {"/report.html", "/steps.csv", "/epochs.csv", "/checkpoints/last.safetensors", "/checkpoints/best.safetensors"})
    files.push_back(folder + name);
  const std::string checkpoints = folder + "/checkpoints";
  if (!is_folder(checkpoints)) return files;
  for (const std::string& name : names_in(checkpoints, [](const std::string&) { return true; })) {
    if (name.starts_with("step-")) files.push_back(checkpoints + '/' + name);
  }
  return files;
}

bool is_checkpoint_of(const std::string& folder, const std::string& path) {
  const fs::path file(path);
  std::error_code error;
  return fs::equivalent(file.has_parent_path() ? file.parent_path() : ".", folder + "/checkpoints", error);
}

NewRunFolder::NewRunFolder(const std::string& model) : made_parent_(make_folder(parent)) {
  const std::string first = concat(parent, '/', model, '-', local_time());
  path_ = first;
  for (int number = 2; !make_folder(path_); ++number) path_ = concat(first, '-', number);
}

NewRunFolder::~NewRunFolder() {
  if (holds_files(path_)) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (made_parent_) fs::remove(parent, ignored);  // unless another run has its folder there
}

}  // namespace frit::apps
