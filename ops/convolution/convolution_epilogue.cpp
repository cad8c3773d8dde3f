// Convolutions with an epilogue: what is done to each element of the result while it is at hand, so that it is written once.

#include "frit/ops/convolution/convolution_epilogue.h"

#include "frit/ops/convolution/convolution_cpu.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

using Operand = ConvolutionEpilogue::Operand;

/// Elements that the CPU carries through the program at a time.
constexpr std::int64_t most_elements = 4096;

/// The inputs that are the convolution's, before the program's others.
template <class List>
auto convolution_inputs(const List& inputs, const EpilogueOptions& options) {
  return std::span(inputs).first(inputs.size() - options.other_operands());
}

/// How an operand broadcasts to the result; none where it does otherwise, or has another dtype.
std::optional<Operand> operand_kind(const TensorType& operand, const TensorType& result) {
  const int axes_before = result.shape.rank() - operand.shape.rank();
  if (operand == result) return Operand::image;
  if (operand.dtype != result.dtype || axes_before < 0) return std::nullopt;
  if (element_count(operand.shape) == 1) return Operand::number;
  for (int axis = 0; axis < operand.shape.rank(); ++axis) {
    const std::int64_t expected = axis + axes_before == 1 ? result.shape[1] : 1;
    if (operand.shape[axis] != expected) return std::nullopt;
  }
  return Operand::channels;
}

std::vector<TensorType> infer_epilogue(const InferContext& call, const std::string& convolution) {
  const auto& options = call.as<EpilogueOptions>();
  call.require(call.inputs.size() >= 2 + options.other_operands(), "the program needs ", options.other_operands(), " operands");
  std::vector<TensorType> types = registry().find(convolution).infer_types(convolution_inputs(call.inputs, options), options.convolution);
  for (const TensorType& operand : call.inputs.last(options.other_operands())) {
    call.require(operand_kind(operand, types[0]).has_value(), "an operand is ", operand, ", the result ", types[0]);
    types.push_back(operand);
  }
  call.require(epilogue_of(options.epilogue.program, types).has_value(), "the program is no epilogue: ", options.epilogue.program.text());
  return {types[0]};
}

Values decompose_epilogue(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes, const std::string& convolution) {
  const auto& options = attributes.as<EpilogueOptions>();
  Values operands = emit(convolution, convolution_inputs(inputs, options), options.convolution);
  const std::span<const Value> others = inputs.last(options.other_operands());
  operands.insert(operands.end(), others.begin(), others.end());
  return registry().find("elementwise").decompose(emitter, operands, options.epilogue);
}

/// Carries elements of the result through the program, by the kernels of its operators.
class Epilogue {
 public:
  explicit Epilogue(const KernelContext& call)
      : program_(call.as<EpilogueOptions>().epilogue.program),
        result_(call.outputs[0]),
        others_(call.inputs.last(call.as<EpilogueOptions>().other_operands())),
        plane_(result_.elements()) {
    for (const Tensor& operand : others_) {
      kinds_.push_back(*operand_kind({operand.dtype(), operand.shape()}, {result_.dtype(), result_.shape()}));
      if (kinds_.back() == Operand::channels) channels_ = result_.dim(1);
    }
    if (channels_ > 1) plane_ = element_count(Shape(std::span(result_.shape()).subspan(2)));
  }

  void operator()(std::int64_t begin, std::int64_t count) const {
    for (const std::int64_t end = begin + count; begin < end;) {
      const Shape piece = piece_at(begin, end - begin);
      run(begin, piece);
      begin += element_count(piece);
    }
  }

 private:
  /// (channels, elements): some channels of an image, or a part of one. Where no operand has numbers for channels, all is one.
  Shape piece_at(std::int64_t begin, std::int64_t count) const {
    const std::int64_t within = begin % plane_;
    if (within != 0 || std::min(count, most_elements) < plane_) return {1, std::min({count, most_elements, plane_ - within})};
    return {std::min({count / plane_, most_elements / plane_, channels_ - begin / plane_ % channels_}), plane_};
  }

  static Tensor part(const Tensor& tensor, std::int64_t begin, const Shape& shape) {
    std::byte* const from = static_cast<std::byte*>(tensor.raw()) + static_cast<std::size_t>(begin) * size_of(tensor.dtype());
    return Tensor::over(from, shape, tensor.dtype(), Device::cpu(), nullptr);
  }

  Tensor operand(std::size_t i, std::int64_t begin, const Shape& piece) const {
    if (kinds_[i] == Operand::image) return part(others_[i], begin, piece);
    return kinds_[i] == Operand::number ? part(others_[i], 0, {1, 1}) : part(others_[i], begin / plane_ % channels_, {piece[0], 1});
  }

  void run(std::int64_t begin, const Shape& piece) const {
    const Tensor result = part(result_, begin, piece);
    for (const ElementwiseProgram::Instruction& step : program_.instructions) {
      std::array<Tensor, 2> operands;
      for (std::size_t i = 0; i < step.operands.size(); ++i) {
        const int value = step.operands[i];
        operands[i] = value > 0 && value < program_.inputs ? operand(static_cast<std::size_t>(value - 1), begin, piece) : result;
      }
      const std::span<const Tensor> inputs = std::span(operands).first(step.operands.size());
      step.op->cpu.run(KernelContext{*step.op, step.attributes, inputs, std::span(&result, 1), {}});
    }
  }

  const ElementwiseProgram& program_;
  const Tensor& result_;
  std::span<const Tensor> others_;
  std::vector<Operand> kinds_;
  std::int64_t channels_ = 1, plane_;  ///< elements of each channel
};

void run_epilogue(const KernelContext& call) {
  const auto& options = call.as<EpilogueOptions>();
  const Tensor &input = call.inputs[0], &weight = call.inputs[1];
  const bool has_bias = convolution_inputs(call.inputs, options).size() > 2;
  const ConvolutionGeometry geometry = convolution_geometry(input.shape(), weight.shape(), options.convolution);
  const Epilogue epilogue(call);
  dispatch_floating(input.dtype(), [&]<class T>() {
    convolve(geometry, input.data<T>(), weight.data<T>(), has_bias ? call.inputs[2].data<T>() : nullptr, call.outputs[0].data<T>(),
             call.scratch, Finish(epilogue));
  });
}

std::size_t epilogue_scratch(const InferContext& call, const std::string& convolution) {
  const auto& options = call.as<EpilogueOptions>();
  const Attributes attributes = options.convolution;
  const Operator& op = registry().find(convolution);
  return op.cpu.scratch({op, convolution_inputs(call.inputs, options), attributes});
}

/// What an instruction does to the result so far; none where it is not one of an epilogue.
std::optional<ConvolutionEpilogue::Step> step_of(const ElementwiseProgram::Instruction& instruction, int result, int inputs) {
  const Operator& op = *instruction.op;
  const std::vector<int>& operands = instruction.operands;
  if (op.activation && operands[0] == result) {
    const std::optional<Activation> activation = op.activation(instruction.attributes);
    return activation ? std::optional(ConvolutionEpilogue::Step{activation}) : std::nullopt;
  }
  if (!op.binary) return std::nullopt;
  const bool operand_first = operands[1] == result;
  const int operand = operands[operand_first ? 0 : 1];
  const bool fits = (operand_first || operands[0] == result) && operand > 0 && operand < inputs;
  if (!fits || (operand_first && op.binary == BinaryFunction::divide)) return std::nullopt;
  return ConvolutionEpilogue::Step{.function = *op.binary, .operand = operand - 1, .operand_first = operand_first && !op.commutative};
}

Sample sample(std::vector<SampleInput> inputs, const ConvolutionOptions& options, const char* program) {
  return {.inputs = std::move(inputs), .attributes = EpilogueOptions{options, {ElementwiseProgram::parse(program)}}};
}

constexpr const char* relu_text = "y0 = relu(x0); return y0";
constexpr const char* residual_text = "y0 = add(x0, x1); y1 = relu(y0); return y1";

std::vector<Sample> samples(int image_rank) {
  if (image_rank == 3) {
    return {sample({Shape{2, 2, 3, 4, 3}, Shape{3, 2, 2, 3, 2}, Shape{3}}, {}, relu_text),
            sample({Shape{2, 1, 3, 3, 3}, Shape{2, 1, 2, 2, 2}, Shape{2}, Shape{2, 2, 2, 2, 2}}, {}, residual_text),
            sample({Shape{1, 2, 5, 3, 4}, Shape{4, 1, 3, 2, 2}}, {.stride = {2, 1, 3}, .padding = {1}, .groups = 2},
                   "y0 = clamp(x0) {\"min\":0.0,\"max\":6.0}; return y0"),
            sample({Shape{2, 8, 3, 4, 3}, Shape{8, 8, 2, 3, 2}, Shape{8, 1, 1, 1}, Shape{}}, {},
                   "y0 = add(x0, x1); y1 = hard_swish(y0); y2 = multiply(y1, x2); return y2"),
            sample({Shape{0, 2, 3, 3, 3}, Shape{3, 2, 3, 3, 3}, Shape{3}, Shape{3, 1, 1, 1}}, {}, "y0 = multiply(x0, x1); return y0"),
            sample({Shape{0, 2, 3, 3, 3}, Shape{3, 2, 3, 3, 3}, Shape{3}}, {}, relu_text)};
  }
  return {
      sample({Shape{2, 3, 5, 7}, Shape{4, 3, 3, 2}, Shape{4}}, {}, relu_text),
      sample({Shape{2, 3, 5, 7}, Shape{4, 3, 3, 3}, Shape{4}, Shape{2, 4, 5, 7}}, {.padding = {1}}, residual_text),
      sample({Shape{2, 4, 6, 5}, Shape{6, 2, 2, 3}, Shape{2, 6, 4, 4}}, {.stride = {2}, .padding = {1, 2}, .groups = 2}, residual_text),
      sample({Shape{2, 8, 5, 9}, Shape{8, 1, 3, 3}, Shape{8}, Shape{2, 8, 5, 9}}, {.padding = {1}, .groups = 8}, residual_text),
      sample({Shape{1, 4, 9, 7}, Shape{4, 1, 5, 3}}, {.stride = {2}, .groups = 4}, "y0 = clamp(x0) {\"min\":0.0,\"max\":6.0}; return y0"),
      sample({Shape{3, 8, 2, 5}, Shape{8, 8, 1, 1}, Shape{8}, Shape{3, 8, 2, 5}}, {}, "y0 = add(x1, x0); return y0"),
      sample({Shape{1, 8, 40, 41}, Shape{24, 8, 3, 3}, Shape{24}, Shape{1, 24, 40, 41}}, {.padding = {1}}, residual_text),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}}, {}, "y0 = clamp(x0) {\"min\":0.0,\"max\":6.0}; return y0"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}}, {}, "y0 = clamp(x0) {\"min\":-0.5,\"max\":null}; return y0"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}}, {}, "y0 = leaky_relu(x0) {\"negative_slope\":0.1}; return y0"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}}, {}, "y0 = elu(x0) {\"alpha\":1.5}; return y0"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}}, {}, "y0 = gelu(x0) {\"approximate\":\"none\"}; return y0"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}}, {}, "y0 = gelu(x0) {\"approximate\":\"tanh\"}; return y0"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}}, {}, "y0 = sigmoid(x0); return y0"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}}, {}, "y0 = tanh(x0); return y0"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}, Shape{2, 8, 6, 6}}, {.padding = {1}},
             "y0 = silu(x0); y1 = add(x1, y0); return y1"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}}, {}, "y0 = mish(x0); y1 = mish(y0); return y1"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}}, {}, "y0 = hard_swish(x0); y1 = relu(y0); return y1"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}, Shape{8, 1, 1}}, {},
             "y0 = hard_sigmoid(x0); y1 = subtract(x1, y0); y2 = hard_swish(y1); return y2"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}, Shape{}, Shape{1, 8, 1, 1}, Shape{1}}, {},
             "y0 = minimum(x0, x1); y1 = add(y0, x2); y2 = multiply(y1, x3); return y2"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{2, 8, 6, 6}, Shape{8, 1, 1}, {Shape{1, 8, 1, 1}, Fill::nonzero}, Shape{}},
             {.padding = {1}},
             "y0 = multiply(x1, x0); y1 = maximum(x2, y0); y2 = divide(y1, x3); y3 = tanh(y2); y4 = subtract(y3, x4); return y4"),
      sample({Shape{2, 3, 70, 65}, Shape{5, 3, 3, 3}, Shape{5, 1, 1}, Shape{2, 5, 70, 65}}, {.padding = {1}},
             "y0 = multiply(x0, x1); y1 = silu(y0); y2 = subtract(x2, y1); return y2"),
      sample({Shape{2, 8, 6, 6}, Shape{8, 1, 3, 3}, Shape{8}, Shape{8, 1, 1}}, {.groups = 8},
             "y0 = mish(x0); y1 = multiply(y0, x1); return y1"),
      sample({Shape{0, 2, 4, 4}, Shape{3, 2, 3, 3}, Shape{3}}, {}, relu_text)};
}

}  // namespace

std::optional<ConvolutionEpilogue> epilogue_of(const ElementwiseProgram& program, std::span<const TensorType> operands) {
  ConvolutionEpilogue epilogue;
  if (std::ssize(operands) != program.inputs || program.inputs > 1 + most_epilogue_operands) return std::nullopt;
  if (program.instructions.empty() || program.instructions.size() > most_epilogue_steps) return std::nullopt;
  for (const TensorType& operand : operands.subspan(1)) {
    const std::optional<Operand> kind = operand_kind(operand, operands[0]);
    if (!kind) return std::nullopt;
    epilogue.operands.push_back(*kind);
  }
  std::vector<int> reads(epilogue.operands.size());
  int result = 0;
  for (const ElementwiseProgram::Instruction& instruction : program.instructions) {
    const std::optional<ConvolutionEpilogue::Step> step = step_of(instruction, result, program.inputs);
    if (!step) return std::nullopt;
    epilogue.steps.push_back(*step);
    if (!step->activation) ++reads[static_cast<std::size_t>(step->operand)];
    result = result == 0 ? program.inputs : result + 1;
  }
  const bool each_once = std::all_of(reads.begin(), reads.end(), [](int count) { return count == 1; });
  const auto images = std::count(epilogue.operands.begin(), epilogue.operands.end(), Operand::image);
  if (!each_once || images > 1 || program.outputs != std::vector{result}) return std::nullopt;
  return epilogue;
}

std::function<std::optional<OperatorCall>(const Attributes&, const ElementwiseProgram&, std::span<const TensorType>)> with_epilogue(
    std::string name) {
  return [name = std::move(name)](const Attributes& own, const ElementwiseProgram& program,
                                  std::span<const TensorType> inputs) -> std::optional<OperatorCall> {
    const std::optional<ConvolutionEpilogue> epilogue = epilogue_of(program, inputs);
    const auto& options = own.as<ConvolutionOptions>();
    if (!epilogue) return std::nullopt;
    // What no library is asked for is better joined with what follows.
    const bool each_channel = options.groups > 1 && options.groups == inputs[0].shape[1];
    if (!epilogue->is_exact() && (each_channel || !on_tensor_cores(inputs[0].dtype))) return std::nullopt;
    return OperatorCall{&registry().find(name + "_epilogue"), EpilogueOptions{options, {program}}};
  };
}

}  // namespace frit::ops

FRIT_OPERATORS(convolution_epilogue) {
  for (const int image_rank : {2, 3}) {
    const std::string name = convolution_name("conv", image_rank);
    registry.add<EpilogueOptions>({
        .name = name + "_epilogue",
        .summary = concat("the program, whose first input is what ", name, " gives; its others are the last inputs"),
        .inputs = {"input", "weight", {"operand", true}},
        .variadic = true,
        .infer = [name](const InferContext& call) { return infer_epilogue(call, name); },
        .no_gradient = "made of operators whose gradients are taken before",
        .decompose = [name](Emitter& emitter, std::span<const Value> inputs,
                            const Attributes& attributes) { return decompose_epilogue(emitter, inputs, attributes, name); },
        .precision = Precision::half,
        .cpu = {.run = run_epilogue, .scratch = [name](const InferContext& call) { return epilogue_scratch(call, name); }},
        .samples = [image_rank] { return samples(image_rank); },
    });
  }
}
