// Chains of elementwise operations as one: each input is read once and each result written once; what lies between stays in the nearest
// cache or in registers.

#include "frit/ops/elementwise/elementwise.h"

#include <numeric>

#include "frit/ops/elementwise/block_program.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/run.h"

namespace frit::ops {
namespace {

std::string check(const ElementwiseProgram& program, std::span<const TensorType> inputs, std::vector<TensorType>& types) {
  if (program.inputs > most_program_inputs || program.outputs.size() > most_program_outputs ||
      program.instructions.size() > most_instructions) {
    return "the program is too long";
  }
  for (const ElementwiseProgram::Instruction& instruction : program.instructions) {
    const Operator& op = *instruction.op;
    if ((op.cuda && !op.cuda.functor) || instruction.operands.size() > most_instruction_operands) {
      return op.name + " cannot be part of a program";
    }
  }
  return program.check(inputs, types);
}

std::vector<TensorType> infer_elementwise(const InferContext& call) {
  const ElementwiseProgram& program = call.as<ElementwiseAttributes>().program;
  std::vector<TensorType> types;
  const std::string problem = check(program, call.inputs, types);
  call.require(problem.empty(), problem);
  std::vector<TensorType> results;
  for (const int id : program.outputs) results.push_back(types[static_cast<std::size_t>(id)]);
  return results;
}

std::optional<Attributes> join_elementwise(const ElementwiseProgram& program, std::span<const TensorType> inputs) {
  std::vector<TensorType> types;
  if (!check(program, inputs, types).empty() || !is_floating(inputs[0].dtype)) return std::nullopt;
  return ElementwiseAttributes{program};
}

Values decompose_elementwise(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes) {
  const ElementwiseProgram& program = attributes.as<ElementwiseAttributes>().program;
  Values values(inputs.begin(), inputs.end()), results;
  for (const ElementwiseProgram::Instruction& instruction : program.instructions) {
    Values operands;
    for (const int id : instruction.operands) operands.push_back(values[static_cast<std::size_t>(id)]);
    values.push_back(emitter.emit(*instruction.op, operands, instruction.attributes).at(0));
  }
  for (const int id : program.outputs) results.push_back(values[static_cast<std::size_t>(id)]);
  return results;
}

BlockProgram block_program(const InferContext& call) { return {call.as<ElementwiseAttributes>().program, call.inputs}; }

void run_elementwise(const KernelContext& call) {
  BlockProgram program(call.as<ElementwiseAttributes>().program, types_of(call.inputs));
  program.bind(call.inputs, call.outputs, BlockProgram::Numbering::any);
  program.run(call.scratch);
}

std::vector<Sample> elementwise_samples() {
  std::vector<Sample> samples;
  const auto add = [&](const char* program, std::vector<SampleInput> inputs) {
    samples.push_back({.inputs = std::move(inputs), .attributes = ElementwiseAttributes{ElementwiseProgram::parse(program)}});
  };
  const Shape image{2, 3, 5, 7}, channel{3, 1, 1};
  // A bias, an activation and a scale; the gradient of the same.
  const char* const forward =
      "y0 = add(x0, x1); y1 = gelu(y0) {\"approximate\":\"none\"}; y2 = multiply(y1, x2); y3 = add(y2, x3); return y0, y3";
  add(forward, {image, channel, Shape{}, image});
  add(forward, {Shape{4, 3, 6, 6}, channel, Shape{}, Shape{4, 3, 6, 6}});
  add("y0 = multiply(x0, x1); y1 = gelu_backward(y0, x2) {\"approximate\":\"none\"}; return y1", {image, Shape{}, image});
  add("y0 = add(x0, x1); y1 = relu(y0); return y1", {image, image});
  add("y0 = clamp(x0) {\"min\":-0.5,\"max\":null}; y1 = sigmoid(y0); y2 = multiply(y1, x0); return y2", {Shape{7}});
  add("y0 = greater(x0, x1); y1 = where(y0, x2, x1); y2 = negate(y1); return y2, y0", {Shape{3, 5}, Shape{}, Shape{3, 1}});
  add("y0 = multiply(x0, x1); y1 = where(x2, y0, x0); return y1", {Shape{4, 9}, Shape{9}, SampleInput::integers({4, 1}, 2, DType::u8)});
  add("y0 = subtract(x0, x1); y1 = square(y0); y2 = minimum(y1, x0); y3 = tanh(y2); return y0, y1, y2, y3",
      {Shape{5, 1, 4}, Shape{5, 1, 4}});
  add("y0 = exp(x0); y1 = add(y0, x0); return y1", {Shape{}});
  add("y0 = exp(x0); y1 = add(y0, x1); return y1", {Shape{0, 4}, Shape{4}});
  add("y0 = add(x0, x1); y1 = add(y0, x2); y2 = add(y1, x3); y3 = add(y2, x4); y4 = add(y3, x5); y5 = add(y4, x6); y6 = add(y5, x7); "
      "y7 = multiply(y6, y0); y8 = subtract(y7, y1); y9 = maximum(y8, x0); y10 = abs(y9); y11 = multiply(y10, y5); "
      "y12 = add(y11, y7); y13 = negate(y12); y14 = subtract(y13, x7); y15 = multiply(y14, x3); return y15",
      {Shape{2, 6}, Shape{6}, Shape{2, 1}, Shape{}, Shape{2, 6}, Shape{1}, Shape{1, 6}, Shape{2, 6}});
  // So large that a GPU compiles a kernel for them.
  add(forward, {Shape{4, 16, 33, 37}, Shape{16, 1, 1}, Shape{}, Shape{4, 16, 33, 37}});
  add("y0 = multiply(x0, x1); y1 = add(y0, x2); y2 = relu(y1); return y2",
      {Shape{2, 64, 24, 24}, Shape{2, 64, 1, 1}, Shape{2, 64, 24, 24}});
  add("y0 = greater(x0, x1); y1 = where(y0, x2, x1); y2 = negate(y1); return y2, y0", {Shape{257, 320}, Shape{}, Shape{257, 1}});
  return samples;
}

}  // namespace

std::vector<int> all_program_outputs() {
  std::vector<int> outputs(most_program_outputs);
  std::iota(outputs.begin(), outputs.end(), 0);
  return outputs;
}

std::vector<std::pair<int, int>> all_outputs_in_any_input() {
  std::vector<std::pair<int, int>> pairs;
  for (const int output : all_program_outputs()) {
    for (int input = 0; input < most_program_inputs; ++input) pairs.emplace_back(output, input);
  }
  return pairs;
}

}  // namespace frit::ops

FRIT_OPERATORS(elementwise) {
  registry.add<ElementwiseAttributes>(
      {.name = "elementwise",
       .summary = "a program of elementwise operators, halves computed in float32 until they are stored or cast",
       .inputs = {"input"},
       .variadic = true,
       .variadic_outputs = true,
       .infer = infer_elementwise,
       .no_gradient = "made of operators whose gradients are taken before",
       .decompose = decompose_elementwise,
       .join = join_elementwise,
       .samples_in = samples_of_broadcast,
       .cpu = {.run = run_elementwise,
               .strided = true,
               .takes_parts = [](const KernelContext&) { return true; },
               .halves = true,
               .scratch = [](const InferContext& call) { return block_program(call).scratch(); },
               .any_layout_inputs = {0},
               .any_layout_outputs = all_program_outputs()},
       .in_place = all_outputs_in_any_input(),
       .samples = elementwise_samples});
}
