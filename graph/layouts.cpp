#include "frit/graph/layouts.h"

#include <algorithm>

namespace frit::graph {
namespace {

bool contains(const std::vector<int>& list, std::size_t index) {
  return std::find(list.begin(), list.end(), static_cast<int>(index)) != list.end();
}

/// Chosen by elimination: what may lie channels-last begins so, and whatever is in its way makes it contiguous.
class LayoutChoice {
 public:
  LayoutChoice(const Graph& graph, Device device)
      : graph_(graph), device_(device), layouts_(static_cast<std::size_t>(graph.value_count()), Layout::contiguous) {}

  std::vector<Layout> run() {
    for (const Node& node : graph_.nodes()) allow(node);
    for (const Node& node : graph_.nodes()) forbid(node);
    for (const Output& output : graph_.outputs()) layout(output.value) = Layout::contiguous;
    while (std::any_of(graph_.nodes().begin(), graph_.nodes().end(), [&](const Node& node) { return unify(node); })) {
    }
    return std::move(layouts_);
  }

 private:
  Layout& layout(int value) { return layouts_[static_cast<std::size_t>(value)]; }
  bool is_image(int value) const { return graph_.type(value).shape.rank() >= 4; }
  const ops::Kernel* kernel(const Node& node) const {
    return node.kind == NodeKind::operation && !node.op->view ? &node.op->kernel_on(device_) : nullptr;
  }
  /// The last input of some operators repeats.
  static std::size_t declared(const Node& node, std::size_t input) {
    return node.op->variadic ? std::min(input, node.op->inputs.size() - 1) : input;
  }

  void allow(const Node& node) {
    const ops::Kernel* const kernel = this->kernel(node);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const bool any = node.kind == NodeKind::input || (kernel != nullptr && contains(kernel->any_layout_outputs, i));
      if (any && is_image(node.outputs[i])) layout(node.outputs[i]) = Layout::channels_last;
    }
  }

  void forbid(const Node& node) {
    const ops::Kernel* const kernel = this->kernel(node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (kernel == nullptr || !contains(kernel->any_layout_inputs, declared(node, i))) layout(node.inputs[i]) = Layout::contiguous;
    }
  }

  /// Whether an operation that wants its images in one layout had them in two.
  bool unify(const Node& node) {
    const ops::Kernel* const kernel = this->kernel(node);
    if (kernel == nullptr || !kernel->one_layout) return false;
    std::vector<int> images;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (contains(kernel->any_layout_inputs, declared(node, i)) && is_image(node.inputs[i])) images.push_back(node.inputs[i]);
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (contains(kernel->any_layout_outputs, i) && is_image(node.outputs[i])) images.push_back(node.outputs[i]);
    }
    const auto last = [&](int value) { return layout(value) == Layout::channels_last; };
    if (std::all_of(images.begin(), images.end(), last) || std::none_of(images.begin(), images.end(), last)) return false;
    for (const int value : images) layout(value) = Layout::contiguous;
    return true;
  }

  const Graph& graph_;
  Device device_;
  std::vector<Layout> layouts_;
};

}  // namespace

std::vector<Layout> choose_layouts(const Graph& graph, Device device) {
  if (device.kind == DeviceKind::cpu) return std::vector<Layout>(static_cast<std::size_t>(graph.value_count()), Layout::contiguous);
  return LayoutChoice(graph, device).run();
}

}  // namespace frit::graph
