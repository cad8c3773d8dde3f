#include "frit/graph/program.h"

#include <algorithm>

#include "frit/graph/choose_lowerings.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/preparation.h"

namespace frit {
namespace {

bool fits(const std::map<std::string, TensorType>& types, const Bindings& inputs) {
  if (types.size() != inputs.size()) return false;
  auto given = inputs.begin();
  for (const auto& [name, type] : types) {
    if (given->first != name || given->second.dtype() != type.dtype || !(given->second.shape() == type.shape)) return false;
    ++given;
  }
  return true;
}

}  // namespace

Program::Program(Graph graph, std::shared_ptr<State> state, Extend extend, DType precision)
    : graph_(std::move(graph)), state_(std::move(state)), extend_(std::move(extend)), precision_(precision) {
  state_->prepare(graph_);
}

const graph::Executable& Program::run(const Bindings& inputs) {
  const auto known = std::find_if(compiled_.begin(), compiled_.end(), [&](const Compiled& c) { return fits(c.inputs, inputs); });
  graph::Executable& executable = known == compiled_.end() ? compile(tensor_types(inputs)) : use(known);
  executable.run(inputs);
  return executable;
}

graph::Executable& Program::compile(const std::map<std::string, TensorType>& inputs) {
  const auto known = std::find_if(compiled_.begin(), compiled_.end(), [&](const Compiled& c) { return c.inputs == inputs; });
  if (known != compiled_.end()) return use(known);
  Compiled compiled{inputs, std::make_unique<graph::Executable>(optimised(inputs), *state_)};
  if (compiled_.size() == most_compiled) compiled_.pop_back();
  return *compiled_.insert(compiled_.begin(), std::move(compiled))->executable;
}

graph::Executable& Program::use(std::vector<Compiled>::iterator compiled) {
  std::rotate(compiled_.begin(), compiled, compiled + 1);
  return *compiled_.front().executable;
}

graph::MemoryPlan Program::plan(const std::map<std::string, TensorType>& inputs) const {
  return graph::plan_memory(graph::plan_buffers(optimised(inputs), state_->device()).lifetimes);
}

Graph Program::optimised(const std::map<std::string, TensorType>& inputs, DeviceKind kind) const {
  const Device device = state_->device();
  const bool trained = static_cast<bool>(extend_);
  const auto clean = [&](Graph graph) { return graph::apply(graph::cleanup_pipeline(kind), std::move(graph)); };
  const auto complete = [&](Graph graph) {
    if (trained) extend_(graph);
    graph = clean(graph::choose_gradient_lowerings(graph, {device, trained, clean}));
    return graph::bring_together(graph::bring_preparation_first(graph::convert_layouts(graph, device)), device);
  };
  Graph forward = graph::specialize(graph_, inputs);
  if (precision_ != DType::f32) forward = graph::lower_precision(forward, precision_);
  forward = graph::apply(graph::forward_pipeline(), std::move(forward));
  forward = graph::choose_lowerings(forward, {device, trained, complete});
  return complete(std::move(forward));
}

}  // namespace frit
