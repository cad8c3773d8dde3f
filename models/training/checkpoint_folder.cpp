#include "frit/models/training/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "frit/core/io/file.h"
#include "frit/core/text.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view name_prefix = "step-", name_suffix = ".safetensors";
constexpr int digits = 12;

/// The step in a checkpoint's name, or -1.
std::int64_t step_of(std::string_view name) {
  if (!name.starts_with(name_prefix) || !name.ends_with(name_suffix)) return -1;
  name.remove_prefix(name_prefix.size());
  name.remove_suffix(name_suffix.size());
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() && name.size() >= digits ? step : -1;
}

template <class... Parts>
[[noreturn]] void folder_error(const std::string& path, const Parts&... parts) {
  fail(ErrorKind::file_system, printable(path), ": ", parts...);
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) folder_error(path, "cannot be made: ", error.message());
  if (!fs::is_directory(path, error)) folder_error(path, "is not a directory");
}

/// The descriptor that holds the lock; the system lets it go when the process ends, however that comes.
int take_lock(const std::string& folder) {
  const std::string path = folder + "/lock";
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor < 0) folder_error(path, reason(errno));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  const int error = errno;
  ::close(descriptor);
  folder_error(folder, error == EWOULDBLOCK ? "another training is writing its checkpoints there" : reason(error));
}

void rename_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) folder_error(from, "cannot be renamed: ", reason(errno));
}

}  // namespace

CheckpointFolder::CheckpointFolder(const std::string& path, std::int64_t keep) : path_(path), keep_(keep) {
  require(keep >= 2, "checkpoints: keep is ", keep, ", expected 2 or more");
  make_folder(path);
  check_writable(path_of(0));
  lock_ = take_lock(path);
  remove_stale_temporaries_in(path);
}

CheckpointFolder::~CheckpointFolder() { ::close(lock_); }

std::string CheckpointFolder::path_of(std::int64_t step) const {
  const std::string number = std::to_string(step);
  const std::string zeros(static_cast<std::size_t>(std::max<std::int64_t>(0, digits - std::ssize(number))), '0');
  return path_ + '/' + std::string(name_prefix) + zeros + number + std::string(name_suffix);
}

std::vector<CheckpointFolder::Entry> CheckpointFolder::entries() const {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator file(path_, error); !error && file != fs::directory_iterator(); file.increment(error)) {
    const std::int64_t step = step_of(file->path().filename().string());
    if (step >= 0) entries.push_back({step, file->path().string()});
  }
  if (error) folder_error(path_, error.message());
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.step < b.step; });
  return entries;
}

void CheckpointFolder::save(const TrainStep& step, const Metadata& metadata) {
  newest_ = path_of(step.position().batches);
  save_training(newest_, step, metadata);
  call_newest("last");
  const std::vector<Entry> all = entries();
  for (std::int64_t i = 0; i < std::ssize(all) - keep_; ++i) ::unlink(all[static_cast<std::size_t>(i)].path.c_str());
}

/// A second name costs no space and lives on when the first is removed.
void CheckpointFolder::call_newest(const char* name) const {
  FRIT_CHECK(!newest_.empty());
  const std::string path = path_ + '/' + name + std::string(name_suffix), temporary = path + ".tmp." + std::to_string(::getpid());
  ::unlink(temporary.c_str());
  std::error_code error;
  if (::link(newest_.c_str(), temporary.c_str()) != 0) fs::copy_file(newest_, temporary, error);
  if (error) folder_error(path, error.message());
  if (::rename(temporary.c_str(), path.c_str()) == 0) {
    // Nothing happens, and both stay, where they are names of one file already.
    ::unlink(temporary.c_str());
    return;
  }
  const int problem = errno;
  ::unlink(temporary.c_str());
  folder_error(path, reason(problem));
}

TensorFile CheckpointFolder::read_newest() const {
  const std::vector<Entry> all = entries();
  if (all.empty()) folder_error(path_, "has no checkpoint");
  try {
    return read_training(all.back().path);
  } catch (const Error& damage) {
    if (damage.kind() != ErrorKind::format) throw;
    for (auto older = all.rbegin() + 1; older != all.rend(); ++older) {
      try {
        read_training(older->path);
      } catch (const Error&) {
        continue;
      }
      fail(ErrorKind::format, damage.what(), "; the newest good checkpoint is ", printable(older->path));
    }
    fail(ErrorKind::format, damage.what(), "; there is no older good checkpoint");
  }
}

TensorFile CheckpointFolder::read_newest_good(std::vector<std::string>& remarks) const {
  std::vector<Entry> all = entries();
  for (; !all.empty(); all.pop_back()) {
    try {
      return read_training(all.back().path);
    } catch (const Error& damage) {
      if (damage.kind() != ErrorKind::format) throw;
      remarks.emplace_back(damage.what());
      rename_file(all.back().path, all.back().path + ".damaged");
    }
  }
  fail(ErrorKind::format, printable(path_), ": there is no good checkpoint");
}

std::int64_t CheckpointFolder::set_aside_after(std::int64_t step) const {
  std::int64_t count = 0;
  for (const Entry& entry : entries()) {
    if (entry.step <= step) continue;
    rename_file(entry.path, entry.path + ".aside");
    ++count;
  }
  return count;
}

}  // namespace frit
