#include "frit/graph/choose_lowerings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/noise.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/numerics.h"
#include "frit/core/plan_cache.h"
#include "frit/core/timer.h"
#include "frit/graph/executable.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// Calls that read and write less take so little time that no lowering is worth a search.
constexpr std::int64_t smallest_bytes = 256 * 1024;
/// Another lowering must take less than this part of the time of the one before.
constexpr double least_gain = 0.98;

/// As the plan cache keeps it.
struct ChosenLowering {
  std::string lowering;  ///< empty: the operation as it is

  void fields(FieldVisitor& v) { v.field("lowering", lowering); }
};

/// For each value, which operators read it.
std::vector<std::string> readers_of(const Graph& graph) {
  std::vector<std::string> readers(static_cast<std::size_t>(graph.value_count()));
  for (const Node& node : graph.nodes()) {
    if (node.kind != NodeKind::operation) continue;
    for (const int id : std::set<int>(node.inputs.begin(), node.inputs.end())) {
      readers[static_cast<std::size_t>(id)] += concat(" -> ", node.op->name);
    }
  }
  return readers;
}

/// All that the speed of an operation's lowerings depends on.
std::string key_of(const Graph& graph, const Node& node, const Purpose& purpose, const std::string& readers) {
  const Numerics settings = numerics();
  const auto& named = node.op->kernel_on(purpose.device).library;
  const std::string library = named ? named() : "";
  std::string key = concat(build_name(), ", ", library, library.empty() ? "" : ", ", cuda::model(purpose.device.index),
                           ": lowering, with images best channels-last, of ", node.op->name, " {", node.attributes.text(), '}');
  for (const int id : node.inputs) key += concat(", ", graph.type(id));
  for (const ops::Lowering& lowering : node.op->lowerings) key += concat(", ", lowering.name);
  return key + concat(readers, purpose.trained ? ", trained" : ", prepared once", settings.tf32 ? ", tf32" : "", ", workspace at most ",
                      settings.workspace_limit);
}

std::int64_t bytes_of(const Graph& graph, const Node& node) {
  std::int64_t bytes = 0;
  for (const int id : node.inputs) bytes += graph.type(id).bytes();
  for (const int id : node.outputs) bytes += graph.type(id).bytes();
  return bytes;
}

/// Values that look like data; zeros where only some integers are valid.
Bindings noise_for(const Graph& graph, Device device) {
  Bindings inputs;
  for (const Node* node : graph.all(NodeKind::input)) {
    const TensorType& type = graph.type(node->outputs[0]);
    Tensor& input = inputs[node->name];
    if (!is_floating(type.dtype)) {
      input = Tensor::zeros(type.shape, type.dtype, device);
      continue;
    }
    input = Tensor::empty(type.shape, type.dtype, device);
    cuda::fill_with_noise(input);
  }
  return inputs;
}

/// Microseconds of a run; infinite where the graph does not fit the device.
double time_of(const Graph& graph, State& state) {
  try {
    Executable executable(graph, state);
    executable.run(noise_for(executable.graph(), state.device()));
    Timer timer(state.device());
    for (int run = 0; run < 3; ++run) timer.time([&] { executable.run(); });  // the first records the steps
    timer.take();
    for (int run = 0; run < 7; ++run) timer.time([&] { executable.run(); });
    return quantile(timer.take(), 0.5);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory && error.kind() != ErrorKind::device) throw;
    return std::numeric_limits<double>::infinity();
  }
}

/// Which operations choose, and what their graph goes through then.
struct Stage {
  bool gradients;
  std::span<const Pass> passes;

  static Stage forward() { return {false, forward_pipeline()}; }
  static Stage gradient() { return {true, {}}; }

  bool has_choice(const Graph& graph, const Node& node) const {
    return node.kind == NodeKind::operation && !node.op->lowerings.empty() && node.op->is_gradient == gradients &&
           bytes_of(graph, node) >= smallest_bytes;
  }
};

/// Found on a call by itself: a whole graph takes its time to rewrite, and most lowerings apply to few operations.
bool applies(const ops::Lowering& lowering, const Graph& graph, const Node& node) {
  Graph call;
  Values inputs;
  for (const int id : node.inputs)
    inputs.push_back(call.input(concat("input ", inputs.size()), graph.type(id).shape, graph.type(id).dtype));
  return !lowering.rule(call, inputs, node.attributes).empty();
}

/// What all operations read and write.
std::int64_t bytes_moved(const Graph& graph) {
  std::int64_t bytes = 0;
  for (const Node* node : graph.all(NodeKind::operation)) {
    if (!node->op->view) bytes += bytes_of(graph, *node);
  }
  return bytes;
}

/// Names lowerings by types alone.
class Heuristic {
 public:
  Heuristic(const Graph& graph, Stage stage) : graph_(graph), stage_(stage) {}

  /// The lowering with which the fewest bytes are moved, if it saves a good part of what the operation moves: what follows is then fused
  /// with it. Else the lowering that usually is the fastest.
  std::string lowering_of(const Node& node) {
    if (!stage_.has_choice(graph_, node)) return {};
    constexpr double good_part = 0.5;
    std::string best;
    auto most_saved = static_cast<std::int64_t>(good_part * static_cast<double>(bytes_of(graph_, node)));
    for (const ops::Lowering& lowering : node.op->lowerings) {
      if (!applies(lowering, graph_, node)) continue;
      if (!plain_) plain_ = bytes_with(nullptr, "");
      const std::int64_t saved = *plain_ - bytes_with(&node, lowering.name);
      if (saved > most_saved) best = lowering.name, most_saved = saved;
    }
    if (!best.empty()) return best;
    const std::vector<TensorType> inputs = graph_.types(node.inputs);
    const auto likely = [&](const ops::Lowering& lowering) {
      return lowering.likely_fastest && lowering.likely_fastest(inputs) && applies(lowering, graph_, node);
    };
    const auto place = std::find_if(node.op->lowerings.begin(), node.op->lowerings.end(), likely);
    return place == node.op->lowerings.end() ? "" : place->name;
  }

 private:
  std::int64_t bytes_with(const Node* lowered, const std::string& name) const {
    return bytes_moved(apply_lowerings(
        graph_, [&](const Node& node) { return &node == lowered ? name : ""; }, stage_.passes));
  }

  const Graph& graph_;
  Stage stage_;
  std::optional<std::int64_t> plain_;  ///< bytes moved as it is
};

Graph apply_likely_lowerings(const Graph& graph, Stage stage, std::span<const Pass> passes) {
  Heuristic heuristic(graph, stage);
  return apply_lowerings(
      graph, [&](const Node& node) { return heuristic.lowering_of(node); }, passes);
}

/// Chooses a lowering for each operation that has some; calls that are equal choose together.
class Choice {
 public:
  Choice(const Graph& graph, const Purpose& purpose, Stage stage)
      : graph_(graph), purpose_(purpose), stage_(stage), heuristic_(graph, stage), state_(purpose.device) {}

  Graph run() {
    const std::vector<std::string> readers = readers_of(graph_);
    for (const Node& node : graph_.nodes()) {
      if (!stage_.has_choice(graph_, node)) continue;
      keys_[&node] = key_of(graph_, node, purpose_, readers[static_cast<std::size_t>(node.outputs[0])]);
    }
    for (const Node& node : graph_.nodes()) {
      const auto place = keys_.find(&node);
      if (place != keys_.end() && !chosen_.contains(place->second)) decide(node, place->second);
    }
    if (tried_) allocator_of(purpose_.device).trim();  // what the trials took serves nobody else
    return chosen_.empty() ? graph_ : current();
  }

 private:
  /// The graph as decided so far.
  Graph current() const {
    const auto lowering_of = [&](const Node& node) {
      const auto key = keys_.find(&node);
      const auto place = key == keys_.end() ? chosen_.end() : chosen_.find(key->second);
      return place == chosen_.end() ? std::string() : place->second;
    };
    return apply_lowerings(graph_, lowering_of, stage_.passes);
  }

  void decide(const Node& node, const std::string& key) {
    const auto known = plan_cache().find<ChosenLowering>(key);
    const bool search = numerics().search == Search::exhaustive;
    chosen_[key] = known ? known->lowering : search ? fastest(node, key) : heuristic_.lowering_of(node);
  }

  std::string fastest(const Node& node, const std::string& key) {
    std::string best;
    chosen_[key] = best;
    std::optional<Graph> plain;
    std::set<std::string> tried;
    std::optional<double> best_time;
    for (const ops::Lowering& lowering : node.op->lowerings) {
      if (!applies(lowering, graph_, node)) continue;
      if (!plain) tried.insert(to_text(plain.emplace(current())));
      chosen_[key] = lowering.name;
      Graph candidate = current();
      if (!tried.insert(to_text(candidate)).second) continue;  // it is what another lowering is
      tried_ = true;
      if (!best_time) best_time = time_of(purpose_.complete(*plain), state_);
      const double time = time_of(purpose_.complete(std::move(candidate)), state_);
      if (time >= least_gain * *best_time) continue;
      best = lowering.name;
      best_time = time;
    }
    if (best_time && std::isfinite(*best_time)) plan_cache().insert(key, ChosenLowering{best});
    return best;
  }

  const Graph& graph_;
  const Purpose& purpose_;
  Stage stage_;
  Heuristic heuristic_;
  State state_;
  std::map<const Node*, std::string> keys_;    // of the operations that have a choice
  std::map<std::string, std::string> chosen_;  // by key
  bool tried_ = false;
};

Graph choose_lowerings(const Graph& graph, const Purpose& purpose, Stage stage) {
  if (purpose.device.kind == DeviceKind::cpu) return graph;
  return numerics().deterministic ? apply_likely_lowerings(graph, stage, stage.passes) : Choice(graph, purpose, stage).run();
}

}  // namespace

Graph apply_lowerings(const Graph& graph, const LoweringOf& lowering_of, std::span<const Pass> passes) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    Values values;  // none where the lowering does not apply
    if (node.kind == NodeKind::operation && !node.op->lowerings.empty()) {
      const std::string name = lowering_of(node);
      for (const ops::Lowering& lowering : node.op->lowerings) {
        if (name == lowering.name) values = lowering.rule(rewriter.target(), rewriter(node.inputs), node.attributes);
      }
    }
    if (values.empty()) rewriter.copy(node);
    for (std::size_t i = 0; i < values.size(); ++i) {
      FRIT_CHECK(values[i].type() == graph.type(node.outputs[i]));
      rewriter.map(node.outputs[i], values[i]);
    }
  }
  return apply(passes, rewriter.finish());
}

Graph choose_lowerings(const Graph& forward, const Purpose& purpose) {
  return purpose.device.kind == DeviceKind::cpu ? forward : choose_lowerings(align_scores(forward), purpose, Stage::forward());
}

Graph choose_gradient_lowerings(const Graph& graph, const Purpose& purpose) { return choose_lowerings(graph, purpose, Stage::gradient()); }

Graph apply_likely_lowerings(const Graph& forward, std::span<const Pass> passes) {
  return apply_likely_lowerings(align_scores(forward), Stage::forward(), passes);
}

}  // namespace frit::graph
