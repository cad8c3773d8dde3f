#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "frit/core/error.h"

namespace frit {

/// "permission denied": the system's words for an errno, to stand within a sentence.
std::string reason(int error);

/// Bytes that a format is read from.
class Input {
 public:
  virtual ~Input() = default;

  const std::string& name() const { return name_; }  ///< fit to print
  std::uint64_t size() const { return size_; }
  /// Fills `into` with the bytes from `offset` on. Throws ErrorKind::file_system if they cannot be had.
  virtual void read(std::uint64_t offset, std::span<std::byte> into) const = 0;
  struct Piece {
    std::uint64_t offset;
    std::span<std::byte> into;
  };
  /// Likewise for several places, at less cost than one by one.
  virtual void read(std::span<const Piece> pieces) const {
    for (const Piece& piece : pieces) read(piece.offset, piece.into);
  }

  /// Throws ErrorKind::format with the input's name before the message.
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(ErrorKind::format, name_, ": ", parts...);
  }

 protected:
  Input(std::string name, std::uint64_t size) : name_(std::move(name)), size_(size) {}
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  std::string name_;
  std::uint64_t size_;
};

/// A regular file, open for reading. It is read, never mapped, so that another process that cuts it short causes an error and no signal.
class FileInput final : public Input {
 public:
  /// Throws ErrorKind::file_system unless `path` is a regular file that can be read. `expected` stands in the message: "a .npy file".
  FileInput(const std::string& path, std::string_view expected);
  ~FileInput() override;
  void read(std::uint64_t offset, std::span<std::byte> into) const override;
  void read(std::span<const Piece> pieces) const override;

 private:
  int descriptor_;
};

/// Bytes of the caller's, who keeps them.
class MemoryInput final : public Input {
 public:
  MemoryInput(std::span<const std::byte> bytes, std::string_view name);
  using Input::read;
  void read(std::uint64_t offset, std::span<std::byte> into) const override;

 private:
  std::span<const std::byte> bytes_;
};

/// A file that is written aside and takes the place of `path` in one step: until commit() returns, `path` keeps what it held, and on any
/// failure the temporary file, <path>.tmp.<pid>, is removed. A character device or pipe is written directly. All errors are
/// ErrorKind::file_system, with the path, the reason, and how much of the `total` bytes, where that is known, had been written.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path, std::uint64_t total = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Brings the file to the disk, and then to its name.
  void commit();

 private:
  [[noreturn]] void failed(int error);

  std::string path_;
  std::string open_path_;  ///< the temporary file; `path_` itself for a device
  std::uint64_t total_;
  std::uint64_t written_ = 0;
  int descriptor_ = -1;
};

/// The whole of a regular file. Throws ErrorKind::format if it is larger than `limit`.
std::string read_text(const std::string& path, std::uint64_t limit);

/// AtomicFile in one call.
void write_text(const std::string& path, std::string_view text);

/// Throws ErrorKind::file_system if an AtomicFile cannot be made at `path`: its directory is missing or not writable, or something stands
/// there that must not be replaced (a directory, a symbolic link). For a program to call before it computes for an hour.
void check_writable(const std::string& path);

/// Whether both paths lead to one existing file, by a symbolic or hard link too.
bool same_file(const std::string& a, const std::string& b);

/// Removes the temporary files that processes which are gone left next to `path`.
void remove_stale_temporaries(const std::string& path);
/// Likewise all of a folder.
void remove_stale_temporaries_in(const std::string& folder);

}  // namespace frit
