#include "frit/ops/operator/emitter.h"

#include "frit/ops/operator/operator.h"

namespace frit::ops {

Values emit(std::string_view op, std::span<const Value> inputs, Attributes attributes) {
  const Operator& entry = registry().find(op);
  while (!inputs.empty() && !inputs.back()) inputs = inputs.first(inputs.size() - 1);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::size_t argument = std::min(i, entry.inputs.size() - 1);
    require(static_cast<bool>(inputs[i]), op, ": input \"", entry.inputs[argument].name, "\" is missing");
    require(&inputs[i].emitter() == &inputs[0].emitter(), op, ": input \"", entry.inputs[argument].name, "\" belongs to another graph");
  }
  require(!inputs.empty(), op, ": no inputs were given");
  return inputs[0].emitter().emit(entry, inputs, std::move(attributes));
}

Values emit(std::string_view op, std::initializer_list<Value> inputs, Attributes attributes) {
  return emit(op, std::span<const Value>(inputs.begin(), inputs.size()), std::move(attributes));
}

Value emit_one(std::string_view op, std::initializer_list<Value> inputs, Attributes attributes) {
  return emit(op, inputs, std::move(attributes)).front();
}

Value scalar(Value like, double value) {
  const Tensor constant = Tensor::full({}, value, like.dtype());
  require(is_floating(like.dtype()) || constant.item() == value, "the number ", value, " cannot be an operand of an ", like.dtype(),
          " value");
  return like.emitter().constant(constant);
}

}  // namespace frit::ops
