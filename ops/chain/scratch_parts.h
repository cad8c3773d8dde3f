#pragma once

#include <cstddef>
#include <cstdint>

#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// Scratch memory, part by part.
class ScratchParts {
 public:
  /// The next part's place in bytes.
  std::size_t add(std::int64_t count, std::size_t size) {
    const std::size_t place = bytes_;
    bytes_ += (static_cast<std::size_t>(count) * size + 63) / 64 * 64;
    return place;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

/// A part of a call's scratch memory.
template <class Part>
Part* scratch_part(const KernelContext& call, std::size_t place) {
  return reinterpret_cast<Part*>(call.scratch.data() + place);
}

}  // namespace frit::ops
