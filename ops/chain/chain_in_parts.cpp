#include <algorithm>

#include "frit/ops/chain/chain_attributes.h"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

const Operator& elementwise() { return registry().find("elementwise"); }

std::size_t bytes_of(const TensorType& type) { return aligned(static_cast<std::size_t>(type.bytes())); }

bool can_compute(const ElementwiseProgram& program, std::span<const TensorType> inputs) try {
  std::vector<TensorType> types;
  return program.check(inputs, types).empty();
} catch (const Error&) {  // an operator's inputs do not go together
  return false;
}

/// The calls that a chain is made of, for the sizes of their scratch memory.
struct Parts {
  const StagedCall& call;
  ChainTypes types;
  CallLayouts layouts;                 ///< of the centre
  Layout layout = Layout::contiguous;  ///< of all images, as it is of any whose layouts differ
  bool widens;

  /// On a CPU, whose kernels compute halves in float32, what lies between is not rounded to them, unless a program converts itself.
  Parts(const InferContext& context, Device device) : call(context.as<ChainAttributes>().call), widens(device.kind == DeviceKind::cpu) {
    FRIT_CHECK(types.infer(call, context.inputs).empty());
    types.given.dtype = between(types.given.dtype);
    widens = widens && (call.after.instructions.empty() || can_compute(call.after, after_operands(context)));
    types.result.dtype = between(types.result.dtype);
    for (const auto& some : {context.layouts.inputs, context.layouts.outputs}) {
      if (std::find(some.begin(), some.end(), Layout::channels_last) != some.end()) layout = Layout::channels_last;
    }
    const std::size_t first = call.before_inputs();
    const std::size_t others = types.centre_inputs.size() - (call.before.instructions.empty() ? 0 : 1);
    std::vector<Layout> given;
    for (std::size_t i = 0; i < others; ++i) given.push_back(context.input_layout(first + i));
    layouts.inputs = call.centre_inputs(std::span<const Layout>(given), layout);
    layouts.outputs = context.layouts.outputs;
  }

  std::vector<TensorType> after_operands(const InferContext& context) const {
    std::vector<TensorType> operands = {{between(types.result.dtype), types.result.shape}};
    for (const TensorType& type : call.parts(context.inputs).after) operands.push_back({between(type.dtype), type.shape});
    return operands;
  }
  DType between(DType dtype) const { return widens && is_half(dtype) ? DType::f32 : dtype; }
  std::size_t given_bytes() const { return call.before.instructions.empty() ? 0 : bytes_of(types.given); }
  std::size_t result_bytes() const { return call.after.instructions.empty() ? 0 : bytes_of(types.result); }

  std::size_t own_scratch(const InferContext& context, Device device) const {
    const auto parts = call.parts(context.inputs);
    const std::vector<TensorType> given = call.centre_inputs(parts.centre, types.given);
    std::vector<TensorType> outputs = types.outputs;
    if (!call.after.instructions.empty()) outputs[0] = types.result;
    std::size_t most = scratch_bytes(*call.centre.op, given, outputs, call.centre.attributes, device, layouts);
    const auto add = [&](const ElementwiseProgram& program, std::span<const TensorType> operands, const TensorType& result) {
      if (program.instructions.empty()) return;
      most = std::max(most, scratch_bytes(elementwise(), operands, {&result, 1}, ElementwiseAttributes{program}, device));
    };
    add(call.before, parts.before, types.given);
    add(call.after, after_operands(context), types.outputs[0]);
    return most;
  }
};

}  // namespace

std::size_t scratch_in_parts(const InferContext& call, Device device) {
  const Parts parts(call, device);
  return parts.given_bytes() + parts.result_bytes() + parts.own_scratch(call, device);
}

void run_in_parts(const ChainCall& chain, const KernelContext& context) {
  const CallLayouts layouts = layouts_of(context);
  const std::vector<TensorType> input_types = types_of(context.inputs);
  const Parts parts({context.op, input_types, context.attributes, layouts}, context.inputs[0].device());
  std::span<std::byte> scratch = context.scratch;
  const auto take = [&](const TensorType& type) {
    const Tensor tensor = Tensor::over(scratch.data(), type.shape, type.dtype, context.inputs[0].device(), nullptr, parts.layout);
    scratch = scratch.subspan(bytes_of(type));
    return tensor;
  };
  std::vector<Tensor> inputs = chain.centre_inputs, outputs(context.outputs.begin(), context.outputs.end());
  if (!chain.call.before.instructions.empty()) {
    Tensor& given = inputs[static_cast<std::size_t>(chain.call.input)] = take(parts.types.given);
    const Attributes program = ElementwiseAttributes{chain.call.before};
    // The rest of the scratch memory is this call's, and then the next one's.
    invoke(elementwise(), program, chain.inputs.before, {&given, 1}, scratch.subspan(parts.result_bytes()));
  }
  const bool follows = !chain.call.after.instructions.empty() && outputs[0].defined();
  if (follows) outputs[0] = take(parts.types.result);
  const std::span<std::byte> rest = follows ? scratch : scratch.subspan(parts.result_bytes());
  invoke(*chain.call.centre.op, chain.call.centre.attributes, inputs, outputs, rest);
  if (!follows) return;
  std::vector<Tensor> operands = {outputs[0]};
  for (const Tensor& operand : chain.inputs.after) operands.push_back(operand.to(parts.between(operand.dtype())));
  invoke(elementwise(), ElementwiseAttributes{chain.call.after}, operands, context.outputs.first(1), rest);
}

}  // namespace frit::ops
