#include "frit/core/io/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "frit/core/text.h"

namespace frit {

std::string reason(int error) {
  std::string text = std::generic_category().message(error);
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1]))) {
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

namespace {

template <class... Parts>
[[noreturn]] void file_error(const std::string& path, const Parts&... parts) {
  fail(ErrorKind::file_system, printable(path), ": ", parts...);
}

/// Calls a system function again while a signal interrupts it.
template <class Call>
auto retry(const Call& call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

/// One call of read or write takes no more than this on Linux.
constexpr std::size_t largest_transfer = 0x7ffff000;

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

constexpr std::string_view temporary_suffix = ".tmp.";

std::string temporary_of(const std::string& path) { return path + std::string(temporary_suffix) + std::to_string(::getpid()); }

/// Whether the file is written in place because it cannot be replaced.
bool is_written_directly(const struct ::stat& status) { return S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode); }

/// What stands at the path itself, or false for nothing.
bool look_up(const std::string& path, struct ::stat& status) {
  if (::lstat(path.c_str(), &status) == 0) return true;
  if (errno != ENOENT) file_error(path, reason(errno));
  return false;
}

void check_replaceable(const std::string& path, const struct ::stat& status) {
  if (S_ISLNK(status.st_mode)) file_error(path, "is a symbolic link, expected a file or a new name");
  if (S_ISDIR(status.st_mode)) file_error(path, "is a directory, expected a file name");
  if (!S_ISREG(status.st_mode) && !is_written_directly(status)) file_error(path, "not a regular file");
}

void check_directory(const std::string& path) {
  const std::string directory = directory_of(path);
  struct ::stat status;
  if (::stat(directory.c_str(), &status) != 0) file_error(path, "directory ", printable(directory), ": ", reason(errno));
  if (!S_ISDIR(status.st_mode)) file_error(path, printable(directory), " is not a directory");
  if (::faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    file_error(path, "cannot write to directory ", printable(directory), ": ", reason(errno));
  }
  if (::lstat(temporary_of(path).c_str(), &status) != 0 && errno != ENOENT) file_error(path, reason(errno));
}

/// Those of files for which chosen(name) holds, if the process that wrote them is gone.
void remove_temporaries(const std::string& folder, const std::function<bool(std::string_view name)>& chosen) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::size_t at = name.rfind(temporary_suffix);
    if (at == std::string::npos || !chosen(std::string_view(name).substr(0, at))) continue;
    pid_t pid = 0;
    const char* const end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + at + temporary_suffix.size(), end, pid);
    if (parsed.ec != std::errc() || parsed.ptr != end || pid <= 0) continue;
    const bool alive = ::kill(pid, 0) == 0 || errno == EPERM;
    // Our own number is that of an earlier process too: containers start from the same number every time.
    if (!alive || pid == ::getpid()) ::unlink(entry->path().c_str());
  }
}

/// A rename is on the disk once the directory is.
void sync_directory(const std::string& path) {
  const std::string directory = directory_of(path);
  const int descriptor = retry([&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  int error = descriptor < 0 ? errno : 0;
  if (descriptor >= 0) {
    if (::fsync(descriptor) != 0) error = errno;
    ::close(descriptor);
  }
  // EINVAL: a file system that has no such call for directories.
  if (error != 0 && error != EINVAL) file_error(path, "written, but its directory could not be brought to the disk: ", reason(error));
}

}  // namespace

FileInput::FileInput(const std::string& path, std::string_view expected) : Input(printable(path), 0) {
  // O_NONBLOCK: the open of a FIFO returns at once.
  descriptor_ = retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); });
  const int error = errno;
  if (descriptor_ < 0) file_error(path, error == ENXIO ? "not a regular file" : reason(error));  // ENXIO: a socket
  struct ::stat status;
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  ::close(descriptor_);
  if (!known) file_error(path, reason(errno));
  if (S_ISDIR(status.st_mode)) file_error(path, "is a directory, expected ", expected);
  file_error(path, "not a regular file, expected ", expected);
}

FileInput::~FileInput() { ::close(descriptor_); }

void FileInput::read(std::uint64_t offset, std::span<std::byte> into) const {
  const Piece piece{offset, into};
  read(std::span(&piece, 1));
}

void FileInput::read(std::span<const Piece> pieces) const {
  bool complete = true;
  for (const Piece& piece : pieces) {
    std::uint64_t offset = piece.offset;
    std::span<std::byte> into = piece.into;
    while (!into.empty()) {
      const std::size_t wanted = std::min(into.size(), largest_transfer);
      const ssize_t count = retry([&] { return ::pread(descriptor_, into.data(), wanted, static_cast<off_t>(offset)); });
      if (count < 0) fail(ErrorKind::file_system, name_, ": ", reason(errno));
      if (count == 0) break;
      into = into.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    }
    complete = complete && into.empty();
  }
  struct ::stat status;
  if (::fstat(descriptor_, &status) != 0) fail(ErrorKind::file_system, name_, ": ", reason(errno));
  if (!complete || static_cast<std::uint64_t>(status.st_size) != size_) {
    fail(ErrorKind::file_system, name_, ": changed while it was read: had ", size_, " bytes, has ", status.st_size);
  }
}

MemoryInput::MemoryInput(std::span<const std::byte> bytes, std::string_view name) : Input(printable(name), bytes.size()), bytes_(bytes) {}

void MemoryInput::read(std::uint64_t offset, std::span<std::byte> into) const {
  FRIT_CHECK(offset <= size_ && into.size() <= size_ - offset);
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
}

AtomicFile::AtomicFile(const std::string& path, std::uint64_t total) : path_(path), open_path_(temporary_of(path)), total_(total) {
  check_writable(path);
  struct ::stat status;
  const bool exists = look_up(path, status);
  int flags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY;
  if (exists && is_written_directly(status)) {
    open_path_ = path;
    flags |= O_NONBLOCK;  // the open of a FIFO that nobody reads fails at once
  } else {
    flags |= O_CREAT | O_EXCL;
  }
  descriptor_ = retry([&] { return ::open(open_path_.c_str(), flags, 0666); });
  if (descriptor_ < 0) file_error(open_path_, reason(errno));
  if (open_path_ == path_)
    ::fcntl(descriptor_, F_SETFL, O_WRONLY);
  else if (exists)
    ::fchmod(descriptor_, status.st_mode & 0777);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!open_path_.empty() && open_path_ != path_) ::unlink(open_path_.c_str());
}

void AtomicFile::failed(int error) {
  const std::string of_total = total_ == 0 ? "" : concat(" of ", total_);
  file_error(path_, reason(error), ", wrote ", written_, of_total, " bytes");
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), largest_transfer);
    const ssize_t count = retry([&] { return ::write(descriptor_, bytes.data(), wanted); });
    if (count <= 0) failed(count < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    written_ += static_cast<std::uint64_t>(count);
  }
}

void AtomicFile::commit() {
  const bool direct = open_path_ == path_;
  // After a failed fsync the kernel may have dropped the data: a second try would prove nothing. A device has no disk (EINVAL).
  if (::fsync(descriptor_) != 0 && !(direct && (errno == EINVAL || errno == EROFS))) failed(errno);
  // EINTR: Linux has closed it all the same, and the data is on the disk.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) failed(errno);
  if (direct) return;
  if (::rename(open_path_.c_str(), path_.c_str()) != 0) failed(errno);
  open_path_.clear();
  sync_directory(path_);
}

std::string read_text(const std::string& path, std::uint64_t limit) {
  const FileInput file(path, "a text file");
  if (file.size() > limit) file.bad("has ", file.size(), " bytes, limit ", limit);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(const std::string& path, std::string_view text) {
  AtomicFile file(path, text.size());
  file.write(text);
  file.commit();
}

void check_writable(const std::string& path) {
  if (path.empty()) fail(ErrorKind::file_system, "the name of the output file is empty");
  struct ::stat status;
  if (look_up(path, status)) {
    check_replaceable(path, status);
    if (is_written_directly(status)) {
      if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) file_error(path, reason(errno));
      return;
    }
  }
  check_directory(path);
}

bool same_file(const std::string& a, const std::string& b) {
  struct ::stat first, second;
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

void remove_stale_temporaries(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  remove_temporaries(directory_of(path), [&](std::string_view of) { return of == name; });
}

void remove_stale_temporaries_in(const std::string& folder) {
  remove_temporaries(folder, [](std::string_view) { return true; });
}

}  // namespace frit
