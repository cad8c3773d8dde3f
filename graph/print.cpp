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
  text << "digraph frit {\n  node [shape=box, fontname=\"sans-serif\"];\n";
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const std::string detail = node.kind == NodeKind::operation && !node.attributes.text().empty() ? "\\n" + node.attributes.text() : "";
    const char* const style = node.kind == NodeKind::operation ? "" : ", style=rounded";
    text << "  n" << n << " [label=" << quoted(label(node) + detail) << style << "];\n";
    for (const int id : node.inputs) {
      text << "  n" << graph.producer_index(id) << " -> n" << n << " [label=" << quoted(concat(graph.type(id))) << "];\n";
    }
  }
  for (std::size_t o = 0; o < graph.outputs().size(); ++o) {
    const Output& output = graph.outputs()[o];
    text << "  o" << o << " [label=" << quoted("output " + printable(output.name)) << ", style=rounded];\n";
    text << "  n" << graph.producer_index(output.value) << " -> o" << o << " [label=" << quoted(concat(graph.type(output.value))) << "];\n";
  }
  text << "}\n";
  return text.str();
}

}  // namespace frit::graph
