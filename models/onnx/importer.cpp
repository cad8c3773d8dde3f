#include "frit/models/onnx/importer.h"

#include <algorithm>

#include "frit/core/text.h"
#include "frit/models/onnx/tensor_data.h"
#include "frit/ops/operator/run.h"

namespace frit::onnx {
namespace {

/// Refusals that a message lists; more are counted.
constexpr std::size_t most_listed = 50;
/// A result that is computed at import may take so many bytes, or as many as the largest that it is computed from, and what is computed for
/// it some times as many; what takes more is left to the run.
constexpr std::int64_t folded_bytes = 1 << 20, folded_times = 16;
/// All constants that nodes make may take so many, besides four times those of the initialisers; and the graph have so many nodes.
constexpr std::int64_t constant_bytes = 64 << 20;
constexpr std::size_t most_nodes = 1 << 20;

/// Whether no operation of a graph gives more than so many bytes, nor all of them together some times as many.
bool gives_at_most(const Graph& graph, std::int64_t bytes) {
  std::int64_t left = folded_times * bytes;
  for (const graph::Node& node : graph.nodes()) {
    if (node.kind != graph::NodeKind::operation) continue;
    for (const int id : node.outputs) {
      const std::int64_t given = graph.type(id).bytes();
      left -= std::min(given, left);
      if (given > bytes || left == 0) return false;
    }
  }
  return true;
}

/// Of a graph that depends on nothing.
std::vector<Tensor> evaluate(const Graph& graph, const Values& results) {
  std::vector<Tensor> tensors(static_cast<std::size_t>(graph.value_count()));
  for (const graph::Node& node : graph.nodes()) {
    std::vector<Tensor> computed = {node.constant};
    if (node.kind == graph::NodeKind::operation) {
      std::vector<Tensor> inputs;
      for (const int id : node.inputs) inputs.push_back(tensors[static_cast<std::size_t>(id)]);
      computed = ops::run(*node.op, inputs, node.attributes);
    }
    for (std::size_t i = 0; i < computed.size(); ++i) tensors[static_cast<std::size_t>(node.outputs[i])] = computed[i];
  }
  std::vector<Tensor> values;
  for (const Value& result : results) values.push_back(tensors[static_cast<std::size_t>(result.id())].contiguous());
  return values;
}

std::string described(const File& file, const NodeProto& node) {
  const std::string which = !node.name().empty()     ? concat("node \"", printable(node.name()), '"')
                            : node.output_size() > 0 ? concat("node of \"", printable(node.output(0)), '"')
                                                     : "a node";
  const std::string domain = node.domain().empty() || node.domain() == "ai.onnx" ? "" : printable(node.domain()) + ".";
  return concat(which, " (", domain, printable(node.op_type()), domain.empty() ? concat(", opset ", file.opset) : "", ')');
}

}  // namespace

void Importer::refuse(const NodeProto& node, std::string_view why) {
  refusals_.push_back(concat(described(file_, node), ": ", why));
  for (const std::string& output : node.output()) operands_[output] = {.refused = true};
}

std::vector<Operand*> Importer::operands(const NodeProto& node) {
  std::vector<Operand*> found;
  for (const std::string& input : node.input()) {
    const auto place = operands_.find(input);
    if (place == operands_.end() && !input.empty())
      throw Unsupported(concat("no node before it gives its input \"", printable(input), '"'));
    found.push_back(input.empty() ? nullptr : &place->second);
  }
  return found;
}

std::vector<Tensor> Importer::fold(const NodeProto& node, Convert emit, const std::vector<Operand*>& inputs) {
  std::int64_t bytes = 0;
  std::vector<Operand> copies;
  for (const Operand* input : inputs) {
    const bool fits = input == nullptr || (input->known.defined() && input->parameter.empty());
    if (!fits) return {};
    if (input != nullptr) bytes = std::max(bytes, input->known.bytes());
    copies.push_back(input == nullptr ? Operand() : Operand{.known = input->known});
  }
  if (inputs.empty()) return {};
  std::vector<Operand*> pointers;
  for (std::size_t i = 0; i < inputs.size(); ++i) pointers.push_back(inputs[i] == nullptr ? nullptr : &copies[i]);
  Graph scratch;
  const Values results = emit(Call(scope_, file_, node, scratch, pointers));
  const bool random = !scratch.all(graph::NodeKind::variable).empty();  // it counts its runs
  if (random || !gives_at_most(scratch, std::max(folded_bytes, bytes))) return {};
  return evaluate(scratch, results);
}

void Importer::keep(const NodeProto& node, const Values& results) {
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    const auto place = static_cast<std::size_t>(i);
    const bool missing = place >= results.size() || !results[place];
    if (missing && !used_.contains(node.output(i))) continue;
    if (missing) throw Unsupported(concat("its output ", i, " is not supported"));
    const graph::Node& producer = graph_.producer(results[place].id());
    operands_[node.output(i)] = {.value = results[place], .known = producer.constant};
  }
}

void Importer::convert(const NodeProto& node, Convert emit) {
  const std::vector<Operand*> inputs = operands(node);
  if (std::any_of(inputs.begin(), inputs.end(), [](const Operand* input) { return input != nullptr && input->refused; })) {
    for (const std::string& output : node.output()) operands_[output] = {.refused = true};
    return;
  }
  // What a node emits before it is refused is left unread.
  const std::vector<Tensor> folded = fold(node, emit, inputs);
  Values results;
  for (const Tensor& tensor : folded) results.push_back(graph_.constant(tensor));
  const Call call(scope_, file_, node, graph_, inputs, this);
  if (folded.empty()) results = emit(call);
  if (call.given().empty()) return keep(node, results);
  if (call.given().size() < static_cast<std::size_t>(node.output_size())) throw Unsupported("it has more outputs than there are");
  for (int i = 0; i < node.output_size(); ++i) operands_[node.output(i)] = call.given()[static_cast<std::size_t>(i)];
}

void Importer::import(const NodeProto& node) {
  const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
  const auto entry = operator_table().find(node.op_type());
  if (!standard || entry == operator_table().end()) return refuse(node, "there is no such operator here");
  try {
    convert(node, entry->second);
  } catch (const Unsupported& why) {
    refuse(node, why.what());
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug || error.kind() == ErrorKind::out_of_memory) throw;
    refuse(node, error.what());
  }
}

/// A file of a few bytes must not make a graph of gigabytes.
void Importer::check_size() {
  const std::vector<graph::Node>& nodes = graph_.nodes();
  for (; seen_ < nodes.size(); ++seen_) made_bytes_ += nodes[seen_].constant.defined() ? nodes[seen_].constant.bytes() : 0;
  std::int64_t allowed = constant_bytes;
  for (const auto& [name, tensor] : file_.initializers) allowed += 4 * tensor.bytes();
  if (made_bytes_ > allowed) fail(ErrorKind::format, file_.name, ": its nodes make constants of more than ", allowed, " bytes");
  if (nodes.size() > most_nodes) fail(ErrorKind::format, file_.name, ": it needs a graph of more than ", most_nodes, " nodes");
}

/// Of graphs within its nodes, too.
void Importer::note_reads(const GraphProto& graph) {
  for (const NodeProto& node : graph.node()) {
    used_.insert(node.input().begin(), node.input().end());
    for (const AttributeProto& attribute : node.attribute()) note_reads(attribute.g());
  }
  for (const onnx_schema::ValueInfoProto& output : graph.output()) used_.insert(output.name());
}

std::vector<Operand> Importer::run_inner(const GraphProto& graph, const std::vector<Operand>& inputs) {
  if (static_cast<std::size_t>(graph.input_size()) != inputs.size())
    throw Unsupported(concat("its graph has ", graph.input_size(), " inputs, expected ", inputs.size()));
  for (int i = 0; i < graph.input_size(); ++i) operands_[graph.input(i).name()] = inputs[static_cast<std::size_t>(i)];
  for (const onnx_schema::TensorProto& proto : graph.initializer()) operands_[proto.name()] = {.known = read_tensor(proto, file_.folder)};
  for (const NodeProto& node : graph.node()) {
    import(node);
    check_size();
  }
  std::vector<Operand> results;
  for (const onnx_schema::ValueInfoProto& output : graph.output()) {
    const auto place = operands_.find(output.name());
    if (place == operands_.end() || place->second.refused) throw Unsupported("what its graph gives is not supported");
    if (!place->second.sequence) Call(scope_, file_, NodeProto(), graph_, {&place->second})[0];  // joins the graph once
    results.push_back(place->second);
  }
  return results;
}

Values Importer::run(const std::map<std::string, Value>& inputs) {
  for (const auto& [name, tensor] : file_.initializers) {
    operands_[name] = {.known = tensor, .parameter = is_parameter(tensor) ? name : std::string()};
  }
  note_reads(file_.model.graph());
  for (const OnnxPort& input : file_.inputs) {
    const auto given = inputs.find(input.name);
    require(given != inputs.end() && given->second, file_.name, ": input \"", printable(input.name), "\" was not given");
    operands_[input.name] = {.value = given->second, .known = graph_.producer(given->second.id()).constant};
  }
  for (const NodeProto& node : file_.model.graph().node()) {
    import(node);
    check_size();
  }
  Values results;
  for (const OnnxPort& output : file_.outputs) {
    const auto place = operands_.find(output.name);
    if (place == operands_.end())
      refusals_.push_back(concat("output \"", printable(output.name), "\": no node gives it"));
    else if (place->second.random)
      refusals_.push_back(concat("output \"", printable(output.name), "\": it is random numbers"));
    else if (place->second.sequence)
      refusals_.push_back(concat("output \"", printable(output.name), "\": it is a sequence"));
    if (refusals_.empty()) results.push_back(Call(scope_, file_, NodeProto(), graph_, {&place->second})[0]);
  }
  if (refusals_.empty()) return results;
  std::string list;
  for (std::size_t i = 0; i < std::min(refusals_.size(), most_listed); ++i) list += "\n  " + refusals_[i];
  if (refusals_.size() > most_listed) list += concat("\n  and ", refusals_.size() - most_listed, " more");
  fail(ErrorKind::format, file_.name, ": not supported:", list);
}

}  // namespace frit::onnx
