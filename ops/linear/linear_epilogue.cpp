// A linear layer with an epilogue: what is done to each element of the result while it is at hand. Its attributes are a program whose
// input 0 is the layer's result; its others are tensors like that, (features) or one number.

#include "frit/ops/linear/linear_epilogue.h"

#include "frit/core/numerics.h"
#include "frit/ops/linear/matmul.h"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

/// The inputs that are the layer's.
template <class List>
auto layer_inputs(const List& inputs, const ElementwiseAttributes& epilogue) {
  return std::span(inputs).first(inputs.size() - other_operands(epilogue));
}

std::vector<TensorType> infer(const InferContext& call) {
  const auto& epilogue = call.as<ElementwiseAttributes>();
  call.require(call.inputs.size() >= 2 + other_operands(epilogue), "the program needs ", other_operands(epilogue), " operands");
  std::vector<TensorType> types = registry().find("linear").infer_types(layer_inputs(call.inputs, epilogue), {});
  for (const TensorType& operand : call.inputs.last(other_operands(epilogue))) types.push_back(operand);
  call.require(linear_epilogue_of(epilogue.program, types).has_value(), "the program is no epilogue: ", epilogue.program.text());
  return {types[0]};
}

Values decompose(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& epilogue = attributes.as<ElementwiseAttributes>();
  Values operands = emit("linear", layer_inputs(inputs, epilogue));
  const std::span<const Value> others = inputs.last(other_operands(epilogue));
  operands.insert(operands.end(), others.begin(), others.end());
  return registry().find("elementwise").decompose(emitter, operands, epilogue);
}

void run(const KernelContext& call) {
  const auto& epilogue = call.as<ElementwiseAttributes>();
  const Operator& layer = registry().find("linear");
  layer.cpu.run({layer, {}, layer_inputs(call.inputs, epilogue), call.outputs, call.scratch});
  apply_epilogue(epilogue, call.outputs[0], call.inputs.last(other_operands(epilogue)), call.scratch);
}

std::size_t scratch(const InferContext& call) {
  const auto& epilogue = call.as<ElementwiseAttributes>();
  const Operator &layer = registry().find("linear"), &elementwise = registry().find("elementwise");
  std::vector<TensorType> operands = infer(call);
  const auto others = call.inputs.last(other_operands(epilogue));
  operands.insert(operands.end(), others.begin(), others.end());
  const Attributes none, program = epilogue;
  return std::max(layer.cpu.scratch({layer, layer_inputs(call.inputs, epilogue), none}),
                  elementwise.cpu.scratch({elementwise, operands, program}));
}

Sample sample(std::vector<SampleInput> inputs, const char* program) {
  return {.inputs = std::move(inputs), .attributes = ElementwiseAttributes{ElementwiseProgram::parse(program)}};
}

std::vector<Sample> samples() {
  constexpr const char *gelu = "y0 = gelu(x0) {\"approximate\":\"none\"}; return y0", *relu = "y0 = relu(x0); return y0";
  constexpr const char* scaled = "y0 = multiply(x0, x1); y1 = add(x2, y0); return y1";
  return {sample({Shape{2, 5, 3, 16}, Shape{24, 16}, Shape{24}}, gelu),
          sample({Shape{2, 5, 3, 16}, Shape{8, 16}, Shape{8}, Shape{8}, Shape{2, 5, 3, 8}}, scaled),
          sample({Shape{7, 8}, Shape{16, 8}, Shape{1, 16}, Shape{7, 16}}, scaled),
          sample({Shape{2, 9, 8}, Shape{8, 8}, Shape{8}, Shape{}}, "y0 = subtract(x1, x0); y1 = hard_swish(y0); return y1"),
          sample({Shape{3, 7}, Shape{5, 7}, Shape{5}}, relu),
          sample({Shape{5}, Shape{3, 5}, Shape{3}}, gelu),
          sample({Shape{0, 3}, Shape{2, 3}, Shape{2}}, gelu),
          sample({Shape{2, 0}, Shape{3, 0}, Shape{3}, Shape{3}}, "y0 = add(x0, x1); y1 = silu(y0); return y1")};
}

}  // namespace

std::optional<ConvolutionEpilogue> linear_epilogue_of(const ElementwiseProgram& program, std::span<const TensorType> operands) {
  return epilogue_of(program, operands, operands[0].shape.rank() - 1);
}

// Where the pass over memory that it saves is worth the choice of a plan, and a library has kernels that do both, on tensor cores.
std::optional<OperatorCall> linear_with_epilogue(const Attributes&, const ElementwiseProgram& program, std::span<const TensorType> inputs) {
  constexpr std::int64_t large_bytes = 16 << 20;
  const TensorType& result = inputs[0];
  const bool on_tensor_cores = is_half(result.dtype) || (result.dtype == DType::f32 && numerics().tf32);
  if (result.bytes() < large_bytes || !on_tensor_cores || !linear_epilogue_of(program, inputs)) return std::nullopt;
  return OperatorCall{&registry().find("linear_epilogue"), ElementwiseAttributes{program}};
}

}  // namespace frit::ops

FRIT_OPERATORS(linear_epilogue) {
  registry.add<ElementwiseAttributes>({
      .name = "linear_epilogue",
      .summary = "the program, whose first input is what linear gives; its others are the last inputs",
      .inputs = {"input", "weight", {"operand", true}},
      .variadic = true,
      .infer = infer,
      .no_gradient = "made of operators whose gradients are taken before",
      .decompose = decompose,
      .precision = Precision::half,
      .cpu = {.run = run, .scratch = scratch},
      .samples = samples,
  });
}
