#include "frit/graph/state.h"

#include "frit/core/random.h"

namespace frit {

void State::prepare(const Graph& graph) {
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
    const TensorType& type = graph.type(node->outputs[0]);
    const auto known = tensors_.find(node->name);
    if (known != tensors_.end()) {
      const TensorType there{known->second.dtype(), known->second.shape()};
      require(there == type, "variable \"", node->name, "\" is ", there, " in the state, ", type, " in the graph");
      continue;
    }
    Tensor tensor = Tensor::empty(type.shape, type.dtype);
    node->initialize(tensor, seed_ ^ stream_of(node->name));
    tensors_.emplace(node->name, tensor.to(device_));
  }
}

const Tensor& State::at(const std::string& name) const {
  const auto place = tensors_.find(name);
  require(place != tensors_.end(), "the state has no variable \"", name, "\"");
  return place->second;
}

void State::set(const std::string& name, const Tensor& value) const {
  const Tensor& variable = at(name);
  require(variable.shape() == value.shape(), "variable \"", name, "\": expected shape ", variable.shape(), ", got ", value.shape());
  copy(variable, value.to(device_));
}

}  // namespace frit
