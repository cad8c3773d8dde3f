// A value that groups of elementwise operations read may be computed in them once more, from what they read anyway, from little, or from
// what it was made of. It then loses readers, and without any it is never written. Which is better is decided by the bytes that move.

#include <algorithm>
#include <set>

#include "frit/graph/passes/groups.h"

namespace frit::graph {
namespace {

/// Instructions that a value is computed again with at most: a norm in halves and its activation.
constexpr std::size_t most_recomputed = 8;
/// What is gained is this part of the value's bytes or more, and what is small compared to it less.
constexpr std::int64_t least_ratio = 4, small_part = 8;

/// How a group computes a value again.
struct Plan {
  bool possible = true;
  std::set<int> nodes = {};  ///< to compute again
  std::set<int> reads = {};  ///< value ids that the group did not read before
  std::int64_t bytes = 0;    ///< that move for these
};

class Rematerialization {
 public:
  explicit Rematerialization(Groups& groups) : groups_(groups) {}

  void run() {
    for (int id = 0; id < groups_.graph().value_count(); ++id) {
      const int producer = groups_.graph().producer_index(id);
      if (groups_.joinable(producer) && groups_.leaves(id)) consider(id);
    }
  }

 private:
  std::int64_t bytes(int id) const { return groups_.graph().type(id).bytes(); }
  int producer(int id) const { return groups_.graph().producer_index(id); }

  void consider(int id) {
    std::vector<std::pair<int, Plan>> plans;  // by a node of the group
    std::set<int> reads;
    bool vanishes = !groups_.is_output(id);
    std::int64_t gain = bytes(id), kept = 0;
    for (const int reader : readers(id)) {
      Plan plan = plan_for(id, reader);
      vanishes = vanishes && plan.possible;
      if (!plan.possible) continue;
      gain += bytes(id) - plan.bytes;
      reads.insert(plan.reads.begin(), plan.reads.end());
      plans.emplace_back(reader, std::move(plan));
    }
    for (const int read : reads) kept += bytes(read);
    const bool all = vanishes && gain * least_ratio >= bytes(id) && kept <= bytes(id) + bytes(id) / small_part;
    for (const auto& [reader, plan] : plans) {
      if (all || plan.bytes * small_part <= bytes(id)) groups_.recompute(reader, {plan.nodes.begin(), plan.nodes.end()});
    }
  }

  /// One reader of each group that gets the value from its producer's.
  std::vector<int> readers(int id) const {
    std::vector<int> result;
    for (const int reader : groups_.readers_of(id)) {
      const auto in_group = [&](int other) { return groups_.same(other, reader); };
      const std::vector<int>& recomputed = groups_.of(reader).recomputed;
      const bool has = in_group(producer(id)) || std::binary_search(recomputed.begin(), recomputed.end(), producer(id));
      if (!has && std::none_of(result.begin(), result.end(), in_group)) result.push_back(reader);
    }
    return result;
  }

  Plan plan_for(int id, int reader) const {
    if (!groups_.joinable(reader) || !(groups_.shape(reader) == groups_.graph().type(id).shape)) return Plan{false};
    std::set<int> given;
    for (const int input : groups_.program_of(reader).inputs) given.insert(input);
    given.erase(id);
    for (const std::vector<int>* nodes : {&groups_.of(reader).members, &groups_.of(reader).recomputed}) {
      for (const int n : *nodes) given.insert(groups_.node(n).outputs[0]);
    }
    Plan plan = compute(id, given, {});
    const std::vector<int> nodes(plan.nodes.begin(), plan.nodes.end());
    plan.possible = plan.possible && groups_.may_recompute(reader, nodes) && groups_.program_of(reader, nodes).attributes;
    return plan;
  }

  /// The plan with what computes the value, where `given` need not be read.
  Plan compute(int id, const std::set<int>& given, Plan plan) const {
    const int n = producer(id);
    plan.possible = plan.possible && groups_.joinable(n) && groups_.shape(n) == groups_.graph().type(id).shape;
    if (!plan.possible || !plan.nodes.insert(n).second) return plan;
    plan.possible = plan.nodes.size() <= most_recomputed;
    for (const int input : groups_.node(n).inputs) {
      if (plan.possible && !given.contains(input)) plan = cheaper(input, given, plan, groups_.shape(n));
    }
    return plan;
  }

  /// Reads the value, if it is stored, or computes it too.
  Plan cheaper(int id, const std::set<int>& given, Plan plan, const Shape& shape) const {
    if (plan.reads.contains(id) || plan.nodes.contains(producer(id))) return plan;
    Plan computed{false};
    if (groups_.graph().type(id).shape == shape) computed = compute(id, given, plan);
    plan.possible = !groups_.joinable(producer(id)) || groups_.leaves(id);
    plan.reads.insert(id);
    plan.bytes += bytes(id);
    return computed.possible && (!plan.possible || computed.bytes < plan.bytes) ? computed : plan;
  }

  Groups& groups_;
};

}  // namespace

void rematerialize(Groups& groups) { Rematerialization(groups).run(); }

}  // namespace frit::graph
