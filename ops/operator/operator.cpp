#include "frit/ops/operator/operator.h"

#include <algorithm>

namespace frit::ops {

void InferContext::fail_call(const std::string& message) const { fail(ErrorKind::argument, op.name, ": ", message); }

std::vector<TensorType> infer_same(const InferContext& call) { return {call.inputs[0]}; }

std::vector<TensorType> infer_broadcast(const InferContext& call) {
  TensorType result = call.inputs[0];
  for (std::size_t i = 1; i < call.inputs.size(); ++i) {
    call.require(call.inputs[i].dtype == result.dtype, "input \"", call.op.inputs[i].name, "\" is ", call.inputs[i].dtype, ", input \"",
                 call.op.inputs[0].name, "\" is ", result.dtype);
    result.shape = broadcast_shapes(result.shape, call.inputs[i].shape);
  }
  return {result};
}

std::vector<bool> samples_of_input_0(const InferContext& call) {
  std::vector<bool> result(call.inputs.size(), false);
  result[0] = true;
  return result;
}

std::string OperatorCall::text() const {
  if (op == nullptr) return {};
  return op->name + (attributes.text().empty() ? "" : ' ' + attributes.json());
}

OperatorCall OperatorCall::parse(const std::string& text) {
  const std::size_t space = std::min(text.find(' '), text.size());
  const Operator& found = registry().find(text.substr(0, space));
  return {&found, found.attributes_from_json(space < text.size() ? text.substr(space + 1) : "{}")};
}

std::vector<bool> samples_of_broadcast(const InferContext& call) {
  Shape shape = call.shape(0);
  for (const TensorType& type : call.inputs) shape = broadcast_shapes(shape, type.shape);
  std::vector<bool> result;
  for (const TensorType& type : call.inputs) {
    result.push_back(shape.rank() > 0 && type.shape.rank() == shape.rank() && type.shape[0] == shape[0]);
  }
  return result;
}

const Kernel& Operator::kernel_on(Device device) const {
  const Kernel& kernel = device.kind == DeviceKind::cuda ? cuda : cpu;
  if (!kernel) fail(ErrorKind::device, name, ": there is no kernel for ", device);
  return kernel;
}

std::size_t Operator::required_inputs() const {
  return static_cast<std::size_t>(std::count_if(inputs.begin(), inputs.end(), [](const Argument& argument) { return !argument.optional; }));
}

std::vector<TensorType> Operator::infer_types(std::span<const TensorType> types, const Attributes& attributes) const {
  require(types.size() >= required_inputs() && (variadic || types.size() <= inputs.size()), name, ": expected ", required_inputs(),
          variadic                             ? " or more"
          : required_inputs() == inputs.size() ? ""
                                               : concat(" to ", inputs.size()),
          " inputs, got ", types.size());
  require(std::find(dtypes.begin(), dtypes.end(), types[0].dtype) != dtypes.end(), name, ": input \"", inputs[0].name, "\" is ",
          types[0].dtype, ", which this operator does not take");
  std::vector<TensorType> results;
  try {
    results = infer(InferContext{*this, types, attributes});
    for (const TensorType& type : results) type.bytes();  // throws for a shape that overflows
  } catch (const Error& error) {
    const std::string message = error.what();
    if (error.kind() != ErrorKind::argument || message.starts_with(name + ":")) throw;
    fail(ErrorKind::argument, name, ": ", message);
  }
  require(results.size() == outputs.size() || (variadic_outputs && !results.empty()), name, ": its inference rule gave ", results.size(),
          " results, expected ", variadic_outputs ? "1 or more" : concat(outputs.size()));
  return results;
}

std::vector<bool> Operator::inputs_with_samples(std::span<const TensorType> types, const Attributes& attributes) const {
  const InferContext call{*this, types, attributes};
  if (samples_in) return samples_in(call);
  return elementwise ? samples_of_broadcast(call) : std::vector<bool>();
}

}  // namespace frit::ops
