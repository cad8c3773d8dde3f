#include <sstream>

#include "frit/core/text.h"
#include "frit/graph/graph.h"

namespace frit::graph {
namespace {

std::string label(const Node& node) {
  switch (node.kind) {
    case NodeKind::input: return "input \"" + printable(node.name) + "\"";
    case NodeKind::variable: return "variable \"" + printable(node.name) + "\"";
    case NodeKind::constant: return node.constant.elements() == 1 ? concat("constant ", node.constant.item()) : "constant";
    case NodeKind::operation: return node.op->name;
  }
  return {};
}

constexpr const char* outer_style = ", style=\"filled,rounded\", fillcolor=\"#eeeeee\", color=\"#aaaaaa\"";

/// An operator that stands for what a model writes; activations and norms have a decomposition too, but are written as themselves.
bool is_fused(const ops::Operator& op) { return op.decompose && !op.elementwise && !op.pointwise; }

/// Inputs, constants and outputs are grey, fused operators green, updates of variables yellow, views, which cost nothing, white.
std::string style_of(const Node& node) {
  if (node.kind != NodeKind::operation) return outer_style;
  if (is_fused(*node.op)) return ", fillcolor=\"#d5efd5\", color=\"#5fa55f\", penwidth=1.5";
  if (!node.op->mutates.empty()) return ", fillcolor=\"#fdf3d0\", color=\"#d9b84a\"";
  return node.op->view ? ", fillcolor=white, style=\"filled,dashed\"" : "";
}

/// Variables and single numbers are drawn as lines of the operations that read them: as nodes they would hide what flows.
bool is_drawn_inside(const Node& node) {
  return node.kind == NodeKind::variable || (node.kind == NodeKind::constant && node.constant.elements() == 1);
}

std::string lines_of_operands(const Graph& graph, const Node& node) {
  const int shown = node.kind == NodeKind::operation && !node.op->mutates.empty() ? 1 : 4;  // an update reads many that follow from one
  std::string text;
  int count = 0;
  for (const int id : node.inputs) {
    const Node& source = graph.producer(id);
    if (!is_drawn_inside(source) || ++count > shown) continue;
    text += source.kind == NodeKind::constant ? concat("\\n", label(source)) : concat("\\n", printable(source.name), "  ", graph.type(id));
  }
  return count > shown ? concat(text, "\\nand ", count - shown, " more") : text;
}

/// Lines of some words each.
std::string wrapped(const std::string& text) {
  constexpr std::size_t width = 48;
  std::string result;
  std::size_t line = 0;
  for (const char c : text) {
    const bool full = c == ' ' && line > width;
    result += full ? "\\n" : std::string(1, c);
    line = full ? 0 : line + 1;
  }
  return result;
}

}  // namespace

std::string to_text(const Graph& graph, const Node& node) {
  std::ostringstream text;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) text << (i == 0 ? "%" : ", %") << node.outputs[i];
  text << (node.outputs.empty() ? "" : " = ") << label(node);
  if (node.kind == NodeKind::operation) {
    text << '(';
    for (std::size_t i = 0; i < node.inputs.size(); ++i) text << (i == 0 ? "%" : ", %") << node.inputs[i];
    text << ')';
    if (!node.attributes.text().empty()) text << " {" << node.attributes.text() << '}';
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) text << (i == 0 ? " : " : ", ") << graph.type(node.outputs[i]);
  return text.str();
}

std::string to_text(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes()) text += to_text(graph, node) + '\n';
  for (const Output& output : graph.outputs()) text += concat("output \"", printable(output.name), "\" = %", output.value, '\n');
  return text;
}

std::string to_dot(const Graph& graph) {
  const auto quoted = [](const std::string& content) {
    std::string result = "\"";
    for (const char c : content) result += c == '"' ? "\\\"" : std::string(1, c);
    return result + '"';
  };
  std::ostringstream text;
  text << "digraph frit {\n  ranksep=0.35;\n  node [shape=box, style=filled, fillcolor=\"#dbe9f6\", color=\"#8fb3d3\", "
          "fontname=\"Helvetica,sans-serif\", "
          "fontsize=11, margin=\"0.12,0.06\", height=0.3];\n  edge [fontname=\"Helvetica,sans-serif\", fontsize=9, color=\"#777777\", "
          "fontcolor=\"#555555\", arrowsize=0.7];\n";
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (is_drawn_inside(node)) continue;
    std::string lines = label(node);
    if (node.kind == NodeKind::operation && !node.attributes.text().empty()) lines += "\\n" + wrapped(node.attributes.text());
    lines += lines_of_operands(graph, node);
    text << "  n" << n << " [label=" << quoted(lines) << style_of(node) << "];\n";
    for (const int id : node.inputs) {
      if (is_drawn_inside(graph.producer(id))) continue;
      text << "  n" << graph.producer_index(id) << " -> n" << n << " [label=" << quoted(concat(graph.type(id))) << "];\n";
    }
  }
  for (std::size_t o = 0; o < graph.outputs().size(); ++o) {
    const Output& output = graph.outputs()[o];
    text << "  o" << o << " [label=" << quoted("output " + printable(output.name)) << outer_style << "];\n";
    text << "  n" << graph.producer_index(output.value) << " -> o" << o << " [label=" << quoted(concat(graph.type(output.value))) << "];\n";
  }
  text << "}\n";
  return text.str();
}

}  // namespace frit::graph
