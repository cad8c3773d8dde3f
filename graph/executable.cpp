#include "frit/graph/executable.h"

#include <algorithm>
#include <set>
#include <utility>

#include "frit/core/cuda/range.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/preparation.h"
#include "frit/graph/profile.h"

namespace frit {

std::map<std::string, TensorType> tensor_types(const Bindings& tensors) {
  std::map<std::string, TensorType> types;
  for (const auto& [name, tensor] : tensors) types[name] = {tensor.dtype(), tensor.shape()};
  return types;
}

namespace graph {

Executable::Executable(const Graph& graph, State& state)
    : graph_(bring_preparation_first(convert_layouts(remove_dead_code(graph), state.device()))) {
  verify(graph_);
  state.prepare(graph_);
  const std::vector<Layout> layouts = choose_layouts(graph_, state.device());
  const BufferPlan buffers = plan_buffers(graph_, state.device(), layouts);
  plan_ = plan_memory(buffers.lifetimes);
  arena_ = Tensor::empty({plan_.arena_bytes}, DType::u8, state.device());
  const std::vector<bool> given = given_values(graph_);
  values_.resize(static_cast<std::size_t>(graph_.value_count()));
  std::size_t next_parts = 0;
  for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
    const Node& node = graph_.nodes()[n];
    place_outputs(static_cast<int>(n), buffers, layouts);
    if (node.kind == NodeKind::variable) {
      const auto v = static_cast<std::size_t>(node.outputs[0]);
      values_[v] = given[v] ? state.at(node.name) : state.variable(node.name).place();  // an output may be written at any time
    }
    if (node.kind == NodeKind::constant) values_[static_cast<std::size_t>(node.outputs[0])] = node.constant.to(state.device());
    if (node.kind != NodeKind::operation) continue;
    const bool is_in_parts = next_parts < buffers.microbatches.size() && buffers.microbatches[next_parts].first <= static_cast<int>(n);
    if (is_in_parts) {
      if (buffers.microbatches[next_parts].last == static_cast<int>(n))
        add_microbatches(buffers.microbatches[next_parts++], buffers, state);
      continue;
    }
    const Tensor& first = values_[static_cast<std::size_t>(node.inputs[0])];
    if (buffers.view[n] && node.op->joins) continue;
    if (buffers.view[n]) {
      const auto result = static_cast<std::size_t>(node.outputs[0]);
      const TensorType& type = graph_.type(node.outputs[0]);
      values_[result] = node.op->part   ? node.op->part(first, node.attributes)
                        : node.op->view ? first.reshape(type.shape)
                                        : Tensor::over(first.raw(), type.shape, type.dtype, state.device(), nullptr, layouts[result]);
      continue;
    }
    Call call = call_of(node, state);
    add_memory(call, static_cast<int>(n), buffers);
    if (!call.prepacked.empty()) prepack(call, buffers);
    Sequence& sequence = buffers.prepared[n] ? preparation_ : run_;
    if (buffers.step[n] == static_cast<int>(n)) sequence.add(Step{node.op, node.attributes, {}});
    sequence.add(std::move(call));
  }
  note_prepared_from(state, buffers);
}

/// Of what is computed in parts of a batch, where all parts have their place.
void Executable::place_outputs(int n, const BufferPlan& buffers, const std::vector<Layout>& layouts) {
  for (const int id : graph_.nodes()[static_cast<std::size_t>(n)].outputs) {
    const auto value = static_cast<std::size_t>(id);
    if (buffers.buffer[value] >= 0) values_[value] = place_of(id, buffers, layouts);
  }
}

Tensor Executable::place_of(int id, const BufferPlan& buffers, const std::vector<Layout>& layouts) const {
  const auto value = static_cast<std::size_t>(id);
  TensorType type = graph_.type(id);
  if (const PartOfValue& part = buffers.place[value]) {
    return place_of(part.whole, buffers, layouts).slice(part.axis, part.begin, part.begin + type.shape[part.axis]);
  }
  if (buffers.parts[value] > 1) type = microbatch_of(type, buffers.parts[value]);
  return Tensor::over(place(buffers.buffer[value]), type.shape, type.dtype, device(), nullptr, layouts[value]);
}

void Executable::add_memory(Call& call, int n, const BufferPlan& buffers) {
  const auto memory = [&](int buffer) -> std::span<std::byte> {
    if (buffer < 0) return {};
    return {place(buffer), static_cast<std::size_t>(buffers.lifetimes[static_cast<std::size_t>(buffer)].bytes)};
  };
  call.node = n;
  call.scratch = memory(buffers.scratch[static_cast<std::size_t>(n)]);
  call.prepacked = memory(buffers.prepacked[static_cast<std::size_t>(n)]);
}

void Executable::prepack(const Call& call, const BufferPlan& buffers) {
  const Node& node = graph_.nodes()[static_cast<std::size_t>(call.node)];
  const auto input = std::find(node.inputs.begin(), node.inputs.end(), buffers.prepacked_of[static_cast<std::size_t>(call.node)]);
  preparation_.add(Step{node.op, node.attributes, {call}, /*prepacks=*/static_cast<int>(input - node.inputs.begin())});
}

/// All of them for the first part of the batch, then all for the next.
void Executable::add_microbatches(const Microbatches& parts, const BufferPlan& buffers, const State& state) {
  for (std::int64_t part = 0; part < parts.count; ++part) {
    for (int n = parts.first; n <= parts.last; ++n) {
      const Node& node = graph_.nodes()[static_cast<std::size_t>(n)];
      if (node.kind != NodeKind::operation || buffers.view[static_cast<std::size_t>(n)]) continue;
      Call call = call_of(node, state);
      const std::vector<bool> with_samples = node.op->inputs_with_samples(graph_.types(node.inputs), node.attributes);
      const auto take_part = [&](Tensor& tensor, int id) {
        if (tensor.defined() && buffers.parts[static_cast<std::size_t>(id)] == 1) tensor = microbatch_of(tensor, parts.count, part);
      };
      for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        if (with_samples[i]) take_part(call.inputs[i], node.inputs[i]);
      }
      for (std::size_t i = 0; i < call.outputs.size(); ++i) take_part(call.outputs[i], node.outputs[i]);
      add_memory(call, n, buffers);
      if (part == 0 && !call.prepacked.empty()) prepack(call, buffers);
      run_.add(Step{.op = node.op, .attributes = node.attributes, .calls = {call}, .parts = parts.count});
    }
  }
}

Call Executable::call_of(const Node& node, const State& state) const {
  Call call;
  for (const int id : node.inputs) call.inputs.push_back(values_[static_cast<std::size_t>(id)]);
  for (const int id : node.outputs) call.outputs.push_back(values_[static_cast<std::size_t>(id)]);
  for (const int i : node.op->mutates) {
    if (static_cast<std::size_t>(i) >= node.inputs.size()) continue;
    call.variables.push_back(&state.variable(graph_.producer(node.inputs[static_cast<std::size_t>(i)]).name));
  }
  return call;
}

void Executable::note_prepared_from(const State& state, const BufferPlan& buffers) {
  std::set<int> read;
  for (std::size_t n = 0; n < buffers.prepared.size(); ++n) {
    if (buffers.prepared[n]) read.insert(graph_.nodes()[n].inputs.begin(), graph_.nodes()[n].inputs.end());
    if (buffers.prepacked[n] >= 0) read.insert(buffers.prepacked_of[n]);
  }
  for (const int id : read) {
    const Node& node = graph_.producer(id);
    if (node.kind == NodeKind::variable) prepared_from_.push_back({&state.variable(node.name)});
  }
}

void Executable::run(const Bindings& inputs) {
  place_inputs(inputs);
  run();
}

void Executable::place_inputs(const Bindings& inputs) {
  for (const Node* node : graph_.all(NodeKind::input)) {
    const auto given = inputs.find(node->name);
    require(given != inputs.end(), "input \"", node->name, "\" was not given");
    const TensorType& type = graph_.type(node->outputs[0]);
    const TensorType found{given->second.dtype(), given->second.shape()};
    require(type == found, "input \"", node->name, "\": expected ", type, ", got ", found);
    const Tensor& place = values_[static_cast<std::size_t>(node->outputs[0])];
    if (!place.defined()) continue;
    if (place.device() == given->second.device() || place.is_contiguous()) {
      copy(place, given->second);
      continue;
    }
    // Another layout than the host's: the device rearranges it.
    Tensor& arrived = arrived_[node->name];
    if (!arrived.defined()) arrived = Tensor::empty(type.shape, type.dtype, place.device());
    copy(arrived, given->second);
    copy(place, arrived);
  }
}

void Executable::prepare() {
  bool current = std::exchange(prepared_, false);
  for (Source& source : prepared_from_) {
    const std::uint64_t version = source.variable->version();
    current = current && version == source.version;
    source.version = version;
  }
  if (!current) preparation_.run(device());
  prepared_ = true;
}

void Executable::run() {
  prepare();
  if (Tracing* const tracing = Tracing::current()) return tracing->run(*this);
  const cuda::Range range("frit run");
  run_.run(device());
}

void Executable::run_each(const Bindings& inputs, const std::function<bool(const Step&)>& after) {
  place_inputs(inputs);
  prepared_ = false;  // `after` may break it off
  for (const Sequence* sequence : {&preparation_, &run_}) {
    for (const Step& step : sequence->steps()) {
      step.run();
      if (!after(step)) return;
    }
  }
}

std::int64_t Executable::predicted_bytes() const {
  std::int64_t bytes = plan_.arena_bytes;
  for (const Node& node : graph_.nodes()) {
    const bool outside = node.kind == NodeKind::variable || node.kind == NodeKind::constant;
    if (outside) bytes += values_[static_cast<std::size_t>(node.outputs[0])].bytes();
  }
  return bytes;
}

const Tensor& Executable::output(std::string_view name) const {
  for (const Output& output : graph_.outputs()) {
    if (output.name == name) return values_[static_cast<std::size_t>(output.value)];
  }
  fail(ErrorKind::argument, "the program has no output \"", name, "\"");
}

}  // namespace graph
}  // namespace frit
