#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace frit::ops {

/// Keys on the device that are sorted, each with a place that goes where it goes. Stable, and deterministic.
class KeySort {
 public:
  /// Of the scratch memory.
  static std::size_t bytes(std::int64_t count);
  KeySort(std::span<std::byte> scratch, std::int64_t count);

  std::uint64_t* keys() const { return keys_[current_]; }
  std::int64_t* places() const { return places_[current_]; }
  /// By the keys' low bits. Afterwards they lie elsewhere.
  void sort(cudaStream_t stream, int bits);

 private:
  std::int64_t count_;
  int current_ = 0;
  std::uint64_t* keys_[2];
  std::int64_t* places_[2];
  std::span<std::byte> rest_;
};

}  // namespace frit::ops
