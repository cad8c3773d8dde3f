#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace frit::graph {

/// A buffer that must keep its bytes from step `first` to step `last`, both included.
struct Lifetime {
  std::int64_t bytes;
  int first;
  int last;
};

/// Where each buffer lies in one arena. Pure data: it knows neither tensors nor devices.
struct MemoryPlan {
  std::vector<std::int64_t> offsets;  ///< one a lifetime, multiples of the alignment
  std::int64_t arena_bytes = 0;
  std::int64_t unplanned_bytes = 0;    ///< the sum of all buffers: what it would take without sharing
  std::int64_t lower_bound_bytes = 0;  ///< the most that is alive at one step: no plan needs less

  /// "12.1 MiB -> 4.2 MiB (lower bound 4.1 MiB)"
  std::string text() const;
};

inline constexpr std::int64_t plan_alignment = 64;

/// Greedy by size: the largest buffers first, each at the lowest offset where it meets no buffer alive at the same time; also tried in
/// order of first use, and the smaller arena wins. Of thousands of buffers, for which that would take long, in order of first use alone.
/// (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020, algorithm 3.) Throws ErrorKind::argument for
/// negative sizes or a lifetime that ends before it begins.
MemoryPlan plan_memory(std::span<const Lifetime> lifetimes);

}  // namespace frit::graph
