#pragma once

namespace frit::cuda {

/// A stretch of the host's time with a name, which Nsight shows (NVTX, domain "frit"). Does nothing in a build without CUDA, and next to
/// nothing where nobody listens.
class Range {
 public:
  /// Whether anybody does, so that names are worth making.
  static bool is_shown();

  explicit Range(const char* name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace frit::cuda
