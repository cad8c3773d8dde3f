// A call that reads an image, together with programs of elementwise operators before and after it: what lies between them need not be
// written where a kernel computes all of it at once.

#include <algorithm>

#include "frit/ops/chain/chain_attributes.h"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/pool/pool_geometry.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/softmax.h"

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
  const auto all_lie_along = [](std::span<const TensorType> operands, const Shape& image) {
    return image.rank() >= 4 &&
           std::all_of(operands.begin(), operands.end(), [&](const TensorType& type) { return lies_along(type.shape, image); });
  };
  if (!parts.before.empty() && !all_lie_along(parts.before, types.given.shape)) return std::nullopt;
  if (is_reduction(call, types) && !reduces_one_kind(types.given.shape, types.result.shape)) return std::nullopt;
  if (!call.after.instructions.empty() && !all_lie_along(parts.after, types.result.shape)) return std::nullopt;
  return ChainAttributes{call};
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

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
std::size_t bytes_of(const TensorType& type) { return aligned(static_cast<std::size_t>(type.bytes())); }

std::vector<Sample> samples() {
  std::vector<Sample> result;
  const auto add = [&](const char* before, const char* centre, const Attributes& attributes, std::vector<SampleInput> inputs,
                       const char* after = "") {
    const auto parse = [](const std::string& text) { return text.empty() ? ElementwiseProgram() : ElementwiseProgram::parse(text); };
    const StagedCall call{parse(before), 0, {&registry().find(centre), attributes}, parse(after)};
    // In halves: where the parts are computed one by one, what lies between is rounded.
    result.push_back({.inputs = std::move(inputs), .attributes = ChainAttributes{call}, .in_halves = false});
  };
  const auto statistics = [](std::int64_t slices) { return SampleInput::of(DType::f64, {slices}, Fill::positive); };
  const char* const rectified =
      "y0 = subtract(x1, x2); y1 = multiply(y0, x3); y2 = add(y1, x4); y3 = relu(y2); y4 = greater(y3, x5); y5 = where(y4, x0, x5); "
      "return y5";
  const char* const swished = "y0 = silu_backward(x0, x1); return y0";
  const char* const moved = "y0 = subtract(x0, x1); return y0";
  const char* const scaled_swish = "y0 = multiply(x0, x1); y1 = hard_swish_backward(y0, x2); return y1";
  const char* const multiplied = "y0 = multiply(x0, x1); return y0";
  const char* const scaled = "y0 = multiply(x0, x1); y1 = add(y0, x2); return y1";
  for (const Shape& image : {Shape{2, 16, 5, 7}, Shape{3, 6, 4, 5}, Shape{2, 64, 3, 9, 8}}) {
    const std::int64_t n = image[0], c = image[1];
    Dims channels = Dims::filled(image.rank() - 1, 1), both = Dims::filled(image.rank(), 1);
    channels[0] = c, both[0] = n, both[1] = c;
    add(rectified, "batch_norm_backward", BatchNormAttributes{},
        {image,
         image,
         Shape(channels),
         Shape(channels),
         Shape(channels),
         {Shape{}, Fill::zeros},
         image,
         statistics(c),
         statistics(c),
         Shape{c}});
    add(scaled, "batch_norm_backward", BatchNormAttributes{}, {image, Shape(both), image, image, statistics(c), statistics(c), Shape{c}});
    add(swished, "group_norm_backward", GroupNormAttributes{.num_groups = 2},
        {image, image, image, statistics(2 * n), statistics(2 * n), Shape{c}});
    add(scaled, "instance_norm_backward", InstanceNormAttributes{},
        {image, Shape(both), Shape(channels), image, statistics(n * c), statistics(n * c)});
    const int rank = image.rank() - 2;
    const std::string dimensions = concat(rank, "d"), max_pool = "max_pool" + dimensions, avg_pool = "avg_pool" + dimensions;
    for (const PoolOptions& some : {PoolOptions{.kernel_size = {2}}, PoolOptions{.kernel_size = {3}, .stride = {2}, .padding = {1}}}) {
      const PoolOptions options = canonical_options(some, rank);
      const Shape windows = pool_output_shape(image, pool_geometry(image, options, rank));
      const PoolBackwardAttributes backward = pool_backward_attributes(image, options);
      add(moved, max_pool.c_str(), options, {{image, Fill::distinct}, {Shape{}, Fill::zeros}, Shape(channels), windows}, scaled_swish);
      add("", avg_pool.c_str(), options, {image, Shape(channels), windows}, scaled_swish);
      add("", (avg_pool + "_backward").c_str(), backward, {windows, Shape(both), image}, scaled_swish);
      add("", max_pool.c_str(), options, {{image, Fill::distinct}, Shape(both)}, multiplied);
      add("", (avg_pool + "_backward").c_str(), backward, {windows, Shape(both)}, multiplied);
    }
    for (const char* const name : {"softmax", "log_softmax"}) {
      add(scaled, name, SoftmaxAttributes{}, {image, Shape(both), image, Shape(channels), Shape{}},
          "y0 = add(x0, x1); y1 = multiply(y0, x2); y2 = sigmoid(y1); return y2");
      add(swished, concat(name, "_backward").c_str(), SoftmaxAttributes{}, {image, image, image});
    }
    for (const char* const name : {"amax", "amin"}) {
      add(moved, name, ReductionAttributes{{1}, false}, {{image, Fill::distinct}, {Shape{}, Fill::zeros}});
    }
    for (const char* const name : {"max", "min"}) {
      add(moved, name, AxisReductionAttributes{1, true}, {{image, Fill::distinct}, {Shape{}, Fill::zeros}});
    }
    for (const char* const name : {"logsumexp", "sum", "mean"}) {
      add(scaled, name, ReductionAttributes{{1}, rank == 2}, {image, Shape(both), image});
    }
    Dims pixels, all = {0};
    for (int axis = 2; axis < image.rank(); ++axis) pixels.push_back(axis), all.push_back(axis);
    for (const Dims& axes : {pixels, all}) {
      for (const char* const name : {"sum", "mean"}) add(scaled, name, ReductionAttributes{axes, rank == 3}, {image, Shape(both), image});
    }
    add("", "instance_norm_backward", InstanceNormAttributes{}, {image, image, statistics(n * c), statistics(n * c), Shape{c}, image},
        "y0 = add(x0, x1); return y0");
    add(swished, "batch_norm_backward", BatchNormAttributes{},
        {image, image, image, statistics(c), statistics(c), image, Shape(both), Shape(channels)},
        "y0 = multiply(x0, x2); y1 = add(y0, x1); y2 = maximum(y1, x3); return y2");
  }
  return result;
}

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
  ChainTypes types;
  FRIT_CHECK(types.infer(call, types_of(context.inputs)).empty());
  given_ = types.given;
}

Stages ChainCall::stages() const {
  return {call.before, static_cast<std::size_t>(call.input), given_, inputs.before, call.after, inputs.after};
}

KernelContext ChainCall::centre(const KernelContext& context) const {
  return {*call.centre.op, call.centre.attributes, centre_inputs, context.outputs, context.scratch, context.stream};
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

}  // namespace

std::size_t chain_scratch_in_parts(const InferContext& call, Device device) {
  const Parts parts(call, device);
  return parts.given_bytes() + parts.result_bytes() + parts.own_scratch(call, device);
}

void run_chain_in_parts(const KernelContext& context) {
  const ChainCall chain(context);
  CallLayouts layouts;
  for (const Tensor& input : context.inputs) layouts.inputs.push_back(input.layout());
  for (const Tensor& output : context.outputs) layouts.outputs.push_back(output.defined() ? output.layout() : Layout::contiguous);
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

FRIT_OPERATORS(chain) {
  registry.add<ChainAttributes>({
      .name = "chain",
      .summary = "an operator that reads an image, with programs of elementwise operators before and after it",
      .inputs = {"input"},
      .variadic = true,
      .variadic_outputs = true,
      .infer = infer,
      .no_gradient = "grown when gradients have been taken",
      .decompose = decompose,
      .stage = stage,
      .cpu = {.run = run_chain_in_parts,
              .halves = true,
              .scratch = [](const InferContext& call) { return chain_scratch_in_parts(call, Device::cpu()); }},
      .samples = samples,
  });
}
