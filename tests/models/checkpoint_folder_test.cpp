#include "frit/models/training/checkpoint_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <functional>

#include "core/io/file_testing.h"
#include "frit/core/io/file.h"
#include "models/training_testing.h"

namespace frit {
namespace {

/// The one call of a system function that is to fail; see the functions below, which stand in for the system's in this program.
struct Fault {
  const char* function = nullptr;
  int call = 0;  ///< counted from 1; 0: none
  int error = 0;
  int calls = 0;  ///< of `function` so far
  bool reached = false;

  bool strikes(const char* called) {
    if (call == 0 || std::string_view(called) != function || ++calls != call) return false;
    reached = true;
    errno = error;
    return true;
  }
};

constexpr int short_write = -1;

Fault fault;

}  // namespace
}  // namespace frit

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t count) {
  if (frit::fault.strikes("write")) {
    if (frit::fault.error != frit::short_write) return -1;
    count = std::max<size_t>(1, count / 3);
  }
  return syscall(SYS_write, descriptor, bytes, count);
}

int fsync(int descriptor) { return frit::fault.strikes("fsync") ? -1 : static_cast<int>(syscall(SYS_fsync, descriptor)); }

int rename(const char* from, const char* to) noexcept {
  return frit::fault.strikes("rename") ? -1 : static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int close(int descriptor) {
  const int result = static_cast<int>(syscall(SYS_close, descriptor));
  return frit::fault.strikes("close") ? -1 : result;
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (frit::fault.strikes("open")) return -1;
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

}  // extern "C"

namespace frit {
namespace {

std::vector<std::string> names(const TemporaryFolder& folder) {
  std::vector<std::string> names = folder.names();
  std::sort(names.begin(), names.end());
  return names;
}

struct Training {
  TemporaryFolder folder;
  SmallTraining model;
  TrainStep step = model.step();

  std::string path(std::int64_t at) const { return folder / ("step-00000000000" + std::to_string(at) + ".safetensors"); }
  void go(CheckpointFolder& checkpoints, int steps) {
    for (int i = 0; i < steps; ++i) {
      step(SmallTraining::batch(1));
      checkpoints.save(step, {});
    }
  }
  void damage(std::int64_t at) const {
    std::string bytes = read_text(path(at), 1 << 24);
    bytes.back() = static_cast<char>(bytes.back() ^ 4);
    write_text(path(at), bytes);
  }
};

TEST(CheckpointFolder, KeepsTheNewestAndTheBest) {
  Training run;
  CheckpointFolder checkpoints(run.folder.path(), /*keep=*/2);
  run.go(checkpoints, 1);
  checkpoints.mark_best();
  const auto best = values(run.step.state());
  run.go(checkpoints, 3);
  EXPECT_EQ(names(run.folder), (std::vector<std::string>{"best.safetensors", "last.safetensors", "lock", "step-000000000003.safetensors",
                                                         "step-000000000004.safetensors"}));
  EXPECT_EQ(checkpoints.read_newest().tensors().size(), run.step.state().tensors().size());
  SmallTraining model;
  TrainStep of_best = model.step();
  restore_training(read_training(run.folder / "best.safetensors"), of_best);
  EXPECT_EQ(values(of_best.state()), best);
  checkpoints.mark_best();
  EXPECT_TRUE(same_file(run.folder / "best.safetensors", run.path(4)));
  EXPECT_TRUE(same_file(run.folder / "last.safetensors", run.path(4)));
  EXPECT_THROW(CheckpointFolder(run.folder / "other", 1), Error);
}

TEST(CheckpointFolder, IsOneTrainingsAtATime) {
  Training run;
  {
    CheckpointFolder first(run.folder.path());
    expect_error(ErrorKind::file_system, "another training is writing", [&] { CheckpointFolder second(run.folder.path()); });
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        CheckpointFolder second(run.folder.path());
      } catch (const Error&) {
        ::_exit(7);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 7);
  }
  EXPECT_NO_THROW(CheckpointFolder(run.folder.path()));
}

TEST(CheckpointFolder, ClearsAwayWhatTheDeadLeft) {
  const TemporaryFolder folder;
  write_text(folder / "step-000000000007.safetensors.tmp.99999999", "unfinished");
  write_text(folder / "notes.txt", "kept");
  const CheckpointFolder checkpoints(folder.path());
  EXPECT_EQ(names(folder), (std::vector<std::string>{"lock", "notes.txt"}));
  EXPECT_TRUE(checkpoints.entries().empty());
}

TEST(CheckpointFolder, NamesTheDamageAndTheGoodOne) {
  Training run;
  CheckpointFolder checkpoints(run.folder.path());
  run.go(checkpoints, 3);
  run.damage(3);
  expect_error(ErrorKind::format, run.path(3), [&] { checkpoints.read_newest(); });
  expect_error(ErrorKind::format, "the newest good checkpoint is " + run.path(2), [&] { checkpoints.read_newest(); });
  run.damage(2);
  std::vector<std::string> remarks;
  const TensorFile good = checkpoints.read_newest_good(remarks);
  EXPECT_EQ(good.file(), run.path(1));
  ASSERT_EQ(remarks.size(), 2u);
  EXPECT_NE(remarks[0].find("does not have its checksum"), std::string::npos) << remarks[0];
  EXPECT_EQ(names(run.folder),
            (std::vector<std::string>{"last.safetensors", "lock", "step-000000000001.safetensors", "step-000000000002.safetensors.damaged",
                                      "step-000000000003.safetensors.damaged"}));
  run.damage(1);
  expect_error(ErrorKind::format, "no good checkpoint", [&] { checkpoints.read_newest_good(remarks); });
}

TEST(CheckpointFolder, SetsLaterStepsAside) {
  Training run;
  CheckpointFolder checkpoints(run.folder.path());
  run.go(checkpoints, 3);
  EXPECT_EQ(checkpoints.set_aside_after(1), 2);
  ASSERT_EQ(checkpoints.entries().size(), 1u);
  EXPECT_EQ(checkpoints.entries()[0].step, 1);
}

TEST(CheckpointFolder, FollowsNoLink) {
  const TemporaryFolder folder, elsewhere;
  write_text(elsewhere / "precious", "content");
  SmallTraining model;
  TrainStep step = model.step();
  step(SmallTraining::batch(1));
  CheckpointFolder checkpoints(folder.path());
  const std::string target = folder / "step-000000000001.safetensors";
  for (const std::string& name : {target, target + ".tmp." + std::to_string(::getpid())}) {
    ASSERT_EQ(::symlink((elsewhere / "precious").c_str(), name.c_str()), 0);
    EXPECT_THROW(checkpoints.save(step, {}), Error) << name;
    EXPECT_EQ(read_text(elsewhere / "precious", 100), "content");
    ::unlink(name.c_str());
  }
  EXPECT_NO_THROW(checkpoints.save(step, {}));
}

/// Every call of every function that writing a checkpoint makes, with every error: the checkpoints are then as before or the new one is
/// whole, nothing unfinished is left, and the message names path and reason.
TEST(CheckpointFolder, OutlivesEveryFailureOfTheFileSystem) {
  Training run;
  CheckpointFolder checkpoints(run.folder.path(), 100);
  run.go(checkpoints, 1);
  const std::string first = read_text(run.path(1), 1 << 24);
  run.step(SmallTraining::batch(2));
  save_training(run.folder / "expected", run.step);
  const std::string second = read_text(run.folder / "expected", 1 << 24);
  ::unlink((run.folder / "expected").c_str());
  int cases = 0;
  for (const char* const function : {"open", "write", "fsync", "rename", "close"}) {
    for (const int error : {EIO, ENOSPC, EDQUOT, EINTR, short_write}) {
      if (error == short_write && std::string_view(function) != "write") continue;
      if (error == EINTR && (std::string_view(function) == "fsync" || std::string_view(function) == "rename")) continue;
      for (int call = 1;; ++call) {
        ::unlink(run.path(2).c_str());
        fault = {.function = function, .call = call, .error = error};
        std::string message;
        try {
          checkpoints.save(run.step, {});
        } catch (const Error& failure) {
          EXPECT_EQ(failure.kind(), ErrorKind::file_system);
          message = failure.what();
        }
        const bool reached = fault.reached;
        fault = {};
        const std::string what = concat(function, ' ', call, ", error ", error, ": ", message);
        EXPECT_EQ(read_text(run.path(1), 1 << 24), first) << what;
        const std::vector<std::string> there = names(run.folder);
        const bool whole = std::find(there.begin(), there.end(), "step-000000000002.safetensors") != there.end();
        EXPECT_EQ(there.size(), whole ? 4u : 3u) << what << ": something unfinished was left";
        for (const std::string& name : there) {
          EXPECT_TRUE(name == "lock" || name.ends_with(".safetensors")) << what;
        }
        EXPECT_TRUE(!whole || read_text(run.path(2), 1 << 24) == second) << what;
        EXPECT_TRUE(whole || !message.empty()) << what;
        const bool harmless = error == EINTR || error == short_write || std::string_view(function) == "close";
        EXPECT_TRUE(!reached || harmless || message.find(run.folder.path()) != std::string::npos) << what;
        EXPECT_TRUE(message.empty() || error != ENOSPC || message.find("no space left") != std::string::npos) << what;
        if (!reached) break;
        ++cases;
        ASSERT_LT(call, 1000);
      }
    }
  }
  EXPECT_GT(cases, 60);
}

}  // namespace
}  // namespace frit
