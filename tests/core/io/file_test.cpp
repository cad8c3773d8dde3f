#include "frit/core/io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "core/io/file_testing.h"

namespace frit {
namespace {

void expect_file_error(const std::string& fragment, const std::function<void()>& action) {
  expect_error(ErrorKind::file_system, fragment, action);
}

void put(const std::string& path, std::string_view text) { write_text(path, text); }
std::string get(const std::string& path) { return read_text(path, 1 << 20); }

/// Runs `action` in a process of its own; its result is the process's exit code.
template <class Action>
int in_child(const Action& action) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(action());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(FileInput, SaysWhyAFileCannotBeRead) {
  const TemporaryFolder folder;
  const auto open = [](const std::string& path) { FileInput(path, "a .safetensors file"); };
  expect_file_error("missing: no such file", [&] { open(folder / "missing"); });
  expect_file_error("is a directory, expected a .safetensors file", [&] { open(folder.path()); });
  expect_file_error("not a regular file", [&] { open("/dev/zero"); });
  expect_file_error("file name too long", [&] { open(folder / std::string(5000, 'x')); });
  put(folder / "file", "text");
  expect_file_error("not a directory", [&] { open(folder / "file/below"); });
}

TEST(FileInput, RefusesAPipeOrSocketWithoutWaiting) {
  const TemporaryFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_file_error("not a regular file", [&] { FileInput(fifo, "a file"); });

  const std::string path = folder / "socket";
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  expect_file_error("not a regular file", [&] { FileInput(path, "a file"); });
  ::close(descriptor);
}

TEST(FileInput, NeedsPermission) {
  const TemporaryFolder folder;
  const std::string path = folder / "secret";
  put(path, "text");
  ::chmod(path.c_str(), 0);
  ::chmod(folder.path().c_str(), 0755);
  const int code = in_child([&] {
    if (::getuid() == 0 && ::setuid(65534) != 0) return 2;
    try {
      FileInput(path, "a file");
    } catch (const Error& error) {
      return error.kind() == ErrorKind::file_system && std::string(error.what()) == path + ": permission denied" ? 0 : 3;
    }
    return 4;
  });
  EXPECT_EQ(code, 0);
}

TEST(FileInput, NoticesAFileThatIsCutShortMeanwhile) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  put(path, "0123456789");
  const FileInput input(path, "a file");
  ASSERT_EQ(::truncate(path.c_str(), 4), 0);
  std::array<std::byte, 10> bytes;
  expect_file_error("changed while it was read: had 10 bytes, has 4", [&] { input.read(0, bytes); });
  expect_file_error("changed while it was read", [&] { input.read(0, std::span(bytes).first(2)); });
}

TEST(FileInput, PrintsNamesOnOneLine) {
  const TemporaryFolder folder;
  expect_file_error("a\\x0ab\\x1b[2J: no such file", [&] { FileInput(folder / "a\nb\x1b[2J", "a file"); });
  put(folder / "with space \xff", "text");
  EXPECT_EQ(get(folder / "with space \xff"), "text");
}

TEST(ReadText, HasALimit) {
  const TemporaryFolder folder;
  put(folder / "file", "12345");
  EXPECT_EQ(read_text(folder / "file", 5), "12345");
  expect_error(ErrorKind::format, "has 5 bytes, limit 4", [&] { read_text(folder / "file", 4); });
}

TEST(AtomicFile, ReplacesInOneStep) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  put(path, "old");
  ::chmod(path.c_str(), 0640);
  {
    AtomicFile file(path);
    file.write("new ");
    file.write("content");
    EXPECT_EQ(get(path), "old");
    file.commit();
  }
  EXPECT_EQ(get(path), "new content");
  struct ::stat status;
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
  EXPECT_EQ(folder.names().size(), 1u);
}

TEST(AtomicFile, LeavesTheOldContentIfItIsNotCommitted) {
  const TemporaryFolder folder;
  put(folder / "file", "old");
  {
    AtomicFile file(folder / "file");
    file.write("half");
    EXPECT_EQ(folder.names().size(), 2u);
  }
  EXPECT_EQ(get(folder / "file"), "old");
  EXPECT_EQ(folder.names().size(), 1u);
  { AtomicFile file(folder / "fresh"); }
  EXPECT_EQ(folder.names().size(), 1u);
}

TEST(AtomicFile, LeavesTheOldContentIfTheDiskIsFull) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  put(path, "old");
  const int code = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      AtomicFile file(path, 10000);
      file.write(std::string(10000, 'x'));
    } catch (const Error& error) {
      const bool right = std::string(error.what()) == path + ": file too large, wrote 4096 of 10000 bytes";
      return error.kind() == ErrorKind::file_system && right ? 0 : 3;
    }
    return 4;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(get(path), "old");
  EXPECT_EQ(folder.names().size(), 1u);
}

TEST(AtomicFile, WritesDevicesDirectly) {
  expect_file_error("/dev/full: no space left on device, wrote 0 of 4 bytes", [] { write_text("/dev/full", "text"); });
  write_text("/dev/null", "text");
  struct ::stat status;
  ASSERT_EQ(::stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
}

TEST(AtomicFile, WritesAPipeThatIsRead) {
  const TemporaryFolder folder;
  const std::string path = folder / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_file_error("no such device or address", [&] { put(path, "nobody reads"); });
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  put(path, "text");
  char buffer[8];
  EXPECT_EQ(::read(reader, buffer, sizeof buffer), 4);
  ::close(reader);
}

TEST(AtomicFile, NeverFollowsOrReusesATemporaryFile) {
  const TemporaryFolder folder;
  put(folder / "elsewhere", "precious");
  const std::string temporary = folder / ("file.tmp." + std::to_string(::getpid()));
  std::filesystem::create_symlink(folder / "elsewhere", temporary);
  expect_file_error("file exists", [&] { put(folder / "file", "text"); });
  EXPECT_EQ(get(folder / "elsewhere"), "precious");
  EXPECT_TRUE(std::filesystem::is_symlink(temporary));
  EXPECT_FALSE(std::filesystem::exists(folder / "file"));
}

TEST(CheckWritable, RefusesWhatCannotBeReplaced) {
  const TemporaryFolder folder;
  put(folder / "file", "text");
  std::filesystem::create_symlink(folder / "file", folder / "link");
  expect_file_error("is a directory, expected a file name", [&] { check_writable(folder.path()); });
  expect_file_error("is a directory, expected a file name", [&] { check_writable(folder.path() + "/"); });
  expect_file_error("no such file or directory", [&] { check_writable(folder / "missing/file"); });
  expect_file_error("not a directory", [&] { check_writable(folder / "file/below"); });
  expect_file_error("is a symbolic link", [&] { check_writable(folder / "link"); });
  expect_file_error("file name too long", [&] { check_writable(folder / std::string(250, 'x')); });
  expect_file_error("is empty", [] { check_writable(""); });
  check_writable(folder / "file");
  check_writable(folder / "new");
  check_writable("relative_name");
  EXPECT_EQ(folder.names().size(), 2u) << "the check leaves nothing behind";
}

TEST(CheckWritable, NeedsPermissionForTheDirectory) {
  const TemporaryFolder folder;
  ::chmod(folder.path().c_str(), 0555);
  const int code = in_child([&] {
    if (::getuid() == 0 && ::setuid(65534) != 0) return 2;
    try {
      check_writable(folder / "file");
    } catch (const Error& error) {
      return std::string(error.what()).find("cannot write to directory " + folder.path() + ": permission denied") != std::string::npos ? 0
                                                                                                                                       : 3;
    }
    return 4;
  });
  EXPECT_EQ(code, 0);
}

TEST(SameFile, SeesThroughLinks) {
  const TemporaryFolder folder;
  put(folder / "file", "text");
  put(folder / "other", "text");
  std::filesystem::create_symlink(folder / "file", folder / "symbolic");
  std::filesystem::create_hard_link(folder / "file", folder / "hard");
  EXPECT_TRUE(same_file(folder / "file", folder / "./file"));
  EXPECT_TRUE(same_file(folder / "file", folder / "symbolic"));
  EXPECT_TRUE(same_file(folder / "hard", folder / "file"));
  EXPECT_FALSE(same_file(folder / "file", folder / "other"));
  EXPECT_FALSE(same_file(folder / "missing", folder / "missing"));
}

TEST(RemoveStaleTemporaries, RemovesThoseOfProcessesThatAreGone) {
  const TemporaryFolder folder;
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  const std::string kept[] = {"file.tmp.1", "file.tmp.x", "file.tmp.", "other.tmp." + std::to_string(gone), "file"};
  for (const std::string& name : kept) put(folder / name, "text");
  put(folder / ("file.tmp." + std::to_string(gone)), "text");
  remove_stale_temporaries(folder / "file");
  EXPECT_EQ(folder.names().size(), std::size(kept));
  EXPECT_FALSE(std::filesystem::exists(folder / ("file.tmp." + std::to_string(gone))));
}

}  // namespace
}  // namespace frit
