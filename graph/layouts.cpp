#include "frit/graph/layouts.h"

#include <algorithm>

namespace frit::graph {
namespace {

bool contains(const std::vector<int>& list, std::size_t index) {
  return std::find(list.begin(), list.end(), static_cast<int>(index)) != list.end();
}

}  // namespace

std::vector<Layout> choose_layouts(const Graph& graph, Device device) {
  std::vector<Layout> layouts(static_cast<std::size_t>(graph.value_count()), Layout::contiguous);
  if (device.kind == DeviceKind::cpu) return layouts;
  const auto layout = [&](int value) -> Layout& { return layouts[static_cast<std::size_t>(value)]; };
  for (const Node& node : graph.nodes()) {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const bool any_layout = node.kind == NodeKind::input || (node.kind == NodeKind::operation && !node.op->view &&
                                                               contains(node.op->kernel_on(device).any_layout_outputs, i));
      if (any_layout && graph.type(node.outputs[i]).shape.rank() >= 4) layout(node.outputs[i]) = Layout::channels_last;
    }
    if (node.kind != NodeKind::operation) continue;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.op->view || !contains(node.op->kernel_on(device).any_layout_inputs, i)) layout(node.inputs[i]) = Layout::contiguous;
    }
  }
  for (const Output& output : graph.outputs()) layout(output.value) = Layout::contiguous;
  return layouts;
}

}  // namespace frit::graph
