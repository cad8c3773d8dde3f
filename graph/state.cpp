#include "frit/graph/state.h"

#include "frit/core/random.h"

namespace frit {

Tensor State::Variable::place() const { return Tensor::over(tensor_.raw(), tensor_.shape(), tensor_.dtype(), tensor_.device(), nullptr); }

void State::prepare(const Graph& graph) {
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
    const TensorType& type = graph.type(node->outputs[0]);
    const auto known = variables_.find(node->name);
    if (known != variables_.end()) {
      const Tensor& tensor = known->second.tensor_;
      const TensorType there{tensor.dtype(), tensor.shape()};
      require(there == type, "variable \"", node->name, "\" is ", there, " in the state, ", type, " in the graph");
      continue;
    }
    Tensor tensor = Tensor::empty(type.shape, type.dtype);
    node->initialize(tensor, seed_ ^ stream_of(node->name));
    variables_.try_emplace(node->name, tensor.to(device_));
  }
}

const State::Variable& State::variable(const std::string& name) const {
  const auto place = variables_.find(name);
  require(place != variables_.end(), "the state has no variable \"", name, "\"");
  return place->second;
}

Tensor State::at(const std::string& name) const {
  const Variable& found = variable(name);
  found.changed();
  return found.tensor_;
}

std::map<std::string, Tensor> State::tensors() const {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, variable] : variables_) tensors.emplace(name, at(name));
  return tensors;
}

void State::set(const std::string& name, const Tensor& value) const {
  const Tensor place = at(name);
  require(place.shape() == value.shape(), "variable \"", name, "\": expected shape ", place.shape(), ", got ", value.shape());
  copy(place, value.to(device_));
}

}  // namespace frit
