#include "frit/graph/layouts.h"

#include <algorithm>
#include <map>

#include "frit/core/tensor.h"
#include "frit/graph/index.h"
#include "frit/graph/minimum_cut.h"
#include "frit/graph/preparation.h"
#include "frit/graph/rewriter.h"
#include "frit/ops/operator/run.h"

namespace frit::graph {
namespace {

constexpr int channels_last = MinimumCut::source, contiguous = MinimumCut::sink;

// Costs, as bytes that would take as long to move.
/// Reads and writes an image.
constexpr std::int64_t conversion_cost(std::int64_t bytes) { return 2 * bytes; }
/// A kernel reads or writes an image in another order than the one in which it goes through the others.
constexpr std::int64_t disorder_cost(std::int64_t bytes) { return bytes / 8; }
/// A kernel rearranges a weight by itself, if it has to at all: on a GPU in a launch of its own, where conversions of several share one.
constexpr std::int64_t weight_cost(std::int64_t bytes, Device device) { return device.kind == DeviceKind::cuda ? 3 * bytes : bytes; }
/// A kernel that prefers channels-last takes several times as long; more than all conversions of its images.
constexpr std::int64_t slowness_cost(std::int64_t bytes) { return 8 * bytes; }

/// Where bytes do not decide, images that kernels take either way lie channels-last; inputs that no kernel takes so come contiguous.
constexpr std::int64_t preference_for_channels_last = 2, preference_for_contiguous_inputs = 1;
/// An output lies as it is best computed, or contiguous where that costs nothing: less than any kernel's disorder.
constexpr std::int64_t preference_for_contiguous_output(std::int64_t bytes) { return bytes / 16; }
/// Those of a CPU are read where they lie.
bool outputs_are_contiguous(Device device) { return device.kind == DeviceKind::cpu; }

bool contains(const std::vector<int>& list, std::size_t index) {
  return std::find(list.begin(), list.end(), static_cast<int>(index)) != list.end();
}

Tensor without_memory(const TensorType& type, Layout layout) { return Tensor::over(nullptr, type.shape, type.dtype, {}, nullptr, layout); }

/// Whether a value's two layouts differ; other values are contiguous.
bool is_image(const TensorType& type) { return type.shape.rank() >= 4 && !without_memory(type, Layout::channels_last).is_contiguous(); }

/// A kernel's images, by the place of the input or output in the call: whether they may lie in either layout.
struct Images {
  std::map<std::size_t, bool> inputs, outputs;

  Images(const Graph& graph, const Node& node, Device device) {
    const ops::Kernel& kernel = node.op->kernel_on(device);
    // What is prepacked is brought into another order anyway.
    const ops::Prepacking prepacked =
        ops::prepacking_of(*node.op, graph.types(node.inputs), graph.types(node.outputs), node.attributes, device, {});
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const std::size_t declared = node.op->variadic ? std::min(i, node.op->inputs.size() - 1) : i;  // the last input of some repeats
      const bool ordered = prepacked.bytes > 0 && prepacked.input == i;
      if (is_image(graph.type(node.inputs[i]))) inputs[i] = !ordered && contains(kernel.any_layout_inputs, declared);
    }
    int rank = 0;
    for (const auto& [i, any] : inputs) rank = any ? std::max(rank, graph.type(node.inputs[i]).shape.rank()) : rank;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const TensorType& type = graph.type(node.outputs[i]);
      const bool alike = !kernel.one_layout || inputs.empty() || type.shape.rank() == rank;  // else it has other axes
      if (is_image(type)) outputs[i] = alike && contains(kernel.any_layout_outputs, i);
    }
  }
};

bool permutes_to_view(const Graph& graph, const Node& node, Layout from, Layout to) {
  const TensorType &input = graph.type(node.inputs[0]), &output = graph.type(node.outputs[0]);
  if (from == Layout::channels_last && !is_image(input)) return false;
  if (to == Layout::channels_last && !is_image(output)) return false;
  return without_memory(input, from).permute(node.op->permutation(node.attributes)).is_contiguous(to);
}

/// A minimum cut, channels-last on one side: of images, and of operations, which go through their images in one layout.
class LayoutChoice {
 public:
  /// `converting`: conversions may be added, at a cost.
  LayoutChoice(const Graph& graph, Device device, bool converting)
      : graph_(graph),
        device_(device),
        converting_(converting),
        images_(index(graph.value_count()), -1),
        operations_(graph.nodes().size(), -1),
        fixed_(fixed_values(graph)) {
    for (int id = 0; id < graph.value_count(); ++id) {
      if (is_image(graph.type(id))) images_[index(id)] = cut_.add_vertex();
    }
    for (std::size_t n = 0; n < operations_.size(); ++n) {
      const Node& node = graph.nodes()[n];
      if (runs_kernel(node)) {
        kernels_.emplace(n, Images(graph, node, device));
        add_kernel(n, operations_[n] = cut_.add_vertex());
      } else {
        add_other(node);
      }
    }
    for (const Output& output : graph.outputs()) {
      const int image = images_[index(output.value)];
      if (image < 0) continue;
      if (outputs_are_contiguous(device)) {
        read(output.value, contiguous);
      } else {
        cut_.add_edge(image, contiguous, preference_for_contiguous_output(bytes(output.value)));
      }
    }
    contiguous_ = cut_.sink_side();
  }

  Layout of(int value) const { return layout_at(images_[index(value)]); }
  /// In which layout an operation wants an input.
  Layout wanted(std::size_t n, std::size_t input) const {
    const Node& node = graph_.nodes()[n];
    const int value = node.inputs[input];
    if (!is_image(graph_.type(value)) || !runs_kernel(node)) return Layout::contiguous;
    if (!kernels_.at(n).inputs.at(input)) return Layout::contiguous;
    return in_one_layout(node, value) ? layout_at(operations_[n]) : of(value);
  }

 private:
  static bool runs_kernel(const Node& node) { return node.kind == NodeKind::operation && !node.op->view; }
  bool mixes_layouts(const Node& node) const {
    const ops::Kernel& kernel = node.op->kernel_on(device_);
    return !kernel.one_layout || (kernel.mixes_layouts && kernel.mixes_layouts(node.attributes));
  }
  /// A CPU's convolutions bring the graph's outputs into order while they are in the cache.
  bool orders(const Node& node, int value) const {
    if (!outputs_are_contiguous(device_) || !node.op->kernel_on(device_).prefers_channels_last || !mixes_layouts(node)) return false;
    const auto is_value = [value](const Output& output) { return output.value == value; };
    return std::any_of(graph_.outputs().begin(), graph_.outputs().end(), is_value);
  }
  /// Whether a kernel must have a value in the layout of its others.
  bool in_one_layout(const Node& node, int value) const {
    if (!mixes_layouts(node)) return true;
    const ops::Kernel& kernel = node.op->kernel_on(device_);
    return converting_ && kernel.prefers_channels_last && (!is_weight(node, value) || fixed_[index(value)]);
  }
  /// What has another batch than input 0. A kernel that takes mixed layouts takes weights as they come, unless they can be converted once.
  bool is_weight(const Node& node, int value) const { return graph_.type(value).shape[0] != graph_.type(node.inputs[0]).shape[0]; }
  Layout layout_at(int vertex) const { return vertex < 0 || contiguous_[index(vertex)] ? Layout::contiguous : Layout::channels_last; }
  std::int64_t bytes(int value) const { return graph_.type(value).bytes(); }

  void prefer_channels_last(int value) { cut_.add_edge(channels_last, images_[index(value)], preference_for_channels_last); }
  void tie(int a, int b, std::int64_t cost = MinimumCut::unlimited) { cut_.add_edge(a, b, cost, cost); }

  /// Some operation wants a value in the layout that `reader` is in. One conversion serves all that want the other layout.
  void read(int value, int reader) {
    const int image = images_[index(value)];
    if (image < 0) return;
    if (!converting_) return tie(image, reader);
    auto [place, added] = conversions_.try_emplace(value);
    auto& [to_contiguous, to_channels_last] = place->second;
    if (added) {
      to_contiguous = cut_.add_vertex();
      to_channels_last = cut_.add_vertex();
      cut_.add_edge(image, to_contiguous, conversion_cost(bytes(value)));
      cut_.add_edge(to_channels_last, image, conversion_cost(bytes(value)));
    }
    cut_.add_edge(to_contiguous, reader, MinimumCut::unlimited);
    cut_.add_edge(reader, to_channels_last, MinimumCut::unlimited);
  }

  void add_kernel(std::size_t n, int operation) {
    const Node& node = graph_.nodes()[n];
    const ops::Kernel& kernel = node.op->kernel_on(device_);
    const Images& images = kernels_.at(n);
    if (node.op->permutation) return add_permutation(node);
    const bool elementwise = node.op->elementwise || node.op->join;
    std::int64_t all_bytes = 0;
    const bool once = !node.outputs.empty() && fixed_[index(node.outputs[0])];
    const auto mix = [&](int value) {
      if (once) return;
      if (kernel.prefers_channels_last && is_weight(node, value)) {
        return tie(images_[index(value)], operation, weight_cost(bytes(value), device_));
      }
      tie(images_[index(value)], operation, elementwise ? disorder_cost(bytes(value)) : conversion_cost(bytes(value)));
    };
    for (const auto& [i, any] : images.inputs) {
      const int value = node.inputs[i];
      if (any) prefer_channels_last(value), all_bytes += bytes(value);
      if (any && !in_one_layout(node, value)) {
        mix(value);
      } else {
        read(value, any ? operation : contiguous);
      }
    }
    for (const auto& [i, any] : images.outputs) {
      const int value = node.outputs[i];
      if (any) prefer_channels_last(value), all_bytes += bytes(value);
      if (any && orders(node, value)) {
        tie(images_[index(value)], operation, disorder_cost(bytes(value)));
      } else if (any && !in_one_layout(node, value)) {
        mix(value);
      } else {
        tie(images_[index(value)], any ? operation : contiguous);
      }
    }
    if (kernel.prefers_channels_last) cut_.add_edge(channels_last, operation, slowness_cost(all_bytes));
  }

  /// Costs a copy but for the layouts with which it is a view.
  void add_permutation(const Node& node) {
    const auto prefer = [&](int value, Layout layout) {
      const int image = images_[index(value)];
      if (image < 0) return;
      const bool last = layout == Layout::channels_last;
      cut_.add_edge(last ? channels_last : image, last ? image : contiguous, bytes(value));
    };
    for (const Layout from : {Layout::contiguous, Layout::channels_last}) {
      for (const Layout to : {Layout::contiguous, Layout::channels_last}) {
        if (!permutes_to_view(graph_, node, from, to)) continue;
        prefer(node.inputs[0], from);
        return prefer(node.outputs[0], to);
      }
    }
  }

  /// Views are of contiguous tensors. Variables and constants lie as the world outside knows them.
  void add_other(const Node& node) {
    for (const int value : node.inputs) read(value, contiguous);
    for (const int value : node.outputs) {
      if (images_[index(value)] < 0) continue;
      const bool is_input = node.kind == NodeKind::input;
      cut_.add_edge(images_[index(value)], contiguous, is_input ? preference_for_contiguous_inputs : MinimumCut::unlimited);
    }
  }

  const Graph& graph_;
  Device device_;
  bool converting_;
  MinimumCut cut_;
  std::vector<int> images_;                // by value: its vertex, if it is an image
  std::vector<int> operations_;            // by node: its vertex, if it runs a kernel
  std::vector<bool> fixed_;                // by value
  std::map<std::size_t, Images> kernels_;  // by node: of those
  std::map<int, std::pair<int, int>> conversions_;
  std::vector<bool> contiguous_;  // by vertex
};

}  // namespace

Graph convert_layouts(const Graph& graph, Device device) {
  const LayoutChoice choice(graph, device, true);
  Rewriter rewriter(graph);
  std::map<int, Value> converted;
  const auto laid_out = [&](int id, Layout layout) {
    const Value value = rewriter(id);
    if (choice.of(id) == layout) return value;
    Value& result = converted[id];
    if (!result) result = convert(rewriter.target(), value, value.dtype());
    return result;
  };
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (node.kind != NodeKind::operation) {
      rewriter.copy(node);
      continue;
    }
    Values inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(laid_out(node.inputs[i], choice.wanted(n, i)));
    const Values outputs = rewriter.target().emit(*node.op, inputs, node.attributes);
    for (std::size_t i = 0; i < outputs.size(); ++i) rewriter.map(node.outputs[i], outputs[i]);
  }
  for (const Output& output : graph.outputs()) {
    const bool reads = outputs_are_contiguous(device);
    rewriter.target().output(output.name, reads ? laid_out(output.value, Layout::contiguous) : rewriter(output.value));
  }
  return std::move(rewriter.target());
}

std::vector<Layout> choose_layouts(const Graph& graph, Device device) {
  std::vector<Layout> layouts(index(graph.value_count()), Layout::contiguous);
  const LayoutChoice choice(graph, device, false);
  for (int id = 0; id < graph.value_count(); ++id) layouts[index(id)] = choice.of(id);
  return layouts;
}

bool gives_a_view(const Graph& graph, const Node& operation, const std::vector<Layout>& layouts) {
  if (operation.op->view || !operation.op->permutation) return operation.op->view;
  return permutes_to_view(graph, operation, layouts[index(operation.inputs[0])], layouts[index(operation.outputs[0])]);
}

}  // namespace frit::graph
