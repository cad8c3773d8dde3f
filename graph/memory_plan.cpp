#include "frit/graph/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "frit/core/error.h"
#include "frit/core/text.h"

namespace frit::graph {
namespace {

std::int64_t aligned(std::int64_t bytes) { return (bytes + plan_alignment - 1) / plan_alignment * plan_alignment; }

bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

/// Sets the buffers down in the given order. Returns the arena's size.
std::int64_t place(std::span<const Lifetime> lifetimes, std::span<const std::size_t> order, std::vector<std::int64_t>& offsets) {
  std::vector<std::size_t> placed;  // by offset
  std::int64_t arena = 0;
  for (const std::size_t index : order) {
    const std::int64_t bytes = aligned(lifetimes[index].bytes);
    std::int64_t offset = 0;
    for (const std::size_t other : placed) {
      if (!overlap(lifetimes[index], lifetimes[other])) continue;
      if (offset + bytes <= offsets[other]) break;
      offset = std::max(offset, offsets[other] + aligned(lifetimes[other].bytes));
    }
    offsets[index] = offset;
    if (bytes == 0) continue;
    const auto behind = [&](std::int64_t value, std::size_t other) { return value < offsets[other]; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset, behind), index);
    arena = std::max(arena, offset + bytes);
  }
  return arena;
}

std::int64_t lower_bound(std::span<const Lifetime> lifetimes) {
  std::map<int, std::int64_t> changes;
  for (const Lifetime& lifetime : lifetimes) {
    changes[lifetime.first] += aligned(lifetime.bytes);
    changes[lifetime.last + 1] -= aligned(lifetime.bytes);
  }
  std::int64_t alive = 0, most = 0;
  for (const auto& [step, change] : changes) most = std::max(most, alive += change);
  return most;
}

}  // namespace

MemoryPlan plan_memory(std::span<const Lifetime> lifetimes) {
  for (const Lifetime& lifetime : lifetimes) {
    require(lifetime.bytes >= 0 && lifetime.first <= lifetime.last, "memory plan: a lifetime of ", lifetime.bytes, " bytes from step ",
            lifetime.first, " to ", lifetime.last);
  }
  MemoryPlan plan;
  plan.lower_bound_bytes = lower_bound(lifetimes);
  for (const Lifetime& lifetime : lifetimes) plan.unplanned_bytes += aligned(lifetime.bytes);

  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lifetimes[a].first < lifetimes[b].first; });
  std::vector<std::int64_t> by_first(lifetimes.size()), by_size(lifetimes.size());
  const std::int64_t arena_by_first = place(lifetimes, order, by_first);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  const std::int64_t arena_by_size = place(lifetimes, order, by_size);
  plan.arena_bytes = std::min(arena_by_first, arena_by_size);
  plan.offsets = arena_by_size <= arena_by_first ? std::move(by_size) : std::move(by_first);
  return plan;
}

std::string MemoryPlan::text() const {
  const auto size = [](std::int64_t bytes) { return bytes_text(static_cast<std::size_t>(bytes)); };
  return size(unplanned_bytes) + " -> " + size(arena_bytes) + " (lower bound " + size(lower_bound_bytes) + ")";
}

}  // namespace frit::graph
