// Convolutions with an epilogue: what is done to each element of the result while it is at hand, so that it is written once.

#include "frit/ops/convolution/convolution_epilogue.h"

#include "frit/ops/convolution/convolution_cpu.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

constexpr std::size_t most_steps = 3;
/// Elements that the CPU carries through the program at a time.
constexpr std::int64_t most_elements = 4096;

/// The inputs that are the convolution's: the residual comes after them.
template <class List>
auto convolution_inputs(const List& inputs, const EpilogueOptions& options) {
  return std::span(inputs).first(inputs.size() - (options.adds_residual() ? 1 : 0));
}

std::vector<TensorType> infer_epilogue(const InferContext& call, const std::string& convolution) {
  const auto& options = call.as<EpilogueOptions>();
  call.require(epilogue_of(options.epilogue.program).has_value(), "the program is no epilogue: ", options.epilogue.program.text());
  const std::vector<TensorType> result =
      registry().find(convolution).infer_types(convolution_inputs(call.inputs, options), options.convolution);
  if (options.adds_residual()) {
    call.require(call.inputs.back() == result[0], "the residual is ", call.inputs.back(), ", the result ", result[0]);
  }
  return result;
}

Values decompose_epilogue(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes, const std::string& convolution) {
  const auto& options = attributes.as<EpilogueOptions>();
  Values operands = emit(convolution, convolution_inputs(inputs, options), options.convolution);
  if (options.adds_residual()) operands.push_back(inputs.back());
  return registry().find("elementwise").decompose(emitter, operands, options.epilogue);
}

/// Carries elements of the result through the program, by the kernels of its operators.
class Epilogue {
 public:
  explicit Epilogue(const KernelContext& call)
      : program_(call.as<EpilogueOptions>().epilogue.program), result_(call.outputs[0]), residual_(call.inputs.back()) {}

  void operator()(std::int64_t begin, std::int64_t count) const {
    for (const std::int64_t end = begin + count; begin < end; begin += most_elements) run(begin, std::min(most_elements, end - begin));
  }

 private:
  static Tensor part(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
    std::byte* const from = static_cast<std::byte*>(tensor.raw()) + static_cast<std::size_t>(begin) * size_of(tensor.dtype());
    return Tensor::over(from, {count}, tensor.dtype(), Device::cpu(), nullptr);
  }

  void run(std::int64_t begin, std::int64_t count) const {
    const bool adds_residual = program_.inputs > 1;
    const Tensor result = part(result_, begin, count), residual = adds_residual ? part(residual_, begin, count) : Tensor();
    for (const ElementwiseProgram::Instruction& step : program_.instructions) {
      std::array<Tensor, 2> operands;
      for (std::size_t i = 0; i < step.operands.size(); ++i) {
        operands[i] = adds_residual && step.operands[i] == 1 ? residual : result;
      }
      const std::span<const Tensor> inputs = std::span(operands).first(step.operands.size());
      step.op->cpu.run(KernelContext{*step.op, step.attributes, inputs, std::span(&result, 1), {}});
    }
  }

  const ElementwiseProgram& program_;
  const Tensor &result_, &residual_;  // read only if the program adds it
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
            sample({Shape{0, 2, 3, 3, 3}, Shape{3, 2, 3, 3, 3}, Shape{3}}, {}, relu_text)};
  }
  return {sample({Shape{2, 3, 5, 7}, Shape{4, 3, 3, 2}, Shape{4}}, {}, relu_text),
          sample({Shape{2, 3, 5, 7}, Shape{4, 3, 3, 3}, Shape{4}, Shape{2, 4, 5, 7}}, {.padding = {1}}, residual_text),
          sample({Shape{2, 4, 6, 5}, Shape{6, 2, 2, 3}, Shape{2, 6, 4, 4}}, {.stride = {2}, .padding = {1, 2}, .groups = 2}, residual_text),
          sample({Shape{2, 8, 5, 9}, Shape{8, 1, 3, 3}, Shape{8}, Shape{2, 8, 5, 9}}, {.padding = {1}, .groups = 8}, residual_text),
          sample({Shape{1, 4, 9, 7}, Shape{4, 1, 5, 3}}, {.stride = {2}, .groups = 4},
                 "y0 = clamp(x0) {\"min\":0.0,\"max\":6.0}; return y0"),
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
          sample({Shape{0, 2, 4, 4}, Shape{3, 2, 3, 3}, Shape{3}}, {}, relu_text)};
}

}  // namespace

std::optional<ConvolutionEpilogue> epilogue_of(const ElementwiseProgram& program) {
  ConvolutionEpilogue epilogue;
  int result = 0;
  if (program.instructions.empty() || program.instructions.size() > most_steps || program.inputs > 2) return std::nullopt;
  for (const ElementwiseProgram::Instruction& step : program.instructions) {
    const std::vector<int>& operands = step.operands;
    const bool adds = step.op->name == "add" && program.inputs == 2 && std::minmax(operands[0], operands[1]) == std::minmax(result, 1);
    if (adds) {
      epilogue.steps.push_back(std::nullopt);
    } else if (step.op->activation && operands[0] == result) {
      epilogue.steps.push_back(step.op->activation(step.attributes));
      if (!epilogue.steps.back()) return std::nullopt;
    } else {
      return std::nullopt;
    }
    result = result == 0 ? program.inputs : result + 1;
  }
  const auto residuals = std::count(epilogue.steps.begin(), epilogue.steps.end(), std::nullopt);
  if (residuals != program.inputs - 1 || program.outputs != std::vector{result}) return std::nullopt;
  return epilogue;
}

std::function<std::optional<OperatorCall>(const Attributes&, const ElementwiseProgram&, std::span<const TensorType>)> with_epilogue(
    std::string name) {
  return [name = std::move(name)](const Attributes& own, const ElementwiseProgram& program,
                                  std::span<const TensorType> inputs) -> std::optional<OperatorCall> {
    const auto same = [&](const TensorType& type) { return type == inputs[0]; };
    const std::optional<ConvolutionEpilogue> epilogue = epilogue_of(program);
    if (!epilogue || !std::all_of(inputs.begin(), inputs.end(), same)) return std::nullopt;
    // What no library is asked for is better joined with what follows.
    if (!epilogue->is_exact() && !on_tensor_cores(inputs[0].dtype)) return std::nullopt;
    return OperatorCall{&registry().find(name + "_epilogue"), EpilogueOptions{own.as<ConvolutionOptions>(), {program}}};
  };
}

}  // namespace frit::ops

FRIT_OPERATORS(convolution_epilogue) {
  for (const int image_rank : {2, 3}) {
    const std::string name = convolution_name("conv", image_rank);
    registry.add<EpilogueOptions>({
        .name = name + "_epilogue",
        .summary = concat("the program, whose first input is what ", name, " gives; its second is the last input"),
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
