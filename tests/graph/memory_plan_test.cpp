#include "frit/graph/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "frit/core/error.h"
#include "frit/core/random.h"

namespace frit::graph {
namespace {

/// Independent of the planner: every pair that is alive at the same time lies apart, inside the arena, aligned.
testing::AssertionResult valid(const std::vector<Lifetime>& lifetimes, const MemoryPlan& plan) {
  for (std::size_t a = 0; a < lifetimes.size(); ++a) {
    if (plan.offsets[a] % plan_alignment != 0) return testing::AssertionFailure() << "buffer " << a << " is not aligned";
    if (plan.offsets[a] < 0 || plan.offsets[a] + lifetimes[a].bytes > plan.arena_bytes) {
      return testing::AssertionFailure() << "buffer " << a << " lies outside the arena";
    }
    for (std::size_t b = 0; b < a; ++b) {
      const bool alive_together = !(lifetimes[a].last < lifetimes[b].first || lifetimes[b].last < lifetimes[a].first);
      const bool apart = plan.offsets[a] + lifetimes[a].bytes <= plan.offsets[b] || plan.offsets[b] + lifetimes[b].bytes <= plan.offsets[a];
      if (alive_together && !apart) return testing::AssertionFailure() << "buffers " << a << " and " << b << " overlap";
    }
  }
  return testing::AssertionSuccess();
}

TEST(MemoryPlan, SharesMemoryOfBuffersThatNeverMeet) {
  const std::vector<Lifetime> lifetimes = {{1000, 0, 1}, {1000, 2, 3}, {1000, 1, 2}};
  const MemoryPlan plan = plan_memory(lifetimes);
  EXPECT_TRUE(valid(lifetimes, plan));
  EXPECT_EQ(plan.unplanned_bytes, 3072);
  EXPECT_EQ(plan.arena_bytes, 2048);
  EXPECT_EQ(plan.lower_bound_bytes, 2048);
  EXPECT_EQ(plan.text(), "3.0 KiB -> 2.0 KiB (lower bound 2.0 KiB)");
}

TEST(MemoryPlan, KeepsAllThatIsAliveAtOneStep) {
  const std::vector<Lifetime> lifetimes = {{64, 0, 5}, {64, 5, 5}, {64, 5, 9}};
  const MemoryPlan plan = plan_memory(lifetimes);
  EXPECT_TRUE(valid(lifetimes, plan));
  EXPECT_EQ(plan.arena_bytes, 192);
}

TEST(MemoryPlan, TakesNothingForNothing) {
  EXPECT_EQ(plan_memory({}).arena_bytes, 0);
  const std::vector<Lifetime> empty = {{0, 0, 3}, {0, 1, 2}};
  EXPECT_EQ(plan_memory(empty).arena_bytes, 0);
}

TEST(MemoryPlan, RefusesLifetimesThatCannotBe) {
  EXPECT_THROW(plan_memory(std::vector<Lifetime>{{-1, 0, 1}}), Error);
  EXPECT_THROW(plan_memory(std::vector<Lifetime>{{1, 2, 1}}), Error);
}

std::vector<Lifetime> random_lifetimes(std::uint64_t seed, std::uint32_t most, std::uint32_t steps, std::uint32_t longest) {
  const std::uint32_t count = 1 + philox(seed, 0, 0)[0] % most;
  std::vector<Lifetime> lifetimes;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto random = philox(seed, 1, i);
    const int first = static_cast<int>(random[0] % steps);
    lifetimes.push_back(
        {static_cast<std::int64_t>(random[1] % (1u << (random[2] % 16))), first, first + static_cast<int>(random[3] % longest)});
  }
  return lifetimes;
}

TEST(MemoryPlan, NeverOverlapsInRandomPlans) {
  constexpr std::uint64_t plans = 100'000;
  for (std::uint64_t p = 0; p < plans; ++p) {
    const std::vector<Lifetime> lifetimes = random_lifetimes(p, 14, 12, 6);
    const MemoryPlan plan = plan_memory(lifetimes);
    ASSERT_TRUE(valid(lifetimes, plan)) << "plan " << p;
    ASSERT_GE(plan.arena_bytes, plan.lower_bound_bytes);
    ASSERT_LE(plan.arena_bytes, plan.unplanned_bytes);
  }
}

/// Each buffer in turn at the lowest offset where it meets none of those before it that are alive with it, by trying them all.
std::int64_t placed_one_by_one(const std::vector<Lifetime>& lifetimes, const auto& comes_first) {
  std::vector<Lifetime> order = lifetimes;
  std::stable_sort(order.begin(), order.end(), comes_first);
  std::vector<std::int64_t> offsets;
  std::int64_t arena = 0;
  const auto end = [&](std::size_t i) { return offsets[i] + (order[i].bytes + plan_alignment - 1) / plan_alignment * plan_alignment; };
  for (std::size_t i = 0; i < order.size(); ++i) {
    offsets.push_back(0);
    for (std::size_t other = 0; other < i; ++other) {
      const bool together = order[i].first <= order[other].last && order[other].first <= order[i].last;
      if (!together || end(other) <= offsets[i] || end(i) <= offsets[other]) continue;
      offsets[i] = end(other);
      other = static_cast<std::size_t>(-1);
    }
    arena = std::max(arena, end(i));
  }
  return arena;
}

TEST(MemoryPlan, IsTheGreedyOne) {
  for (std::uint64_t p = 0; p < 300; ++p) {
    const std::vector<Lifetime> lifetimes = random_lifetimes(p, 200, 150, 1 + 20 * static_cast<std::uint32_t>(p % 8));
    const MemoryPlan plan = plan_memory(lifetimes);
    ASSERT_TRUE(valid(lifetimes, plan)) << "plan " << p;
    const auto by_first = [](const Lifetime& a, const Lifetime& b) { return a.first < b.first; };
    const auto by_size = [](const Lifetime& a, const Lifetime& b) { return a.bytes == b.bytes ? a.first < b.first : a.bytes > b.bytes; };
    ASSERT_EQ(plan.arena_bytes, std::min(placed_one_by_one(lifetimes, by_first), placed_one_by_one(lifetimes, by_size))) << "plan " << p;
  }
}

}  // namespace
}  // namespace frit::graph
