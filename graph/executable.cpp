#include "frit/graph/executable.h"

#include "frit/core/cuda/range.h"
#include "frit/graph/profile.h"
#include "frit/ops/run.h"

namespace frit::graph {

void Step::run() const {
  const cuda::Range range(op->name.c_str());
  ops::invoke(*op, attributes, inputs, outputs, scratch);
}

Executable::Executable(Graph graph, State& state) : graph_(std::move(graph)) {
  verify(graph_);
  state.prepare(graph_);
  const std::vector<Layout> layouts = choose_layouts(graph_, state.device());
  const BufferPlan buffers = plan_buffers(graph_, state.device(), layouts);
  plan_ = plan_memory(buffers.lifetimes);
  arena_ = Tensor::empty({plan_.arena_bytes}, DType::u8, state.device());
  const auto place = [&](int buffer) { return static_cast<std::byte*>(arena_.raw()) + plan_.offsets[static_cast<std::size_t>(buffer)]; };

  values_.resize(static_cast<std::size_t>(graph_.value_count()));
  for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
    const Node& node = graph_.nodes()[n];
    for (const int id : node.outputs) {
      const TensorType& type = graph_.type(id);
      const int buffer = buffers.buffer[static_cast<std::size_t>(id)];
      if (buffer < 0) continue;
      values_[static_cast<std::size_t>(id)] =
          Tensor::over(place(buffer), type.shape, type.dtype, state.device(), nullptr, layouts[static_cast<std::size_t>(id)]);
    }
    if (node.kind == NodeKind::variable) values_[static_cast<std::size_t>(node.outputs[0])] = state.at(node.name);
    if (node.kind == NodeKind::constant) values_[static_cast<std::size_t>(node.outputs[0])] = node.constant.to(state.device());
    if (node.kind != NodeKind::operation) continue;
    const Tensor& first = values_[static_cast<std::size_t>(node.inputs[0])];
    if (node.op->view) {
      values_[static_cast<std::size_t>(node.outputs[0])] = first.reshape(graph_.type(node.outputs[0]).shape);
      continue;
    }
    Step step{node.op, node.attributes, {}, {}, {}, static_cast<int>(n)};
    for (const int id : node.inputs) step.inputs.push_back(values_[static_cast<std::size_t>(id)]);
    for (const int id : node.outputs) step.outputs.push_back(values_[static_cast<std::size_t>(id)]);
    if (const int scratch = buffers.scratch[n]; scratch >= 0) {
      step.scratch = {place(scratch), static_cast<std::size_t>(buffers.lifetimes[static_cast<std::size_t>(scratch)].bytes)};
    }
    steps_.push_back(std::move(step));
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

void Executable::run() {
  if (Tracing* const tracing = Tracing::current()) return tracing->run(*this);
  const cuda::Range range("frit run");
  if (arena_.device().kind == DeviceKind::cpu || !warm_) {
    run_steps();
    warm_ = true;
    return;
  }
  if (!captured_.recorded()) captured_.record(arena_.device().index, [this] { run_steps(); });
  captured_.launch();
}

void Executable::run_each(const Bindings& inputs, const std::function<bool(const Step&)>& after) {
  place_inputs(inputs);
  for (const Step& step : steps_) {
    step.run();
    if (!after(step)) return;
  }
}

void Executable::run_steps() const {
  for (const Step& step : steps_) step.run();
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

}  // namespace frit::graph
