#pragma once

#include <atomic>

#include "frit/core/io/npy.h"

namespace frit::apps {

/// Arrays from standard input. A call that waits for input ends when `stop` is called from another thread.
class ArrayInput {
 public:
  ArrayInput();
  /// See NpyStream::next.
  std::optional<Tensor> next(const ShapeCheck& check) { return stream_.next(check); }
  void stop() { stopped_ = true; }

 private:
  std::size_t read(std::span<std::byte> into) const;

  std::atomic<bool> stopped_ = false;
  NpyStream stream_;
};

/// Writes an array to standard output, all of it before it returns. Throws ErrorKind::file_system.
void write_array(const Tensor& tensor);

}  // namespace frit::apps
