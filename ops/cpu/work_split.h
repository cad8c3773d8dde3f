#pragma once

#include <algorithm>
#include <atomic>
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

/// Calls body(begin, end, worker) for [0, grain), [grain, 2 grain), ... up to count, in parallel; no two calls at a time have one of the
/// `workers`.
template <class Body>
void parallel_for_workers(std::int64_t count, std::int64_t grain, std::int64_t workers, const Body& body) {
  std::atomic<std::int64_t> next = 0;
  parallel_for(std::min(workers, (count + grain - 1) / grain), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t worker = first; worker < last; ++worker) {
      for (std::int64_t begin; (begin = next.fetch_add(grain, std::memory_order_relaxed)) < count;) {
        body(begin, std::min(begin + grain, count), worker);
      }
    }
  });
}

/// Items of work, each done by one thread, in workspace of the thread's own that stays in its cache from one item to the next.
class WorkSplit {
 public:
  WorkSplit() = default;
  /// `cost` is an item's multiply-adds, so that little work is not spread over threads.
  WorkSplit(std::int64_t items, std::int64_t cost, std::size_t workspace_bytes)
      : items_(items), workspace_bytes_((workspace_bytes + 63) / 64 * 64) {
    grain_ = std::max((items + most_chunks - 1) / most_chunks, least_cost / std::max<std::int64_t>(1, cost));
    grain_ = std::clamp<std::int64_t>(grain_, 1, std::max<std::int64_t>(1, items));
  }

  /// Bytes of the workspaces: one for each thread that there is, as far as there is work for them.
  std::size_t scratch() const { return static_cast<std::size_t>(std::min<std::int64_t>(chunks(), thread_count())) * workspace_bytes_; }

  /// Calls body(item, workspace) for every item, in parallel, by as many threads as `scratch_memory` has workspaces for, at least one;
  /// `workspace` is 64-byte aligned as that is.
  template <class Body>
  void run(std::span<std::byte> scratch_memory, const Body& body) const {
    if (items_ == 0) return;
    if (workspace_bytes_ == 0) {
      parallel_for(items_, grain_, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t item = begin; item < end; ++item) body(item, static_cast<std::byte*>(nullptr));
      });
      return;
    }
    const auto workspaces = static_cast<std::int64_t>(scratch_memory.size() / workspace_bytes_);
    FRIT_CHECK(workspaces > 0);
    parallel_for_workers(items_, grain_, workspaces, [&](std::int64_t begin, std::int64_t end, std::int64_t worker) {
      std::byte* const workspace = scratch_memory.data() + static_cast<std::size_t>(worker) * workspace_bytes_;
      for (std::int64_t item = begin; item < end; ++item) body(item, workspace);
    });
  }

 private:
  static constexpr std::int64_t most_chunks = 64, least_cost = std::int64_t{1} << 18;

  std::int64_t chunks() const { return (items_ + grain_ - 1) / grain_; }

  std::int64_t items_ = 0, grain_ = 1;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace frit::ops
