// Chains of elementwise operations as one: each input is read once and each result written once; what lies between stays in the nearest
// cache or in registers.

#include "frit/ops/elementwise/elementwise.h"

#include "frit/core/convert.h"
#include "frit/core/strided_loop.h"
#include "frit/ops/cpu/work_split.h"
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

/// Elements that a task carries through the whole program at a time. The operators' own kernels compute them, so that there are enough to
/// outweigh the calls, and few enough to stay in a core's cache.
constexpr std::int64_t most_block_elements = 8192;

DType computed(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

Tensor elements_at(void* memory, std::int64_t count, DType dtype) { return Tensor::over(memory, {count}, dtype, Device::cpu(), nullptr); }

/// A program on tensors of given types, block by block.
class BlockProgram {
 public:
  BlockProgram(const InferContext& call)
      : program_(call.as<ElementwiseAttributes>().program),
        slots_(program_, std::vector<bool>(static_cast<std::size_t>(program_.values()), true), /*outputs_stay=*/true) {
    const std::string problem = check(program_, call.inputs, types_);
    FRIT_CHECK(problem.empty());
    shape_ = types_.back().shape;
    std::size_t widest = 1;
    for (const TensorType& type : types_) widest = std::max(widest, size_of(computed(type.dtype)));
    blocks_ = EvenBlocks(element_count(shape_), most_block_elements, 64);
    slot_bytes_ = static_cast<std::size_t>(blocks_.size) * widest;
    const std::int64_t cost = blocks_.size * static_cast<std::int64_t>(program_.instructions.size()) * 4;
    work_ = WorkSplit(blocks_.count, cost, slot_bytes_ * static_cast<std::size_t>(slots_.count + 1));
  }

  std::size_t scratch() const { return work_.scratch(); }

  void run(const KernelContext& call) {
    for (const Tensor& input : call.inputs) sources_.emplace_back(input, shape_);
    place_outputs(call);
    work_.run(call.scratch,
              [&](std::int64_t block, std::byte* workspace) { compute(blocks_.begin(block), blocks_.length_of(block), workspace); });
  }

 private:
  /// An input as the blocks read it: elements side by side, one for all, or gathered by strides.
  struct Source {
    Tensor tensor;
    Shape shape;
    std::array<Strides, 1> strides;

    Source(const Tensor& input, const Shape& whole) : tensor(input.expand(whole)), shape(whole), strides{tensor.strides()} {
      collapse_axes(shape, strides);
    }
    bool dense() const { return shape.rank() == 1 && strides[0][0] == 1; }
    bool repeated() const { return shape.rank() == 1 && strides[0][0] == 0; }
    std::byte* at(std::int64_t element) const {
      return static_cast<std::byte*>(tensor.raw()) + static_cast<std::size_t>(element) * size_of(tensor.dtype());
    }
  };

  /// A result goes straight to its place if nothing that is read later lies there.
  void place_outputs(const KernelContext& call) {
    outputs_.assign(static_cast<std::size_t>(program_.values()), {});
    straight_.assign(outputs_.size(), false);
    const std::vector<int> last_reads = program_.last_reads();
    for (std::size_t k = 0; k < program_.outputs.size(); ++k) {
      const auto value = static_cast<std::size_t>(program_.outputs[k]);
      const Tensor& output = call.outputs[k];
      outputs_[value] = output;
      straight_[value] = output.defined() && !is_half(output.dtype());
      for (std::size_t input = 0; input < call.inputs.size(); ++input) {
        const bool read_later = last_reads[input] > program_.outputs[k] - program_.inputs;
        if (straight_[value] && read_later && call.inputs[input].raw() == output.raw()) straight_[value] = false;
      }
    }
  }

  void compute(std::int64_t begin, std::int64_t count, std::byte* workspace) const {
    std::array<Tensor, most_program_inputs + most_instructions> values;
    for (std::size_t i = 0; i < sources_.size(); ++i) values[i] = read(sources_[i], begin, count, slot(i, workspace));
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const std::size_t value = sources_.size() + i;
      const ElementwiseProgram::Instruction& instruction = program_.instructions[i];
      std::array<Tensor, most_instruction_operands> operands;
      for (std::size_t k = 0; k < instruction.operands.size(); ++k) operands[k] = values[static_cast<std::size_t>(instruction.operands[k])];
      const DType dtype = computed(types_[value].dtype);
      values[value] = straight_[value] ? slice(outputs_[value], begin, count) : elements_at(slot(value, workspace), count, dtype);
      const bool rounds = narrows(instruction, value);
      const Tensor result = rounds ? elements_at(slot_at(slots_.count, workspace), count, types_[value].dtype) : values[value];
      instruction.op->cpu.run(KernelContext{
          *instruction.op, instruction.attributes, std::span(operands).first(instruction.operands.size()), std::span(&result, 1), {}});
      if (rounds) copy(values[value], result);
    }
    for (const int id : program_.outputs) {  // only now has every input been read
      const auto value = static_cast<std::size_t>(id);
      if (outputs_[value].defined() && !straight_[value]) copy(slice(outputs_[value], begin, count), values[value]);
    }
  }

  /// Halves are computed with as float32; only what makes halves of something else rounds to them.
  bool narrows(const ElementwiseProgram::Instruction& instruction, std::size_t value) const {
    const auto same = [&](int id) { return types_[static_cast<std::size_t>(id)].dtype == types_[value].dtype; };
    return is_half(types_[value].dtype) && std::none_of(instruction.operands.begin(), instruction.operands.end(), same);
  }

  static Tensor slice(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
    return elements_at(static_cast<std::byte*>(tensor.raw()) + static_cast<std::size_t>(begin) * size_of(tensor.dtype()), count,
                       tensor.dtype());
  }

  static Tensor read(const Source& source, std::int64_t begin, std::int64_t count, std::byte* memory) {
    const DType dtype = source.tensor.dtype();
    if (!is_half(dtype)) {
      if (source.dense()) return elements_at(source.at(begin), count, dtype);
      if (source.repeated()) return elements_at(source.at(0), 1, dtype);
    }
    dispatch_all(dtype, [&]<class From>() {
      using To = std::conditional_t<is_half_type<From>, float, From>;
      const From* const from = source.tensor.template data<From>();
      To* to = reinterpret_cast<To*>(memory);
      strided_range(source.shape, source.strides, begin, begin + count, [&](const auto& offsets, const auto& steps, std::int64_t length) {
        for (std::int64_t i = 0; i < length; ++i) to[i] = convert<To>(from[offsets[0] + i * steps[0]]);
        to += length;
      });
    });
    return elements_at(memory, count, computed(dtype));
  }

  std::byte* slot_at(int slot, std::byte* workspace) const { return workspace + static_cast<std::size_t>(slot) * slot_bytes_; }
  std::byte* slot(std::size_t value, std::byte* workspace) const { return slot_at(slots_.slots[value], workspace); }

  const ElementwiseProgram& program_;
  SlotPlan slots_;
  std::vector<TensorType> types_;  // by value, as are the next two
  std::vector<Tensor> outputs_;
  std::vector<bool> straight_;
  Shape shape_;
  EvenBlocks blocks_;
  std::size_t slot_bytes_ = 0;
  WorkSplit work_;
  std::vector<Source> sources_;
};

void run_elementwise(const KernelContext& call) { BlockProgram({call.op, types_of(call.inputs), call.attributes}).run(call); }

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

std::vector<std::pair<int, int>> all_pairs() {
  std::vector<std::pair<int, int>> pairs;
  for (int output = 0; output < most_program_outputs; ++output) {
    for (int input = 0; input < most_program_inputs; ++input) pairs.emplace_back(output, input);
  }
  return pairs;
}

}  // namespace
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
       .cpu = {.run = run_elementwise,
               .strided = true,
               .halves = true,
               .scratch = [](const InferContext& call) { return BlockProgram(call).scratch(); }},
       .in_place = all_pairs(),
       .samples = elementwise_samples});
}
