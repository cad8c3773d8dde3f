// A chain, and the statistics of a norm of its result, which a kernel finds while it has that: so it is not read for them.

#include "frit/ops/chain/chain_statistics.h"

#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/operator/run.h"

namespace frit::ops {

void ChainStatisticsAttributes::fields(FieldVisitor& v) {
  ChainAttributes chain{std::move(call)};
  chain.fields(v);
  call = std::move(chain.call);
  visit_text(v, "norm", norm);
  v.field("norm_inputs", norm_inputs);
}

namespace {

const Operator& chain() { return registry().find("chain"); }

std::vector<TensorType> infer(const InferContext& context) {
  const auto& own = context.as<ChainStatisticsAttributes>();
  context.require(own.norm.op != nullptr && own.norm.op->reads_moments, own.norm.op == nullptr ? "no operator" : own.norm.op->name,
                  " gives no statistics that follow from moments");
  context.require(own.norm_inputs >= 0 && own.norm_inputs < static_cast<std::int64_t>(context.inputs.size()), own.norm_inputs, " of ",
                  context.inputs.size(), " inputs are the norm's");
  std::vector<TensorType> outputs = chain().infer_types(own.inputs_of_chain(context.inputs), ChainAttributes{own.call});
  context.require(outputs.size() == 1, own.call.centre.op->name, " has ", outputs.size(), " outputs, expected 1");
  const std::vector<TensorType> found = own.norm.op->infer_types(own.inputs_of_norm(context.inputs, outputs[0]), own.norm.attributes);
  outputs.insert(outputs.end(), found.begin() + 1, found.end());
  return outputs;
}

Values decompose(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& own = attributes.as<ChainStatisticsAttributes>();
  Values outputs = chain().decompose(emitter, own.inputs_of_chain(inputs), ChainAttributes{own.call});
  const Values found = emitter.emit(*own.norm.op, own.inputs_of_norm(inputs, outputs[0]), own.norm.attributes);
  outputs.insert(outputs.end(), found.begin() + 1, found.end());
  return outputs;
}

double multiplications(const InferContext& context, const TensorType& output) {
  const auto& own = context.as<ChainStatisticsAttributes>();
  return chain().multiplications({chain(), own.inputs_of_chain(context.inputs), ChainAttributes{own.call}}, output);
}

/// The last two inputs are weight and bias of the norm.
Sample sample(const char* op, const Attributes& attributes, const char* program, const char* norm, std::vector<SampleInput> inputs) {
  const ElementwiseProgram after = program == nullptr ? ElementwiseProgram() : ElementwiseProgram::parse(program);
  const StagedCall call{{}, 0, {&registry().find(op), attributes}, after};
  // Devices differ in whether what lies between is rounded to halves.
  return {.inputs = std::move(inputs),
          .attributes = ChainStatisticsAttributes{call, OperatorCall::parse(norm), /*norm_inputs=*/2},
          .in_halves = false};
}

std::vector<Sample> samples() {
  constexpr const char *instance_norm = "instance_norm {\"eps\":1e-05}", *group_norm = "group_norm {\"num_groups\":2,\"eps\":0.1}",
                       *residual = "y0 = add(x0, x1); y1 = relu(y0); return y1";
  const ConvolutionOptions same{.padding = {1}};
  return {
      sample("conv2d", same, nullptr, instance_norm, {Shape{2, 3, 5, 4}, Shape{4, 3, 3, 3}, Shape{4}, Shape{4}}),
      sample("conv2d", same, residual, group_norm, {Shape{2, 8, 6, 5}, Shape{8, 8, 3, 3}, Shape{8}, Shape{2, 8, 6, 5}, Shape{8}, Shape{8}}),
      sample("conv3d", same, nullptr, instance_norm, {Shape{1, 8, 4, 3, 5}, Shape{8, 8, 3, 3, 3}, Shape{8}, Shape{8}, Shape{8}}),
      sample("conv3d", same, residual, instance_norm,
             {Shape{2, 4, 3, 4, 3}, Shape{8, 4, 3, 3, 3}, Shape{2, 8, 3, 4, 3}, Shape{8}, Shape{8}}),
      sample("conv3d", same, nullptr, group_norm, {Shape{0, 2, 3, 3, 3}, Shape{4, 2, 3, 3, 3}, Shape{4}, Shape{4}})};
}

}  // namespace

ChainAndNorm::ChainAndNorm(const KernelContext& context)
    : own(context.as<ChainStatisticsAttributes>()),
      chain_attributes(ChainAttributes{own.call}),
      image(context.outputs[0]),
      norm_outputs(context.outputs.begin(), context.outputs.end()) {
  const std::span<const Tensor> inputs = own.inputs_of_chain(context.inputs);
  if (!image.defined()) {
    const TensorType type = ops::chain().infer_types(types_of(inputs), chain_attributes)[0];
    image = Tensor::empty(type.shape, type.dtype, inputs[0].device(), inputs[0].layout());
  }
  norm_inputs = own.inputs_of_norm(context.inputs, image);
  norm_outputs[0] = {};
}

KernelContext ChainAndNorm::chain(const KernelContext& context) const {
  return {ops::chain(), chain_attributes, own.inputs_of_chain(context.inputs), {&image, 1}, context.scratch, context.stream};
}

void run_statistics_in_parts(const KernelContext& context) {
  const ChainAndNorm calls(context);
  invoke(chain(), calls.chain_attributes, calls.own.inputs_of_chain(context.inputs), {&calls.image, 1}, context.scratch);
  invoke(*calls.own.norm.op, calls.own.norm.attributes, calls.norm_inputs, calls.norm_outputs, context.scratch);
}

std::size_t scratch_of_statistics_in_parts(const InferContext& call, Device device) {
  const auto& own = call.as<ChainStatisticsAttributes>();
  const std::vector<TensorType> outputs = call.op.infer_types(call.inputs, call.attributes),
                                norm_inputs = own.inputs_of_norm(call.inputs, outputs[0]);
  const CallLayouts norm_layouts{call.layouts.outputs};
  CallLayouts layouts = call.layouts;
  layouts.inputs.resize(std::min(layouts.inputs.size(), call.inputs.size() - static_cast<std::size_t>(own.norm_inputs)));
  const Attributes attributes = ChainAttributes{own.call};
  return std::max(scratch_bytes(chain(), own.inputs_of_chain(call.inputs), {outputs.data(), 1}, attributes, device, layouts),
                  scratch_bytes(*own.norm.op, norm_inputs, own.norm.op->infer_types(norm_inputs, own.norm.attributes), own.norm.attributes,
                                device, norm_layouts));
}

Kernel chain_statistics_kernel(KernelFunction run, std::function<std::size_t(const InferContext&)> scratch, Kernel Operator::*centre) {
  return {.run = std::move(run),
          .scratch = std::move(scratch),
          .any_layout_inputs = {0, 1, 2},
          .any_layout_outputs = {0},
          .one_layout = true,
          .mixes_layouts =
              [centre](const Attributes& a) { return (a.as<ChainStatisticsAttributes>().call.centre.op->*centre).staged.mixes_layouts; },
          .prefers_channels_last = true};
}

}  // namespace frit::ops

FRIT_OPERATORS(chain_statistics) {
  registry.add<ChainStatisticsAttributes>(
      {.name = "chain_statistics",
       .summary = "a chain, and what a norm of its result finds, but the normalised image",
       .inputs = {"input", {"other", true}, {"operand", true}},
       .variadic = true,
       .variadic_outputs = true,
       .infer = infer,
       .no_gradient = "made of operators whose gradients are taken before",
       .decompose = decompose,
       .cpu = chain_statistics_kernel(
           run_statistics_in_parts, [](const InferContext& call) { return scratch_of_statistics_in_parts(call, Device::cpu()); },
           &Operator::cpu),
       .samples = samples,
       .multiplications = multiplications});
}
