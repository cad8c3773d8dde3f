// A call that reads an image, together with programs of elementwise operators before and after it: what lies between them need not be
// written where a kernel computes all of it at once.

#include <algorithm>

#include "frit/ops/chain/chain_attributes.h"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/operator/unplaced_call.h"

namespace frit::ops {
namespace {

std::vector<TensorType> infer(const InferContext& context) {
  ChainTypes types;
  const std::string problem = types.infer(context.as<ChainAttributes>().call, context.inputs);
  context.require(problem.empty(), problem);
  const StagedCall& call = context.as<ChainAttributes>().call;
  const Operator& centre = *call.centre.op;
  context.require(centre.mutates == context.op.mutates, centre.name, " updates other inputs than this operator");
  context.require(centre.collective == context.op.collective, centre.name, centre.collective ? " is" : " is not", " of several processes");
  return types.outputs;
}

/// Whether what a program is followed by gives no image, and is no rearrangement of blocks into channels: over axes of size 1 that leaves
/// an image, whose layout its kernel does not take.
bool is_reduction(const StagedCall& call, const ChainTypes& types) {
  const Shape &image = types.given.shape, &result = types.result.shape;
  const bool rearranges = result.rank() == image.rank() && result[1] > image[1];
  return !call.centre.op->staged_output && !call.before.instructions.empty() && !rearranges;
}

/// Of a reduction, which no program follows: whether it leaves a number for each pixel. Threads read 8 channels at a time.
bool reduces_channels(const Shape& image, const Shape& result) {
  Shape pixels = image, kept = image;
  pixels.erase(1), kept[1] = 1;
  return image[1] % 8 == 0 && (result == pixels || result == kept);
}

std::optional<Attributes> stage(const StagedCall& call, std::span<const TensorType> inputs) {
  ChainTypes types;
  if (!types.infer(call, inputs).empty()) return std::nullopt;
  const auto& staged_where = call.centre.op->staged_where;
  const TensorType& read = types.centre_inputs[static_cast<std::size_t>(call.input)];
  if (staged_where && !staged_where(read.shape, call.centre.attributes)) return std::nullopt;
  const auto parts = call.parts(inputs);
  const auto all_lie_along = [](std::span<const TensorType> operands, const Shape& image, bool or_pixels) {
    return image.rank() >= 4 && std::all_of(operands.begin(), operands.end(), [&](const TensorType& type) {
             return lies_along(type.shape, image) || (or_pixels && lies_along_pixels(type.shape, image));
           });
  };
  if (!parts.before.empty() && !all_lie_along(parts.before, types.given.shape, /*or_pixels=*/true)) return std::nullopt;
  if (is_reduction(call, types) && !reduces_channels(types.given.shape, types.result.shape)) return std::nullopt;
  if (!call.after.instructions.empty() && !all_lie_along(parts.after, types.result.shape, /*or_pixels=*/false)) return std::nullopt;
  return ChainAttributes{call};
}

/// Around operators that update these of their inputs, which are the chain's too as no program stands before them.
auto stage_where(const std::vector<int>& mutates, bool collective) {
  return [mutates, collective](const StagedCall& call, std::span<const TensorType> inputs) {
    const bool moves = !mutates.empty() && !call.before.instructions.empty();
    const bool is_of_kind = call.centre.op->mutates == mutates && call.centre.op->collective == collective;
    return is_of_kind && !moves ? stage(call, inputs) : std::nullopt;
  };
}

Values decompose(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes) {
  const StagedCall& call = attributes.as<ChainAttributes>().call;
  const auto parts = call.parts(inputs);
  const Operator& elementwise = registry().find("elementwise");
  const auto apply = [&](const ElementwiseProgram& program, std::span<const Value> operands) {
    return elementwise.decompose(emitter, operands, ElementwiseAttributes{program}).at(0);
  };
  const Value given = call.before.instructions.empty() ? Value{} : apply(call.before, parts.before);
  Values outputs = emitter.emit(*call.centre.op, call.centre_inputs(parts.centre, given), call.centre.attributes);
  if (!call.after.instructions.empty()) {
    Values operands(parts.after.begin(), parts.after.end());
    operands.insert(operands.begin(), outputs[0]);
    outputs[0] = apply(call.after, operands);
  }
  return outputs;
}

/// Of what the program before the centre gives, if there is one.
TensorType given_type(const ElementwiseProgram& before, std::span<const Tensor> inputs) {
  if (before.instructions.empty()) return {};
  std::vector<TensorType> types;
  FRIT_CHECK(before.check(types_of(inputs), types).empty());
  return types[static_cast<std::size_t>(before.outputs[0])];
}

}  // namespace

void ChainAttributes::fields(FieldVisitor& v) {
  visit_text(v, "before", call.before);
  std::int64_t input = call.input;
  v.field("input", input);
  call.input = static_cast<int>(input);
  visit_text(v, "centre", call.centre);
  visit_text(v, "after", call.after);
}

ChainCall::ChainCall(const KernelContext& context)
    : call(context.as<ChainAttributes>().call),
      inputs(call.parts(context.inputs)),
      centre_inputs(call.centre_inputs(inputs.centre, Tensor())),
      stages{call.before, static_cast<std::size_t>(call.input), given_type(call.before, inputs.before), inputs.before, call.after,
             inputs.after},
      centre{*call.centre.op, call.centre.attributes, centre_inputs, context.outputs, context.scratch, context.stream, context.prepacked} {
  const StagedKernel& staged = centre.op.kernel_on(context.inputs[0].device()).staged;
  const bool has_programs = !call.before.instructions.empty() || !call.after.instructions.empty();
  if (has_programs && staged && staged.takes(centre, stages)) kernel = &staged;
}

namespace {

void run_in_layouts(const KernelContext& context) {
  const ChainCall call(context);
  call.kernel ? call.kernel->run(call.centre, call.stages) : run_in_parts(call, context);
}

/// A centre that takes contiguous images alone, as a program's own operator may, gets them so.
void run_chain(const KernelContext& context) {
  const Kernel& kernel = context.as<ChainAttributes>().call.centre.op->kernel_on(context.inputs[0].device());
  if (!kernel.any_layout_inputs.empty() || !kernel.any_layout_outputs.empty()) return run_in_layouts(context);
  std::vector<Tensor> inputs, outputs;
  for (const Tensor& input : context.inputs) inputs.push_back(input.contiguous());
  for (const Tensor& output : context.outputs) {
    const bool fits = !output.defined() || output.is_contiguous();
    outputs.push_back(fits ? output : Tensor::empty(output.shape(), output.dtype(), output.device()));
  }
  run_in_layouts({context.op, context.attributes, inputs, outputs, context.scratch, context.stream, context.prepacked});
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined() && outputs[i].raw() != context.outputs[i].raw()) copy(context.outputs[i], outputs[i]);
  }
}

std::string describe(const KernelContext& context) {
  const ChainCall call(context);
  const std::string& centre = call.centre.op.name;
  if (!call.kernel) return concat("in its parts, around ", centre, ", whose kernel does not take it so");
  return call.kernel->describe ? concat("around ", centre, ": ", call.kernel->describe(call.centre, call.stages))
                               : "one kernel around " + centre;
}

bool takes_parts(const KernelContext& context) {
  const ChainCall call(context);
  return call.kernel && call.kernel->takes_parts && call.kernel->takes_parts(call.centre, call.stages);
}

/// A call without memory: whether there is a kernel depends on types and layouts alone.
struct UnplacedChain {
  UnplacedCall call;
  ChainCall staged;
  std::vector<TensorType> types;  ///< of the centre's inputs, and how they and its outputs lie
  CallLayouts layouts;

  UnplacedChain(const InferContext& given, Device device)
      : call(given, device), staged(call.context()), layouts(layouts_of(staged.centre)) {
    layouts.outputs = given.layouts.outputs;
    for (const Tensor& input : staged.centre.inputs) {
      types.push_back(input.defined() ? TensorType{input.dtype(), input.shape()} : staged.stages.input_type);
    }
  }

  InferContext centre() const { return {staged.centre.op, types, staged.centre.attributes, layouts}; }
};

std::size_t scratch(const InferContext& call, Device device) {
  const UnplacedChain chain(call, device);
  const StagedKernel* const kernel = chain.staged.kernel;
  if (kernel == nullptr) return scratch_in_parts(call, device);
  if (kernel->scratch) return kernel->scratch(chain.staged.centre, chain.staged.stages);
  const auto& rule = chain.centre().op.kernel_on(device).scratch;
  return rule ? rule(chain.centre()) : 0;
}

/// What the kernel of a convolution makes of its weight; a call in parts does that by itself.
Prepacking prepacking(const InferContext& call, Kernel Operator::*kernel, Device (*device)()) {
  const StagedCall& parts = call.as<ChainAttributes>().call;
  const auto& rule = (parts.centre.op->*kernel).prepacking;
  if (!rule || !parts.before.instructions.empty()) return {};
  const UnplacedChain chain(call, device());
  return chain.staged.kernel == nullptr ? Prepacking() : rule(chain.centre());
}

void prepack_centre(const KernelContext& context) {
  const ChainCall call(context);
  call.centre.op.kernel_on(context.inputs[0].device()).prepack(call.centre);
}

/// Of the operator that it is around, and what the programs read of each of its samples.
std::vector<bool> samples_in_chain(const InferContext& context) {
  const StagedCall& call = context.as<ChainAttributes>().call;
  ChainTypes types;
  FRIT_CHECK(types.infer(call, context.inputs).empty());
  std::vector<bool> of_centre = call.centre.op->inputs_with_samples(types.centre_inputs, call.centre.attributes);
  const bool reads_before = !call.before.instructions.empty();
  const auto input = static_cast<std::size_t>(call.input);
  if (of_centre.empty() || (reads_before && !of_centre[input])) return {};
  const auto parts = call.parts(context.inputs);
  std::vector<bool> result;
  const auto add_operands = [&](std::span<const TensorType> operands, const Shape& image) {
    for (const TensorType& type : operands) result.push_back(type.shape.rank() == image.rank() && type.shape[0] == image[0]);
  };
  add_operands(parts.before, types.given.shape);
  if (reads_before) of_centre.erase(of_centre.begin() + call.input);
  result.insert(result.end(), of_centre.begin(), of_centre.end());
  add_operands(parts.after, types.result.shape);
  return result;
}

/// Of the operator that it is around.
double multiplications(const InferContext& context, const TensorType&) {
  const StagedCall& call = context.as<ChainAttributes>().call;
  ChainTypes types;
  if (!call.centre.op->multiplications || !types.infer(call, context.inputs).empty()) return 0;
  return call.centre.op->multiplications({*call.centre.op, types.centre_inputs, call.centre.attributes}, types.result);
}

}  // namespace

Kernel chain_kernel(Device (*device)(), Kernel Operator::*centre) {
  return {.run = run_chain,
          .takes_parts = takes_parts,
          .halves = true,
          .scratch = [device](const InferContext& call) { return scratch(call, device()); },
          .prepacking = [=](const InferContext& call) { return prepacking(call, centre, device); },
          .prepack = prepack_centre,
          .any_layout_inputs = {0, 1, 2},
          .any_layout_outputs = {0, 1, 2},
          .one_layout = true,
          .mixes_layouts = [centre](const Attributes& a) { return (a.as<ChainAttributes>().call.centre.op->*centre).staged.mixes_layouts; },
          .prefers_channels_last = true,
          .describe = describe};
}

void prepare_chain(const KernelContext& context) {
  const ChainCall call(context);
  if (call.kernel && call.kernel->prepare) call.kernel->prepare(call.centre, call.stages);
}

}  // namespace frit::ops

FRIT_OPERATORS(chain) {
  const auto add = [&](const char* name, const char* summary, const std::vector<int>& mutates, std::vector<Sample> (*samples)(),
                       bool collective = false) {
    registry.add<ChainAttributes>({
        .name = name,
        .summary = summary,
        .inputs = {"input", {"other", true}, {"operand", true}},
        .variadic = true,
        .variadic_outputs = true,
        .infer = infer,
        .no_gradient = "grown when gradients have been taken",
        .decompose = decompose,
        .stage = stage_where(mutates, collective),
        .samples_in = samples_in_chain,
        .cpu = chain_kernel([] { return Device::cpu(); }, &Operator::cpu),
        .mutates = mutates,
        .collective = collective,
        .samples = samples,
        .multiplications = ops::multiplications,
    });
  };
  add("chain", "an operator that reads an image, with programs of elementwise operators before and after it", {}, chain_samples);
  add("updating_chain", "batch_norm, which updates its running statistics, with a program of elementwise operators after it", {3, 4},
      updating_chain_samples);
  add("synchronized_chain", "a chain around an operator that several processes compute together", {}, synchronized_chain_samples, true);
  add("synchronized_updating_chain", "an updating_chain around an operator that several processes compute together", {3, 4},
      synchronized_updating_chain_samples, true);
}
