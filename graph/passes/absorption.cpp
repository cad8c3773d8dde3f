#include <algorithm>
#include <optional>

#include "frit/graph/index.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// A value, and what elementwise operations with single numbers make of its elements, the last one first.
struct Operand {
  int value;
  std::vector<const Node*> scalings = {};
};

struct AbsorbingCall {
  std::vector<Operand> inputs;
  ops::Attributes attributes;
};

class Absorber {
 public:
  explicit Absorber(const Graph& graph) : graph_(graph), uses_(use_counts(graph)), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : graph_.nodes()) node.kind == NodeKind::operation ? rewrite(node) : rewriter_.copy(node);
    return remove_dead_code(rewriter_.finish());
  }

 private:
  void rewrite(const Node& node) {
    AbsorbingCall call{{}, node.attributes};
    for (const int id : node.inputs) call.inputs.push_back({id});
    if (node.op->absorb) absorb_producers(node, call);
    drop_casts(node, call);
    Values inputs;
    for (const Operand& input : call.inputs) inputs.push_back(made(input));
    const Values outputs = rewriter_.target().emit(*node.op, inputs, call.attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) rewriter_.map(node.outputs[i], outputs[i]);
  }

  /// Takes over what the inputs' producers do, one before the other, if nothing else reads that or it costs nothing; permutations, though
  /// numbers scale the elements after them.
  void absorb_producers(const Node& node, AbsorbingCall& call) const {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      while (call.inputs[i].scalings.empty() && absorb_producer(node, i, call)) {
      }
    }
  }

  bool absorb_producer(const Node& node, std::size_t i, AbsorbingCall& call) const {
    const int read = call.inputs[i].value;
    Operand operand{read};
    while (const std::optional<std::size_t> scaled = scaled_input(operand.value)) {
      operand.scalings.push_back(&graph_.producer(operand.value));
      operand.value = operand.scalings.back()->inputs[*scaled];
    }
    const Node& beyond = graph_.producer(operand.value);
    if (beyond.kind != NodeKind::operation || !beyond.op->permutation) operand = {read};
    const Node& producer = graph_.producer(operand.value);
    if (producer.kind != NodeKind::operation || producer.outputs.size() != 1) return false;
    const bool is_free = producer.op->view || (producer.op->permutation && reads_any_layout(node, i));
    if (uses_[index(operand.value)] != 1 && !is_free) return false;
    const TensorType& type = graph_.type(producer.inputs[0]);
    const auto attributes = node.op->absorb({producer.op, producer.attributes}, type, i, call.attributes);
    if (!attributes) return false;
    AbsorbingCall absorbing{call.inputs, *attributes};
    absorbing.inputs[i] = {producer.inputs[0], operand.scalings};
    if (!fits(node, absorbing)) return false;
    call = std::move(absorbing);
    return true;
  }

  static bool reads_any_layout(const Node& node, std::size_t input) {
    const std::vector<int>& inputs = node.op->cpu.any_layout_inputs;
    return std::find(inputs.begin(), inputs.end(), static_cast<int>(input)) != inputs.end();
  }

  /// Reads what casts from and to halves read, where the operator can do without them.
  void drop_casts(const Node& node, AbsorbingCall& call) const {
    const std::vector<int>& any = node.op->any_precision;
    for (std::size_t input = 0; input < node.inputs.size(); ++input) {
      const auto declared = static_cast<int>(std::min(input, node.op->inputs.size() - 1));  // the last one may repeat
      if (std::find(any.begin(), any.end(), declared) == any.end()) continue;
      const Node& producer = graph_.producer(node.inputs[input]);
      if (producer.kind != NodeKind::operation || !producer.op->conversion) continue;
      const DType from = graph_.type(producer.inputs[0]).dtype, to = graph_.type(node.inputs[input]).dtype;
      if (!(is_half(from) && to == DType::f32) && !(from == DType::f32 && is_half(to))) continue;
      AbsorbingCall uncast = call;
      uncast.inputs[input] = {producer.inputs[0]};
      if (fits(node, uncast)) call = std::move(uncast);
    }
  }

  /// The input of the elementwise operation that gives a value, for one reader, if its others are single numbers.
  std::optional<std::size_t> scaled_input(int value) const {
    const Node& node = graph_.producer(value);
    if (node.kind != NodeKind::operation || !node.op->elementwise || node.outputs.size() != 1 || uses_[index(value)] != 1) return {};
    std::optional<std::size_t> scaled;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorType& type = graph_.type(node.inputs[i]);
      if (type.elements() == 1 && type.shape.rank() <= 1) continue;
      if (scaled || type.shape != graph_.type(value).shape) return {};
      scaled = i;
    }
    return scaled;
  }

  /// Whether the node's operator makes of the call what it makes of the node's inputs.
  bool fits(const Node& node, const AbsorbingCall& call) const try {
    std::vector<TensorType> types;
    for (const Operand& input : call.inputs) {
      types.push_back(graph_.type(input.value));
      if (!input.scalings.empty()) types.back().dtype = graph_.type(input.scalings.front()->outputs[0]).dtype;
    }
    return node.op->infer_types(types, call.attributes) == graph_.types(node.outputs);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::argument) throw;
    return false;
  }

  Value made(const Operand& operand) {
    Value value = rewriter_(operand.value);
    for (auto place = operand.scalings.rbegin(); place != operand.scalings.rend(); ++place) {
      const Node& node = **place;
      Values inputs = rewriter_(node.inputs);
      inputs[*scaled_input(node.outputs[0])] = value;
      value = rewriter_.target().emit(*node.op, inputs, node.attributes).at(0);
    }
    return value;
  }

  const Graph& graph_;
  std::vector<int> uses_;
  Rewriter rewriter_;
};

}  // namespace

Graph absorb(const Graph& graph) { return Absorber(graph).run(); }

}  // namespace frit::graph
