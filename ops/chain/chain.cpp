// A call that reads an image, together with programs of elementwise operators before and after it: what lies between them need not be
// written where a kernel computes all of it at once.

#include <algorithm>

#include "frit/ops/chain/chain_attributes.h"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

const Operator& elementwise() { return registry().find("elementwise"); }

void visit_program(FieldVisitor& v, const char* name, ElementwiseProgram& program) {
  ElementwiseAttributes attributes{std::move(program)};
  const std::string before = attributes.program.text();
  std::string text = before;
  v.field(name, text);
  program = text == before ? std::move(attributes.program) : ElementwiseProgram::parse(text);
}

/// "batch_norm_backward {...}".
std::string text_of(const OperatorCall& call) {
  if (call.op == nullptr) return {};
  return call.op->name + (call.attributes.text().empty() ? "" : ' ' + call.attributes.json());
}
OperatorCall parse_call(const std::string& text) {
  const std::size_t space = std::min(text.find(' '), text.size());
  const Operator& op = registry().find(text.substr(0, space));
  return {&op, op.attributes_from_json(space < text.size() ? text.substr(space + 1) : "{}")};
}

/// The types of what a program gives; why it cannot be if `types` is empty.
std::string check_program(const ElementwiseProgram& program, std::span<const TensorType> inputs, const Shape* shape, TensorType& result) {
  std::vector<TensorType> types;
  if (program.outputs.size() != 1) return "a program must have one result";
  if (const std::string problem = program.check(inputs, types); !problem.empty()) return problem;
  if (!elementwise().join(program, inputs)) return "elementwise does not take the program";
  result = types[static_cast<std::size_t>(program.outputs[0])];
  return shape == nullptr || result.shape == *shape ? "" : concat("a program makes ", result.shape, " of ", *shape);
}

bool is_staged(const Operator& op, int input) {
  return std::any_of(op.staged_inputs.begin(), op.staged_inputs.end(), [&](const StagedInput& staged) { return staged.input == input; });
}

/// Infers the types of all parts.
struct ChainTypes {
  std::vector<TensorType> centre_inputs, outputs;
  TensorType given = {}, result = {};  ///< by the program before; output 0 of the centre

  /// Says what is wrong, or returns nothing.
  std::string infer(const StagedCall& call, std::span<const TensorType> inputs) {
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
};

std::vector<TensorType> infer(const InferContext& context) {
  ChainTypes types;
  const std::string problem = types.infer(context.as<ChainAttributes>().call, context.inputs);
  context.require(problem.empty(), problem);
  const StagedCall& call = context.as<ChainAttributes>().call;
  context.require(call.centre.op->mutates == context.op.mutates, call.centre.op->name, " updates other inputs than this operator");
  return types.outputs;
}

/// Operands of an image's shape, and those with a number for each channel, sample or both: as kernels read them.
bool lies_along(const Shape& operand, const Shape& image) {
  if (operand == image) return true;
  const int missing = image.rank() - operand.rank();
  for (int axis = 0; axis < operand.rank(); ++axis) {
    const std::int64_t size = operand[axis];
    if (size != 1 && (axis + missing >= 2 || size != image[axis + missing])) return false;
  }
  return missing >= 0;
}

/// And no rearrangement of blocks into channels. Over axes of size 1 it leaves an image, whose layout its kernel does not take.
bool is_reduction(const StagedCall& call, const ChainTypes& types) {
  const Shape &image = types.given.shape, &result = types.result.shape;
  const bool rearranges = result.rank() == image.rank() && result[1] > image[1];
  return !call.centre.op->staged_output && !call.before.instructions.empty() && !rearranges;
}

/// Of a reduction, which no program follows: whether it leaves a number for each pixel, or for each channel or each of a sample. Threads
/// read 8 channels at a time.
bool reduces_one_kind(const Shape& image, const Shape& result) {
  const std::int64_t n = image[0], c = image[1];
  Shape pixels = image, kept_pixels = image, kept = Shape::filled(image.rank(), 1), kept_of_samples = kept;
  pixels.erase(1), kept_pixels[1] = 1, kept[1] = kept_of_samples[1] = c, kept_of_samples[0] = n;
  const Shape results[] = {pixels, kept_pixels, {c}, {n, c}, kept, kept_of_samples};
  return c % 8 == 0 && std::find(std::begin(results), std::end(results), result) != std::end(results);
}

std::optional<Attributes> stage(const StagedCall& call, std::span<const TensorType> inputs) {
  ChainTypes types;
  if (!types.infer(call, inputs).empty()) return std::nullopt;
  const auto parts = call.parts(inputs);
  const auto all_lie_along = [](std::span<const TensorType> operands, const Shape& image, bool or_pixels) {
    return image.rank() >= 4 && std::all_of(operands.begin(), operands.end(), [&](const TensorType& type) {
             return lies_along(type.shape, image) || (or_pixels && lies_along_pixels(type.shape, image));
           });
  };
  if (!parts.before.empty() && !all_lie_along(parts.before, types.given.shape, /*or_pixels=*/true)) return std::nullopt;
  if (is_reduction(call, types) && !reduces_one_kind(types.given.shape, types.result.shape)) return std::nullopt;
  if (!call.after.instructions.empty() && !all_lie_along(parts.after, types.result.shape, /*or_pixels=*/false)) return std::nullopt;
  return ChainAttributes{call};
}

/// Around operators that update these of their inputs, which are the chain's too as no program stands before them.
auto stage_where(const std::vector<int>& mutates) {
  return [mutates](const StagedCall& call, std::span<const TensorType> inputs) {
    const bool moves = !mutates.empty() && !call.before.instructions.empty();
    return call.centre.op->mutates == mutates && !moves ? stage(call, inputs) : std::nullopt;
  };
}

Values decompose(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes) {
  const StagedCall& call = attributes.as<ChainAttributes>().call;
  const auto parts = call.parts(inputs);
  const auto apply = [&](const ElementwiseProgram& program, std::span<const Value> operands) {
    return elementwise().decompose(emitter, operands, ElementwiseAttributes{program}).at(0);
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

std::size_t bytes_of(const TensorType& type) { return aligned(static_cast<std::size_t>(type.bytes())); }

}  // namespace

void ChainAttributes::fields(FieldVisitor& v) {
  visit_program(v, "before", call.before);
  std::int64_t input = call.input;
  v.field("input", input);
  call.input = static_cast<int>(input);
  const std::string before = text_of(call.centre);
  std::string centre = before;
  v.field("centre", centre);
  if (centre != before) call.centre = parse_call(centre);
  visit_program(v, "after", call.after);
}

ChainCall::ChainCall(const KernelContext& context)
    : call(context.as<ChainAttributes>().call),
      inputs(call.parts(context.inputs)),
      centre_inputs(call.centre_inputs(inputs.centre, Tensor())) {
  if (call.before.instructions.empty()) return;
  std::vector<TensorType> types;
  FRIT_CHECK(call.before.check(types_of(inputs.before), types).empty());
  given_ = types[static_cast<std::size_t>(call.before.outputs[0])];
}

Stages ChainCall::stages() const {
  return {call.before, static_cast<std::size_t>(call.input), given_, inputs.before, call.after, inputs.after};
}

KernelContext ChainCall::centre(const KernelContext& context) const {
  return {*call.centre.op, call.centre.attributes, centre_inputs, context.outputs, context.scratch, context.stream, context.prepacked};
}

namespace {

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

std::size_t scratch_in_parts(const InferContext& call, Device device) {
  const Parts parts(call, device);
  return parts.given_bytes() + parts.result_bytes() + parts.own_scratch(call, device);
}

/// One after the other; what lies between them is in scratch memory.
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

/// A call, and what computes it at once; null where it is computed in its parts.
struct StagedChain {
  ChainCall chain;
  Stages stages;
  KernelContext centre;
  const StagedKernel* kernel = nullptr;

  explicit StagedChain(const KernelContext& context) : chain(context), stages(chain.stages()), centre(chain.centre(context)) {
    const StagedKernel& staged = centre.op.kernel_on(context.inputs[0].device()).staged;
    if (staged && staged.takes(centre, stages)) kernel = &staged;
  }
  StagedChain(const StagedChain&) = delete;
};

void run_in_layouts(const KernelContext& context) {
  const StagedChain call(context);
  call.kernel ? call.kernel->run(call.centre, call.stages) : run_in_parts(call.chain, context);
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
  const StagedChain call(context);
  const std::string& centre = call.centre.op.name;
  if (!call.kernel) return concat("in its parts, around ", centre, ", whose kernel does not take it so");
  return call.kernel->describe ? concat("around ", centre, ": ", call.kernel->describe(call.centre, call.stages))
                               : "one kernel around " + centre;
}

/// A call without memory: whether there is a kernel depends on types and layouts alone.
class UnplacedChain {
 public:
  UnplacedChain(const InferContext& call, Device device) {
    const auto tensor = [&](const TensorType& type, Layout layout) {
      return Tensor::over(nullptr, type.shape, type.dtype, device, nullptr, layout);
    };
    for (std::size_t i = 0; i < call.inputs.size(); ++i) inputs_.push_back(tensor(call.inputs[i], call.input_layout(i)));
    const std::vector<TensorType> results = call.op.infer_types(call.inputs, call.attributes);
    for (std::size_t i = 0; i < results.size(); ++i) {
      outputs_.push_back(tensor(results[i], i < call.layouts.outputs.size() ? call.layouts.outputs[i] : Layout::contiguous));
    }
    staged.emplace(KernelContext{call.op, call.attributes, inputs_, outputs_, {}});
    layouts_ = layouts_of(staged->centre);
    layouts_.outputs = call.layouts.outputs;
    for (const Tensor& input : staged->centre.inputs) {
      types_.push_back(input.defined() ? TensorType{input.dtype(), input.shape()} : staged->stages.input_type);
    }
  }

  InferContext centre() const { return {staged->centre.op, types_, staged->centre.attributes, layouts_}; }

  std::optional<StagedChain> staged;

 private:
  std::vector<Tensor> inputs_, outputs_;
  std::vector<TensorType> types_;
  CallLayouts layouts_;
};

std::size_t scratch(const InferContext& call, Device device) {
  const UnplacedChain chain(call, device);
  const StagedKernel* const kernel = chain.staged->kernel;
  if (kernel == nullptr) return scratch_in_parts(call, device);
  if (kernel->scratch) return kernel->scratch(chain.staged->centre, chain.staged->stages);
  const auto& rule = chain.centre().op.kernel_on(device).scratch;
  return rule ? rule(chain.centre()) : 0;
}

/// What the kernel of a convolution makes of its weight; a call in parts does that by itself.
Prepacking prepacking(const InferContext& call, Device device) {
  const StagedCall& parts = call.as<ChainAttributes>().call;
  const auto& rule = parts.centre.op->kernel_on(device).prepacking;
  if (!rule || !parts.before.instructions.empty()) return {};
  const UnplacedChain chain(call, device);
  return chain.staged->kernel == nullptr ? Prepacking() : rule(chain.centre());
}

void prepack_centre(const KernelContext& context) {
  const StagedChain call(context);
  call.centre.op.kernel_on(context.inputs[0].device()).prepack(call.centre);
}

}  // namespace

Kernel chain_kernel(Device (*device)(), Kernel Operator::*centre) {
  return {.run = run_chain,
          .halves = true,
          .scratch = [device](const InferContext& call) { return scratch(call, device()); },
          .prepacking = [device](const InferContext& call) { return prepacking(call, device()); },
          .prepack = prepack_centre,
          .any_layout_inputs = {0, 1, 2},
          .any_layout_outputs = {0, 1, 2},
          .one_layout = true,
          .mixes_layouts = [centre](const Attributes& a) { return (a.as<ChainAttributes>().call.centre.op->*centre).staged.mixes_layouts; },
          .prefers_channels_last = true,
          .describe = describe};
}

void prepare_chain(const KernelContext& context) {
  const StagedChain call(context);
  if (call.kernel && call.kernel->prepare) call.kernel->prepare(call.centre, call.stages);
}

}  // namespace frit::ops

FRIT_OPERATORS(chain) {
  const auto add = [&](const char* name, const char* summary, const std::vector<int>& mutates, std::vector<Sample> (*samples)()) {
    registry.add<ChainAttributes>({
        .name = name,
        .summary = summary,
        .inputs = {"input", {"other", true}, {"operand", true}},
        .variadic = true,
        .variadic_outputs = true,
        .infer = infer,
        .no_gradient = "grown when gradients have been taken",
        .decompose = decompose,
        .stage = stage_where(mutates),
        .cpu = chain_kernel([] { return Device::cpu(); }, &Operator::cpu),
        .mutates = mutates,
        .samples = samples,
    });
  };
  add("chain", "an operator that reads an image, with programs of elementwise operators before and after it", {}, chain_samples);
  add("updating_chain", "batch_norm, which updates its running statistics, with a program of elementwise operators after it", {3, 4},
      updating_chain_samples);
}
