#include <algorithm>

#include "frit/ops/chain/chain_attributes.h"

namespace frit::ops {
namespace {

/// The type of what a program gives. Says what is wrong, or returns nothing.
std::string check_program(const ElementwiseProgram& program, std::span<const TensorType> inputs, const Shape* shape, TensorType& result) {
  std::vector<TensorType> types;
  if (program.outputs.size() != 1) return "a program must have one result";
  if (const std::string problem = program.check(inputs, types); !problem.empty()) return problem;
  if (!registry().find("elementwise").join(program, inputs)) return "elementwise does not take the program";
  result = types[static_cast<std::size_t>(program.outputs[0])];
  return shape == nullptr || result.shape == *shape ? "" : concat("a program makes ", result.shape, " of ", *shape);
}

bool is_staged(const Operator& op, int input) {
  return std::any_of(op.staged_inputs.begin(), op.staged_inputs.end(), [&](const StagedInput& staged) { return staged.input == input; });
}

}  // namespace

std::string ChainTypes::infer(const StagedCall& call, std::span<const TensorType> inputs) {
  if (call.centre.op == nullptr) return "there is no operator in the centre";
  const Operator& op = *call.centre.op;
  if (inputs.size() < call.before_inputs() + call.after_inputs()) return concat("got ", inputs.size(), " inputs");
  const auto parts = call.parts(inputs);
  if (!call.before.instructions.empty()) {
    if (!is_staged(op, call.input) || static_cast<std::size_t>(call.input) > parts.centre.size()) {
      return concat("a program cannot give input ", call.input, " of ", op.name);
    }
    if (const std::string problem = check_program(call.before, parts.before, nullptr, given); !problem.empty()) return problem;
  }
  centre_inputs = call.centre_inputs(parts.centre, given);
  if (centre_inputs.size() < op.required_inputs() || centre_inputs.size() > op.inputs.size()) {
    return concat(op.name, " cannot have ", centre_inputs.size(), " inputs");
  }
  outputs = op.infer_types(centre_inputs, call.centre.attributes);
  result = outputs[0];
  if (call.after.instructions.empty()) return {};
  if (!op.staged_output) return concat("a program cannot follow ", op.name);
  std::vector<TensorType> operands(parts.after.begin(), parts.after.end());
  operands.insert(operands.begin(), result);
  return check_program(call.after, operands, &result.shape, outputs[0]);
}

}  // namespace frit::ops
