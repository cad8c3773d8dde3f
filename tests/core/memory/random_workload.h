#pragma once

// A long random use of an allocator, as a program with several streams and growing batches would make it.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "frit/core/memory/allocator.h"

namespace frit {

struct LiveBlock {
  std::byte* memory;
  std::size_t bytes;
  std::uint8_t pattern;
};

struct Workload {
  int steps = 0;
  std::size_t most_live = 0;  ///< bytes
  double largest = 1 << 30;   ///< block, in bytes
  /// Called for each block when it is new, and before it goes.
  std::function<void(const LiveBlock&)> mark = {}, check = {};
};

struct WorkloadResult {
  std::size_t peak_live = 0;  ///< bytes that were asked for and in use at one time
  double p99 = 0;             ///< microseconds of an allocation that the source was not asked for
};

/// Sizes from 1 byte to the largest, their logarithms evenly spread; bursts of one size; four streams; and in each quarter of the steps a
/// batch of tensors that grows. At the end all is freed.
inline WorkloadResult run_random_workload(Allocator& allocator, const Workload& workload) {
  std::mt19937_64 generator(11);
  std::uniform_real_distribution<double> unit;
  std::vector<LiveBlock> live;
  std::vector<double> times;
  WorkloadResult result;
  std::size_t live_bytes = 0;
  const auto free_one = [&](std::size_t i) {
    workload.check(live[i]);
    allocator.deallocate(live[i].memory);
    live_bytes -= live[i].bytes;
    live[i] = live.back();
    live.pop_back();
  };
  const auto take = [&](std::size_t bytes) {
    while (live_bytes + bytes > workload.most_live && !live.empty()) free_one(generator() % live.size());
    const std::uint64_t asked = allocator.statistics().source_allocations;
    const auto begin = std::chrono::steady_clock::now();
    auto* const memory = static_cast<std::byte*>(allocator.allocate(bytes, generator() % 4));
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    if (allocator.statistics().source_allocations == asked) times.push_back(time.count());
    live.push_back({memory, bytes, static_cast<std::uint8_t>(generator())});
    workload.mark(live.back());
    live_bytes += bytes;
    result.peak_live = std::max(result.peak_live, live_bytes);
  };
  for (int step = 0; step < workload.steps; ++step) {
    const double growth = 1 + 4.0 * (step % (workload.steps / 4)) / workload.steps;
    const auto bytes =
        static_cast<std::size_t>(std::min(workload.largest, growth * std::exp(unit(generator) * std::log(workload.largest))));
    if (unit(generator) < 0.55) {
      const int burst = unit(generator) < 0.02 ? 16 : 1;
      for (int i = 0; i < burst; ++i) take(bytes);
    } else if (!live.empty()) {
      free_one(generator() % live.size());
    }
  }
  while (!live.empty()) free_one(live.size() - 1);
  std::sort(times.begin(), times.end());
  result.p99 = times.empty() ? 0 : times[times.size() * 99 / 100];
  return result;
}

/// What must hold of the counters afterwards.
inline void expect_frugal(const AllocatorStatistics& statistics, const WorkloadResult& result) {
  const double overhead = static_cast<double>(statistics.peak_reserved) / static_cast<double>(result.peak_live);
  EXPECT_LE(overhead, 1.25);
  testing::Test::RecordProperty("reserved_over_peak_live", std::to_string(overhead));
  testing::Test::RecordProperty("p99_microseconds", std::to_string(result.p99));
  std::cout << "  reserved / peak live " << overhead << ", p99 of a warm allocation " << result.p99 << " us, " << statistics.allocations
            << " allocations, " << statistics.source_allocations << " of the source\n";
}

}  // namespace frit
