#include "frit/ops/elementwise/block_program.h"

#include <algorithm>

#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

/// Elements that are carried through the whole program at a time: enough to outweigh the calls, and few enough to stay in a core's cache.
constexpr std::int64_t most_block_elements = 8192;

Tensor elements_at(void* memory, std::int64_t count, DType dtype) { return Tensor::over(memory, {count}, dtype, Device::cpu(), nullptr); }

bool channels_last(std::span<const Tensor> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) { return tensor.defined() && has_inner_channels(tensor); });
}

}  // namespace

BlockProgram::BlockProgram(const ElementwiseProgram& program, std::span<const TensorType> operands)
    : program_(program), slots_(program_, std::vector<bool>(static_cast<std::size_t>(program_.values()), true), /*outputs_stay=*/true) {
  const std::string problem = program.check(operands, types_);
  FRIT_CHECK(problem.empty());
  shape_ = types_.back().shape;
  std::size_t widest = 1;
  for (const TensorType& type : types_) widest = std::max(widest, size_of(computed_dtype(type.dtype)));
  blocks_ = EvenBlocks(element_count(shape_), most_block_elements, 64);
  slot_bytes_ = static_cast<std::size_t>(blocks_.size) * widest;
  const std::int64_t cost = blocks_.size * static_cast<std::int64_t>(program_.instructions.size()) * 4;
  work_ = WorkSplit(blocks_.count, cost, workspace_bytes());
}

/// A result goes straight to its place if nothing that is read later lies there.
void BlockProgram::bind(std::span<const Tensor> inputs, std::span<const Tensor> outputs, Numbering numbering) {
  const bool by_pixels = channels_last(outputs) || (numbering == Numbering::any && channels_last(inputs));
  const Layout order = by_pixels ? Layout::channels_last : Layout::contiguous;
  for (const Tensor& input : inputs) sources_.emplace_back(input.expand(shape_), order);
  outputs_.assign(static_cast<std::size_t>(program_.values()), {});
  straight_.assign(outputs_.size(), false);
  const std::vector<int> last_reads = program_.last_reads();
  for (std::size_t k = 0; k < program_.outputs.size(); ++k) {
    const auto value = static_cast<std::size_t>(program_.outputs[k]);
    const Tensor& output = outputs[k];
    if (!output.defined()) continue;
    outputs_[value].emplace(output, order);
    straight_[value] = !is_half(output.dtype()) && outputs_[value]->order.dense();
    for (std::size_t input = 0; input < inputs.size(); ++input) {
      const bool read_later = last_reads[input] > program_.outputs[k] - program_.inputs;
      if (straight_[value] && read_later && inputs[input].raw() == output.raw()) straight_[value] = false;
    }
  }
}

void BlockProgram::run(std::span<std::byte> scratch) const {
  work_.run(scratch, [&](std::int64_t block, std::byte* workspace) {
    compute({.begin = blocks_.begin(block), .length = blocks_.length_of(block)}, workspace);
  });
}

void BlockProgram::run(Runs elements, std::byte* workspace) const {
  if (elements.step == elements.length) elements = {.begin = elements.begin, .length = elements.elements()};
  const std::int64_t length = std::min(elements.length, blocks_.size), together = length > 0 ? blocks_.size / length : 1;
  for (std::int64_t run = 0; run < elements.count; run += together) {
    const std::int64_t runs = std::min(together, elements.count - run);
    for (std::int64_t done = 0; done < elements.length; done += length) {
      compute({elements.begin_of(run) + done, runs, elements.step, std::min(length, elements.length - done)}, workspace);
    }
  }
}

std::byte* BlockProgram::Elements::at(std::int64_t element) const {
  return static_cast<std::byte*>(tensor.raw()) + static_cast<std::size_t>(element) * size_of(tensor.dtype());
}

Tensor BlockProgram::Elements::read(const Runs& elements, std::byte* memory) const {
  const DType dtype = tensor.dtype();
  if (!is_half(dtype)) {
    if (order.dense() && elements.count == 1) return elements_at(at(elements.begin), elements.length, dtype);
    if (order.repeated()) return elements_at(at(0), 1, dtype);
  }
  dispatch_all(dtype, [&]<class From>() {
    using To = std::conditional_t<is_half_type<From>, float, From>;
    To* to = reinterpret_cast<To*>(memory);
    for (std::int64_t run = 0; run < elements.count; ++run, to += elements.length) {
      order.gather(tensor.data<From>(), elements.begin_of(run), elements.begin_of(run) + elements.length, to);
    }
  });
  return elements_at(memory, elements.elements(), computed_dtype(dtype));
}

void BlockProgram::Elements::write(const Runs& elements, const Tensor& values) const {
  dispatch_all(tensor.dtype(), [&]<class To>() {
    using From = std::conditional_t<is_half_type<To>, float, To>;
    const From* from = values.data<From>();
    for (std::int64_t run = 0; run < elements.count; ++run, from += elements.length) {
      order.scatter(tensor.data<To>(), elements.begin_of(run), elements.begin_of(run) + elements.length, from);
    }
  });
}

void BlockProgram::compute(const Runs& elements, std::byte* workspace) const {
  const std::int64_t count = elements.elements();
  std::vector<Tensor> values;
  values.reserve(types_.size());
  for (std::size_t i = 0; i < sources_.size(); ++i) values.push_back(sources_[i].read(elements, slot(i, workspace)));
  const auto is_straight = [&](std::size_t value) { return straight_[value] && elements.count == 1; };
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    const std::size_t value = sources_.size() + i;
    const ElementwiseProgram::Instruction& instruction = program_.instructions[i];
    std::array<Tensor, most_instruction_operands> operands;
    for (std::size_t k = 0; k < instruction.operands.size(); ++k) operands[k] = values[static_cast<std::size_t>(instruction.operands[k])];
    const DType dtype = computed_dtype(types_[value].dtype);
    values.push_back(is_straight(value) ? elements_at(outputs_[value]->at(elements.begin), count, dtype)
                                        : elements_at(slot(value, workspace), count, dtype));
    const bool rounds = narrows(instruction, value);
    const Tensor result = rounds ? elements_at(slot_at(slots_.count, workspace), count, types_[value].dtype) : values[value];
    instruction.op->cpu.run(KernelContext{
        *instruction.op, instruction.attributes, std::span(operands).first(instruction.operands.size()), std::span(&result, 1), {}});
    if (rounds) copy(values[value], result);
  }
  for (const int id : program_.outputs) {  // only now has every input been read
    const auto value = static_cast<std::size_t>(id);
    if (outputs_[value] && !is_straight(value)) outputs_[value]->write(elements, values[value]);
  }
}

/// Halves are computed with as float32; only what makes halves of something else rounds to them.
bool BlockProgram::narrows(const ElementwiseProgram::Instruction& instruction, std::size_t value) const {
  const auto same = [&](int id) { return types_[static_cast<std::size_t>(id)].dtype == types_[value].dtype; };
  return is_half(types_[value].dtype) && std::none_of(instruction.operands.begin(), instruction.operands.end(), same);
}

}  // namespace frit::ops
