#include "apps/common/sample_graph.h"

#include <algorithm>

namespace frit::apps {
namespace {

std::string input_name(const ops::Operator& op, std::size_t index) {
  const std::string name = op.inputs[std::min(index, op.inputs.size() - 1)].name;
  return index >= op.inputs.size() ? concat(name, ' ', index) : name;
}

}  // namespace

SampleGraph sample_graph(const ops::Operator& op, const ops::Sample& sample, DType dtype, std::uint64_t seed) {
  SampleGraph result;
  Values inputs;
  const std::vector<Tensor> tensors = sample_tensors(sample, dtype, seed);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = input_name(op, i);
    const bool updated = std::find(op.mutates.begin(), op.mutates.end(), static_cast<int>(i)) != op.mutates.end();
    if (updated) {
      const auto initialize = [value = tensors[i]](const Tensor& variable, std::uint64_t) { copy(variable, value); };
      inputs.push_back(result.graph.variable(name, {tensors[i].dtype(), tensors[i].shape()}, initialize));
    } else {
      inputs.push_back(result.graph.input(name, tensors[i].shape(), tensors[i].dtype()));
      result.inputs[name] = tensors[i];
    }
  }
  result.graph.output("output", result.graph.emit(op, inputs, sample.attributes)[0]);
  return result;
}

}  // namespace frit::apps
