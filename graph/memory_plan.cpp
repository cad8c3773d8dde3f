#include "frit/graph/memory_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "frit/core/error.h"
#include "frit/core/text.h"

namespace frit::graph {
namespace {

std::int64_t aligned(std::int64_t bytes) { return (bytes + plan_alignment - 1) / plan_alignment * plan_alignment; }

bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

/// The bytes that are free at a step, as gaps from one offset to another that do not touch. The last one has no end.
class Gaps {
 public:
  Gaps() { add(0, std::numeric_limits<std::int64_t>::max()); }

  /// Of the first gap that is wide enough.
  std::int64_t take(std::int64_t bytes) {
    std::int64_t begin = std::numeric_limits<std::int64_t>::max();
    for (auto wide = by_size_.lower_bound(bytes); wide != by_size_.end(); ++wide) begin = std::min(begin, *wide->second.begin());
    const std::int64_t end = remove(ends_.find(begin));
    if (begin + bytes < end) add(begin + bytes, end);
    return begin;
  }
  void give_back(std::int64_t begin, std::int64_t end) {
    const auto next = ends_.lower_bound(end);
    if (next != ends_.begin() && std::prev(next)->second == begin) {
      begin = std::prev(next)->first;
      remove(std::prev(next));
    }
    if (next->first == end) end = remove(next);
    add(begin, end);
  }

 private:
  using Ends = std::map<std::int64_t, std::int64_t>;  // by begin

  void add(std::int64_t begin, std::int64_t end) {
    ends_.emplace(begin, end);
    by_size_[end - begin].insert(begin);
  }
  std::int64_t remove(Ends::iterator gap) {
    const auto [begin, end] = *gap;
    const auto same_size = by_size_.find(end - begin);
    same_size->second.erase(begin);
    if (same_size->second.empty()) by_size_.erase(same_size);
    ends_.erase(gap);
    return end;
  }

  Ends ends_;
  std::map<std::int64_t, std::set<std::int64_t>> by_size_;  // their begins; few sizes differ
};

/// Sets the buffers down in the order in which they come to life. Returns the arena's size.
std::int64_t place_by_first(std::span<const Lifetime> lifetimes, std::span<const std::size_t> order, std::vector<std::int64_t>& offsets) {
  Gaps gaps;
  std::multimap<int, std::size_t> alive;  // by last step
  std::int64_t arena = 0;
  for (const std::size_t index : order) {
    const auto dead = alive.lower_bound(lifetimes[index].first);
    for (auto buffer = alive.begin(); buffer != dead; buffer = alive.erase(buffer)) {
      const std::int64_t offset = offsets[buffer->second];
      gaps.give_back(offset, offset + aligned(lifetimes[buffer->second].bytes));
    }
    const std::int64_t bytes = aligned(lifetimes[index].bytes);
    if (bytes == 0) continue;
    offsets[index] = gaps.take(bytes);
    alive.emplace(lifetimes[index].last, index);
    arena = std::max(arena, offsets[index] + bytes);
  }
  return arena;
}

/// Sets the buffers down in the given order. Returns the arena's size; none if it takes more comparisons than so many a buffer.
std::optional<std::int64_t> place(std::span<const Lifetime> lifetimes, std::span<const std::size_t> order,
                                  std::vector<std::int64_t>& offsets) {
  constexpr std::size_t most_comparisons = 2000;
  std::vector<std::size_t> placed;  // by offset
  std::int64_t arena = 0;
  std::size_t comparisons = 0;
  for (const std::size_t index : order) {
    const std::int64_t bytes = aligned(lifetimes[index].bytes);
    std::int64_t offset = 0;
    for (const std::size_t other : placed) {
      ++comparisons;
      if (!overlap(lifetimes[index], lifetimes[other])) continue;
      if (offset + bytes <= offsets[other]) break;
      offset = std::max(offset, offsets[other] + aligned(lifetimes[other].bytes));
    }
    if (comparisons > most_comparisons * lifetimes.size()) return std::nullopt;
    offsets[index] = offset;
    if (bytes == 0) continue;
    const auto after = [&](std::int64_t value, std::size_t other) { return value < offsets[other]; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset, after), index);
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
  plan.arena_bytes = place_by_first(lifetimes, order, by_first);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  const std::optional<std::int64_t> arena_by_size = place(lifetimes, order, by_size);
  const bool better = arena_by_size && *arena_by_size <= plan.arena_bytes;
  if (better) plan.arena_bytes = *arena_by_size;
  plan.offsets = better ? std::move(by_size) : std::move(by_first);
  return plan;
}

std::string MemoryPlan::text() const {
  const auto size = [](std::int64_t bytes) { return bytes_text(static_cast<std::size_t>(bytes)); };
  return size(unplanned_bytes) + " -> " + size(arena_bytes) + " (lower bound " + size(lower_bound_bytes) + ")";
}

}  // namespace frit::graph
