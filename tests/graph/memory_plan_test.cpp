#include "frit/graph/memory_plan.h"

#include <gtest/gtest.h>

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

TEST(MemoryPlan, NeverOverlapsInRandomPlans) {
  constexpr std::uint64_t plans = 100'000;
  for (std::uint64_t p = 0; p < plans; ++p) {
    const std::uint32_t count = 1 + philox(p, 0, 0)[0] % 14;
    std::vector<Lifetime> lifetimes;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto random = philox(p, 1, i);
      const int first = static_cast<int>(random[0] % 12);
      lifetimes.push_back(
          {static_cast<std::int64_t>(random[1] % (1u << (random[2] % 16))), first, first + static_cast<int>(random[3] % 6)});
    }
    const MemoryPlan plan = plan_memory(lifetimes);
    ASSERT_TRUE(valid(lifetimes, plan)) << "plan " << p;
    ASSERT_GE(plan.arena_bytes, plan.lower_bound_bytes);
    ASSERT_LE(plan.arena_bytes, plan.unplanned_bytes);
  }
}

}  // namespace
}  // namespace frit::graph
