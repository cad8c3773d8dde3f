#pragma once

#include <cstddef>
#include <cstdint>

#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// Bytes up to the next part of scratch memory: whole lines of 64.
inline std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
inline std::size_t aligned(std::int64_t count, std::size_t size) { return aligned(static_cast<std::size_t>(count) * size); }

/// Scratch memory, part by part.
class ScratchParts {
 public:
  /// The next part's place in bytes.
  std::size_t add(std::int64_t count, std::size_t size) {
    const std::size_t place = bytes_;
    bytes_ += aligned(count, size);
    return place;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

/// The part of scratch memory at a place.
template <class Part>
Part* scratch_part(std::span<std::byte> scratch, std::size_t place) {
  return reinterpret_cast<Part*>(scratch.data() + place);
}
template <class Part>
Part* scratch_part(const KernelContext& call, std::size_t place) {
  return scratch_part<Part>(call.scratch, place);
}

}  // namespace frit::ops
