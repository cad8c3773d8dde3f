#include <algorithm>
#include <map>

#include "frit/graph/index.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/preparation.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// How much larger a result must be than the other inputs, which are multiplied in its place and have gradients, too.
constexpr std::int64_t least_affine_gain = 4;

class ChannelAffines {
 public:
  ChannelAffines(const Graph& graph, bool prepared)
      : graph_(graph), uses_(use_counts(graph)), fixed_(fixed_values(graph)), prepared_(prepared), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : graph_.nodes()) {
      Values folded = folded_call(node);
      if (folded.empty() && !prepared_) folded = ordered_call(node);
      folded.empty() ? rewriter_.copy(node) : rewriter_.map(node.outputs[0], folded[0]);
    }
    return remove_dead_code(rewriter_.finish());
  }

 private:
  /// An operation, and what becomes of its result.
  struct Scaled {
    Node producer;
    ops::ChannelAffine affine = {};
  };

  /// The result of an operation on images, from the one that gives the images; none if it cannot.
  Values folded_call(const Node& node) {
    if (node.kind != NodeKind::operation || !node.op->channel_affine) return {};
    for (std::size_t of = 0; of < node.inputs.size(); ++of) {
      const Values folded = folded_call(node, of);
      if (!folded.empty()) return folded;
    }
    return {};
  }

  Values folded_call(const Node& node, std::size_t of) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (i != of && !fixed_[index(node.inputs[i])]) return {};
    }
    const TensorType& type = graph_.type(node.inputs[of]);
    if (uses_[index(node.inputs[of])] != 1 || graph_.type(node.outputs[0]) != type) return {};
    Graph& target = rewriter_.target();
    const int images = rewriter_(node.inputs[of]).id();
    Scaled scaled = folded_.contains(images) ? folded_.at(images) : Scaled{target.producer(images)};
    const Node& producer = scaled.producer;
    if (producer.kind != NodeKind::operation || !producer.op->fold_channel_affine) return {};
    Values inputs;
    for (const int id : producer.inputs) inputs.push_back(target.value(id));
    const bool gains = prepared_ ? has_fixed_numbers(graph_.producer(node.inputs[of]))  //
                                 : least_affine_gain * bytes_of_numbers(producer) <= type.bytes();
    if (!gains) return {};
    scaled.affine = node.op->channel_affine(rewriter_(node.inputs), of, scaled.affine);
    if (!scaled.affine) return {};
    inputs = producer.op->fold_channel_affine(inputs, producer.attributes, scaled.affine);
    if (inputs.empty()) return {};
    const Values results = target.emit(*producer.op, inputs, producer.attributes);
    folded_.emplace(results[0].id(), std::move(scaled));
    return results;
  }

  /// The result of an operation that gets its channels in the order that it prefers from what gives them; none if it cannot.
  Values ordered_call(const Node& node) {
    if (node.kind != NodeKind::operation || !node.op->channel_order || uses_[index(node.inputs[0])] != 1) return {};
    const std::optional<ops::ChannelOrder> wanted = node.op->channel_order(node.attributes);
    Graph& target = rewriter_.target();
    const Node producer = target.producer(rewriter_(node.inputs[0]).id());
    if (!wanted || producer.kind != NodeKind::operation || !producer.op->fold_channel_affine) return {};
    Values inputs;
    for (const int id : producer.inputs) inputs.push_back(target.value(id));
    inputs = producer.op->fold_channel_affine(inputs, producer.attributes, {.order = wanted->order});
    if (inputs.empty()) return {};
    const Values images = target.emit(*producer.op, inputs, producer.attributes);
    return target.emit(*node.op, std::span(images).first(1), wanted->attributes);
  }

  // Of what an operation reads besides its images.
  bool has_fixed_numbers(const Node& operation) const {
    return std::count_if(operation.inputs.begin(), operation.inputs.end(), [&](int id) { return !fixed_[index(id)]; }) <= 1;
  }
  std::int64_t bytes_of_numbers(const Node& of_target) {
    std::int64_t bytes = 0;
    for (const int id : std::span(of_target.inputs).subspan(1)) bytes += rewriter_.target().type(id).bytes();
    return bytes;
  }

  const Graph& graph_;
  std::vector<int> uses_;
  std::vector<bool> fixed_;
  bool prepared_;
  Rewriter rewriter_;
  std::map<int, Scaled> folded_;  ///< by the target's value: what it was before anything was folded into it
};

}  // namespace

Graph fold_channel_affines(const Graph& graph) { return ChannelAffines(graph, /*prepared=*/false).run(); }
Graph prepare_channel_affines(const Graph& graph) { return ChannelAffines(graph, /*prepared=*/true).run(); }

}  // namespace frit::graph
