#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "frit/core/error.h"
#include "frit/core/thread_pool.h"

namespace frit::ops {

/// [0, length) in blocks of one size, a multiple of `multiple` where that is not above `most`; the last may be shorter.
struct EvenBlocks {
  std::int64_t length = 0, size = 1, count = 0;

  EvenBlocks() = default;
  EvenBlocks(std::int64_t total, std::int64_t most, std::int64_t multiple = 1) : length(total) {
    if (total == 0) return;
    const std::int64_t blocks = (total - 1) / most + 1;
    const std::int64_t even = (total - 1) / blocks + 1;
    size = std::min(most, (even + multiple - 1) / multiple * multiple);
    count = (total - 1) / size + 1;
  }
  std::int64_t begin(std::int64_t block) const { return block * size; }
  std::int64_t length_of(std::int64_t block) const { return std::min(size, length - block * size); }
};

/// Runs of elements, side by side each, from `begin` on and `step` apart.
struct Runs {
  std::int64_t begin, count = 1, step = 0, length;

  std::int64_t begin_of(std::int64_t run) const { return begin + run * step; }
  std::int64_t elements() const { return count * length; }
};

/// Items of work dealt to a limited number of tasks, so that each task can have workspace of its own whatever the number of threads.
/// Which task has which items depends on the sizes alone.
class WorkSplit {
 public:
  WorkSplit() = default;
  /// `cost` is an item's multiply-adds, so that little work is not spread over threads.
  WorkSplit(std::int64_t items, std::int64_t cost, std::size_t task_bytes) : items_(items), task_bytes_((task_bytes + 63) / 64 * 64) {
    grain_ = std::max((items + most_tasks - 1) / most_tasks, least_cost / std::max<std::int64_t>(1, cost));
    grain_ = std::clamp<std::int64_t>(grain_, 1, std::max<std::int64_t>(1, items));
  }

  std::size_t scratch() const { return static_cast<std::size_t>((items_ + grain_ - 1) / grain_) * task_bytes_; }

  /// Calls body(item, workspace) for every item, in parallel; `workspace` has the task's bytes, 64-byte aligned as `scratch` is.
  template <class Body>
  void run(std::span<std::byte> scratch_memory, const Body& body) const {
    FRIT_CHECK(scratch_memory.size() >= scratch());
    parallel_for(items_, grain_, [&](std::int64_t begin, std::int64_t end) {
      std::byte* workspace = scratch_memory.data() + static_cast<std::size_t>(begin / grain_) * task_bytes_;
      for (std::int64_t item = begin; item < end; ++item) body(item, workspace);
    });
  }

 private:
  static constexpr std::int64_t most_tasks = 64, least_cost = std::int64_t{1} << 18;

  std::int64_t items_ = 0, grain_ = 1;
  std::size_t task_bytes_ = 0;
};

}  // namespace frit::ops
