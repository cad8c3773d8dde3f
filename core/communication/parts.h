#pragma once

#include <cstdint>

#include "frit/core/dtype.h"
#include "frit/core/tensor.h"

namespace frit {

/// How so many elements are dealt out to processes, in the order of ranks: to all alike where that is possible; else to each a multiple of
/// 8, so that parts begin where vectors do, and what is left to the last as well.
class Parts {
 public:
  constexpr Parts(std::int64_t elements, int processes)
      : elements_(elements),
        processes_(processes),
        each_(elements % processes == 0 ? elements / processes : elements / processes / 8 * 8) {}

  constexpr std::int64_t each() const { return each_; }
  /// What the last has after as many as each.
  constexpr std::int64_t rest() const { return elements_ - each_ * processes_; }
  constexpr std::int64_t begin(int rank) const { return each_ * rank; }
  constexpr std::int64_t end(int rank) const { return rank + 1 == processes_ ? elements_ : each_ * (rank + 1); }
  constexpr std::int64_t size(int rank) const { return end(rank) - begin(rank); }
  /// The largest.
  constexpr std::int64_t most() const { return each_ + rest(); }

 private:
  std::int64_t elements_;
  int processes_;
  std::int64_t each_;
};

/// Of an element of a contiguous tensor, or its end.
inline std::byte* address_of(const Tensor& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.raw()) + static_cast<std::size_t>(element) * size_of(tensor.dtype());
}

}  // namespace frit
