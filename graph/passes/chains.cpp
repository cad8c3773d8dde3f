#include <algorithm>
#include <optional>
#include <set>

#include "frit/graph/index.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"
#include "frit/ops/operator/staged_call.h"

// Operations that read an image take in the elementwise ones that make it, and those that follow: what nothing else reads is neither
// written nor read then. An operand that can be computed again from what is read anyway is: the mask of an activation after a norm, from
// the norm's input.

namespace frit::graph {
namespace {

using Members = std::set<int>;  // node indices

/// A program of elementwise operations with the values that it reads.
struct Programmed {
  ops::ElementwiseProgram program = {};
  std::vector<int> operands = {};
  Members members = {};
};

/// An operation with what it takes in.
struct Chain {
  int centre, last;              ///< node indices: `last` is where it stands
  std::vector<int> replaced;     ///< the centre, and the program after it
  std::vector<int> inputs = {};  ///< value ids
  std::optional<ops::Attributes> attributes = {};
};

class Chains {
 public:
  Chains(const Graph& graph, const ops::Operator& op, DeviceKind device)
      : graph_(graph),
        op_(op),
        device_(device),
        uses_(use_counts(graph)),
        readers_(uses_.size()),
        taken_(graph.nodes().size(), false),
        mutated_at_(uses_.size(), size()),
        rewriter_(graph) {
    for (int n = 0; n < size(); ++n) {
      if (node(n).kind != NodeKind::operation) continue;
      for (const int id : node(n).inputs) readers_[index(id)].insert(n);
      for (const int input : node(n).op->mutates) {
        if (index(input) >= node(n).inputs.size()) continue;
        int& first = mutated_at_[index(node(n).inputs[index(input)])];
        first = std::min(first, n);
      }
    }
  }

  Graph run() {
    std::vector<std::optional<Chain>> chains(index(size()));  // by their last node
    const auto grow = [&](int n) {
      const std::optional<Chain> chain = is_centre(n) ? chain_of(n) : std::nullopt;
      if (!chain) return;
      for (const int member : chain->replaced) taken_[index(member)] = true;
      chains[index(chain->last)] = chain;
    };
    // What only takes in what follows comes first. The later of two convolutions whose results are added up takes the addition: the other's
    // is the residual.
    for (int n = size(); n-- > 0;) {
      if (is_centre(n) && node(n).op->staged_inputs.empty()) grow(n);
    }
    for (int n = 0; n < size(); ++n) grow(n);
    for (int n = 0; n < size(); ++n) {
      if (chains[index(n)]) {
        emit(*chains[index(n)]);
      } else if (!taken_[index(n)]) {
        rewriter_.copy(node(n));
      }
    }
    return remove_dead_code(rewriter_.finish());
  }

 private:
  int size() const { return static_cast<int>(graph_.nodes().size()); }
  const Node& node(int n) const { return graph_.nodes()[index(n)]; }
  const Shape& shape(int id) const { return graph_.type(id).shape; }
  int uses(int id) const { return uses_[index(id)]; }

  static std::int64_t reads(const Node& reader, int id) { return std::count(reader.inputs.begin(), reader.inputs.end(), id); }

  /// Whether members alone read a value.
  bool is_read_within(int id, const Members& members) const {
    std::int64_t count = 0;
    for (const int n : readers_[index(id)]) count += members.contains(n) ? reads(node(n), id) : 0;
    return count == uses(id);
  }

  /// An operation that elementwise programs may hold, on images of this shape.
  bool computes(int n, const Shape& image) const {
    const Node& candidate = node(n);
    return candidate.kind == NodeKind::operation && !taken_[index(n)] && candidate.op->elementwise && candidate.op->mutates.empty() &&
           candidate.outputs.size() == 1 && shape(candidate.outputs[0]) == image;
  }

  /// Whether a value, which may be a view of a variable, is still what it was when node n runs.
  bool holds_until(int id, int n) const { return mutated_at_[index(source_of(graph_, id))] >= n; }

  /// Whether the operation updates it where it lies.
  bool updates(int n, int id) const {
    const auto is_it = [&](int input) { return index(input) < node(n).inputs.size() && node(n).inputs[index(input)] == id; };
    return std::any_of(node(n).op->mutates.begin(), node(n).op->mutates.end(), is_it);
  }

  /// `first`: operands that the program has in any case.
  Programmed program_of(const Members& members, std::vector<int> first, int result) const {
    Programmed made{{}, std::move(first), members};
    const auto given = static_cast<std::ptrdiff_t>(made.operands.size());
    const auto known = [&](int id) { return std::find(made.operands.begin(), made.operands.end(), id) != made.operands.end(); };
    for (const int n : members) {
      for (const int id : node(n).inputs) {
        if (!known(id) && !members.contains(graph_.producer_index(id))) made.operands.push_back(id);
      }
    }
    std::stable_partition(made.operands.begin() + given, made.operands.end(), [&](int id) { return is_floating(graph_.type(id).dtype); });
    std::map<int, int> numbers;
    for (const int id : made.operands) numbers.emplace(id, static_cast<int>(numbers.size()));
    made.program.inputs = static_cast<int>(made.operands.size());
    for (const int n : members) {
      std::vector<int> operands;
      for (const int id : node(n).inputs) operands.push_back(numbers.at(id));
      numbers[node(n).outputs[0]] = made.program.values();
      made.program.instructions.push_back({node(n).op, node(n).attributes, std::move(operands)});
    }
    if (!members.empty()) made.program.outputs = {numbers.at(result)};
    return made;
  }

  Chain chain_with(int n, int input, const Programmed& before, const Programmed& after, int last) const {
    Chain chain{n, last, {n}};
    const bool takes = !before.program.instructions.empty();
    if (takes) chain.inputs = before.operands;
    for (std::size_t i = 0; i < node(n).inputs.size(); ++i) {
      if (!takes || i != index(input)) chain.inputs.push_back(node(n).inputs[i]);
    }
    if (after.operands.size() > 1) chain.inputs.insert(chain.inputs.end(), after.operands.begin() + 1, after.operands.end());
    const auto holds = [&](int id) { return holds_until(id, last) || updates(n, id); };
    if (!std::all_of(chain.inputs.begin(), chain.inputs.end(), holds)) return chain;
    const ops::StagedCall call{before.program, input, {node(n).op, node(n).attributes}, after.program};
    chain.attributes = op_.stage(call, graph_.types(chain.inputs));
    return chain;
  }

  const ops::Kernel& kernel(int n) const { return device_ == DeviceKind::cpu ? node(n).op->cpu : node(n).op->cuda; }

  /// On a CPU, where only what a kernel computes with the operation gains from being part of it.
  bool is_centre(int n) const {
    return node(n).kind == NodeKind::operation && !taken_[index(n)] && (device_ != DeviceKind::cpu || kernel(n).staged);
  }

  std::optional<Chain> chain_of(int n) {
    Programmed before, after;
    int input = 0, last = n;
    for (const ops::StagedInput& staged : node(n).op->staged_inputs) {
      if (index(staged.input) >= node(n).inputs.size() || !before.operands.empty()) continue;
      before = program_before(n, staged);
      input = staged.input;
    }
    if (node(n).op->staged_output) after = program_after(n, input, before, last);
    if (before.operands.empty() && after.operands.empty()) return std::nullopt;
    Chain chain = chain_with(n, input, before, after, last);
    chain.replaced.insert(chain.replaced.end(), after.members.begin(), after.members.end());
    return chain.attributes ? std::optional(std::move(chain)) : std::nullopt;
  }

  /// The program that gives an input, if fewer bytes are moved with it; else it is empty.
  Programmed program_before(int n, const ops::StagedInput& staged) const {
    const int value = node(n).inputs[index(staged.input)];
    // A CPU's kernel keeps it where output 0 will lie, and makes no halves.
    if (device_ == DeviceKind::cpu && (uses(node(n).outputs[0]) == 0 || is_half(graph_.type(value).dtype))) return {};
    const auto made_of = [&](const Members& members) { return program_of(members, {}, value); };
    const auto fits = [&](const Members& members) { return chain_with(n, staged.input, made_of(members), {}, n).attributes.has_value(); };
    Members members;
    const auto operands = [&] { return members.empty() ? std::vector{value} : made_of(members).operands; };
    const auto take = [&](int id) {
      const int producer = graph_.producer_index(id);
      std::int64_t reads_within = id == value ? 1 : 0;
      for (const int member : members) reads_within += reads(node(member), id);
      if (!computes(producer, shape(value)) || uses(id) != reads_within || members.contains(producer)) return false;
      members.insert(producer);
      if (fits(members)) return true;
      members.erase(producer);
      return false;
    };
    for (bool grown = true; grown;) {
      const std::vector<int> ids = operands();
      grown = std::any_of(ids.begin(), ids.end(), take);
    }
    const std::int64_t image = graph_.type(value).bytes();
    const std::int64_t apart =
        members.empty() ? staged.reads * image : read_bytes(operands(), -1, shape(value)) + (1 + staged.reads) * image;
    for (const int id : operands()) {
      Members more = members;
      // A CPU reads a value faster than it computes it.
      const bool reads_it = device_ == DeviceKind::cpu || is_at_hand(id, n, shape(value));
      if (!reads_it && computed_again(id, n, shape(value), more) && fits(more)) members = std::move(more);
    }
    if (members.empty() || staged.reads * read_bytes(operands(), n, shape(value)) >= apart) return {};
    return made_of(members);
  }

  /// Whether the operation is to take in a program that follows it.
  bool leads(int n, const Programmed& after) const {
    // In a build without CUDA there is no kernel to ask: what may become other operations, or is spelt as some, is left alone then.
    if (!kernel(n)) return node(n).op->lowerings.empty() && !node(n).op->pointwise;
    if (!kernel(n).staged) return false;
    const auto& rule = kernel(n).staged.leads;
    return !rule || rule({*node(n).op, graph_.types(node(n).inputs), node(n).attributes}, after.program, graph_.types(after.operands));
  }

  /// What is read where whole images count alone, and not those that the operation reads anyway.
  std::int64_t read_bytes(const std::vector<int>& ids, int operation, const Shape& image) const {
    std::int64_t bytes = 0;
    for (const int id : ids) {
      if (shape(id) == image && (operation < 0 || reads(node(operation), id) == 0)) bytes += graph_.type(id).bytes();
    }
    return bytes;
  }

  bool is_at_hand(int id, int n, const Shape& image) const { return reads(node(n), id) > 0 || !(shape(id) == image); }

  /// Adds what computes the value of what is at hand.
  bool computed_again(int id, int n, const Shape& image, Members& members) const {
    if (is_at_hand(id, n, image)) return true;
    const int producer = graph_.producer_index(id);
    if (members.contains(producer)) return true;
    if (!computes(producer, image)) return false;
    members.insert(producer);
    const std::vector<int>& inputs = node(producer).inputs;
    return std::all_of(inputs.begin(), inputs.end(), [&](int input) { return computed_again(input, n, image, members); });
  }

  /// What elementwise operations do to output 0: as many of them as leave one value that others read.
  Programmed program_after(int n, int input, const Programmed& before, int& last) const {
    Programmed after;
    Members members;
    const int first = node(n).outputs[0];
    std::vector<int> inner = {first};  // what members alone must read
    Members next = readers_[index(first)];
    while (!next.empty()) {
      const int reader = *next.begin();
      next.erase(next.begin());
      if (!computes(reader, shape(first)) || !may_wait(n, reader)) return after;
      members.insert(reader);
      const int result = node(reader).outputs[0];
      next.insert(readers_[index(result)].begin(), readers_[index(result)].end());
      const auto is_within = [&](int id) { return is_read_within(id, members); };
      const bool closed = std::all_of(inner.begin(), inner.end(), is_within);
      inner.push_back(result);
      if (!closed) continue;
      Programmed longer = program_of(members, {first}, result);
      if (!chain_with(n, input, before, longer, reader).attributes || !leads(n, longer)) return after;
      after = std::move(longer);
      last = reader;
    }
    return after;
  }

  /// Whether the operation may be computed as late as a later node. What it updates is read after it as a view alone, if at all.
  bool may_wait(int n, int until) const {
    for (int m = n + 1; m < until; ++m) {
      const bool mutates = node(m).kind == NodeKind::operation && !node(m).op->mutates.empty();
      const auto reads_it = [&](int id) { return id != node(n).outputs[0] && reads(node(m), id) > 0; };
      const auto is_updated = [&](int id) { return updates(n, source_of(graph_, id)); };
      if (mutates || std::any_of(node(n).outputs.begin(), node(n).outputs.end(), reads_it)) return false;
      if (std::any_of(node(m).inputs.begin(), node(m).inputs.end(), is_updated)) return false;
    }
    return true;
  }

  void emit(const Chain& chain) {
    const Values outputs = rewriter_.target().emit(op_, rewriter_(chain.inputs), *chain.attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) rewriter_.map(node(chain.centre).outputs[i], outputs[i]);
    rewriter_.map(node(chain.last).outputs[0], outputs[0]);
  }

  const Graph& graph_;
  const ops::Operator& op_;
  DeviceKind device_;
  std::vector<int> uses_;
  std::vector<Members> readers_;  // by value id
  std::vector<bool> taken_;       // by node: it is part of a chain before
  std::vector<int> mutated_at_;   // by value id: the first node that updates it, or the number of nodes
  Rewriter rewriter_;
};

}  // namespace

Graph grow_chains(const Graph& graph, DeviceKind device) {
  Graph result = graph;
  for (const ops::Operator* op : ops::registry().all()) {
    if (op->stage) result = Chains(result, *op, device).run();
  }
  return result;
}

}  // namespace frit::graph
