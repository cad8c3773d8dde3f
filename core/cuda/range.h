#pragma once

namespace frit::cuda {

/// A stretch of the host's time with a name, which Nsight shows (NVTX). Does nothing in a build without CUDA, and next to nothing where
/// nobody listens.
class Range {
 public:
  explicit Range(const char* name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace frit::cuda
