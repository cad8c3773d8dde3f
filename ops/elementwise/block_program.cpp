#include "frit/ops/elementwise/block_program.h"

#include <algorithm>

#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

/// Elements that are carried through the whole program at a time: enough to outweigh the calls, and few enough to stay in a core's cache.
constexpr std::int64_t most_block_elements = 8192;

/// What fewer channels have is repeated: a call for each pixel would take longer than its elements.
constexpr std::int64_t least_row = 256;

Tensor elements_at(void* memory, std::int64_t count, DType dtype) { return Tensor::over(memory, {count}, dtype, Device::cpu(), nullptr); }

/// By the kernel of an operator that has nothing else.
ElementFunction function_of_kernel(const ElementwiseProgram::Instruction& instruction, std::vector<DType> operands, DType result) {
  struct Call {
    const ElementwiseProgram::Instruction& instruction;
    std::vector<DType> operands;
    DType result;
  };
  const MapRun run = [](const void* state, void* output, const void* const* data, const MapRows& rows) {
    const Call& call = *static_cast<const Call*>(state);
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      const auto tensor = [&](const void* memory, std::int64_t step, DType dtype) {
        std::byte* const first = static_cast<std::byte*>(const_cast<void*>(memory));
        return elements_at(first + row * step * static_cast<std::int64_t>(size_of(dtype)), rows.length, dtype);
      };
      std::vector<Tensor> inputs;
      for (std::size_t k = 0; k < call.operands.size(); ++k) inputs.push_back(tensor(data[k], rows.steps[k], call.operands[k]));
      const Tensor written = tensor(output, rows.output_step, call.result);
      call.instruction.op->cpu.run(KernelContext{*call.instruction.op, call.instruction.attributes, inputs, std::span(&written, 1), {}});
    }
  };
  return {run, std::make_shared<const Call>(Call{instruction, std::move(operands), result})};
}

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
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) steps_.push_back(step_of(i, inputs));
}

/// A rule sees types alone, and a single element where an operand is one.
BlockProgram::Step BlockProgram::step_of(std::size_t number, std::span<const Tensor> inputs) const {
  const ElementwiseProgram::Instruction& instruction = program_.instructions[number];
  const std::size_t value = sources_.size() + number;
  std::vector<Tensor> operands;
  std::vector<DType> dtypes;
  for (const int id : instruction.operands) {
    const auto operand = static_cast<std::size_t>(id);
    dtypes.push_back(computed_dtype(types_[operand].dtype));
    const bool known = operand < inputs.size() && inputs[operand].raw() != nullptr;  // there is no data while memory is planned
    const bool single = known && inputs[operand].elements() == 1 && inputs[operand].dtype() == dtypes.back();
    operands.push_back(single ? inputs[operand] : elements_at(nullptr, 0, dtypes.back()));
  }
  const bool rounds = narrows(instruction, value);
  const DType computed = computed_dtype(types_[value].dtype), result = rounds ? types_[value].dtype : computed;
  const Tensor none = elements_at(nullptr, 0, result);
  const KernelContext call{*instruction.op, instruction.attributes, operands, std::span(&none, 1), {}};
  const ElementRule& rule = instruction.op->cpu.elements;
  return {rule ? rule(call) : function_of_kernel(instruction, std::move(dtypes), result),
          rounds ? conversion(computed, result) : ElementFunction()};
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

BlockProgram::Elements::Elements(const Tensor& whole, Layout layout)
    : tensor(whole), order(whole, layout), size(static_cast<std::int64_t>(size_of(whole.dtype()))) {
  const int inner = order.shape.rank() - 1;
  if (inner > 0 && inner <= 2 && order.strides[0][inner] == 1 && order.strides[0][inner - 1] == 0) period = order.shape[inner];
}

/// Whether every row has the same elements.
bool BlockProgram::Elements::same_in(const Runs& rows) const {
  if (order.repeated()) return true;
  if (period == 0 || (rows.count > 1 && rows.step % period != 0)) return false;
  const std::int64_t phase = rows.begin % period, group = period * order.shape[order.shape.rank() - 2];
  const std::int64_t last = rows.begin_of(rows.count - 1) + rows.length - 1;
  return (phase + rows.length <= period || (phase == 0 && rows.length % period == 0)) && rows.begin / group == last / group;
}

BlockProgram::RowsOfValue BlockProgram::Elements::read(const Runs& rows, std::byte* memory) const {
  const DType dtype = tensor.dtype();
  const bool same = same_in(rows);
  if (!is_half(dtype)) {
    if (order.dense()) return {at(rows.begin), rows.step};
    if (same && rows.length <= period) {
      const std::int64_t group = order.shape.rank() == 3 ? rows.begin / (period * order.shape[1]) * order.strides[0][0] : 0;
      return {at(group + rows.begin % period), 0};
    }
  }
  dispatch_all(dtype, [&]<class From>() {
    using To = std::conditional_t<is_half_type<From>, float, From>;
    To* to = reinterpret_cast<To*>(memory);
    for (std::int64_t run = 0; run < (same ? 1 : rows.count); ++run, to += rows.length) {
      order.gather(tensor.data<From>(), rows.begin_of(run), rows.begin_of(run) + rows.length, to);
    }
  });
  return {memory, same ? 0 : rows.length};
}

void BlockProgram::Elements::write(const Runs& rows, const RowsOfValue& values) const {
  dispatch_all(tensor.dtype(), [&]<class To>() {
    using From = std::conditional_t<is_half_type<To>, float, To>;
    const From* from = reinterpret_cast<const From*>(values.data);
    for (std::int64_t run = 0; run < rows.count; ++run, from += values.step) {
      order.scatter(tensor.data<To>(), rows.begin_of(run), rows.begin_of(run) + rows.length, from);
    }
  });
}

/// As they are, or the first rows of one run that is cut where what is the same for many pixels begins again.
Runs BlockProgram::first_rows(const Runs& elements) const {
  if (elements.count > 1) return elements;
  for (const Elements& source : sources_) {
    const std::int64_t period = source.period;
    if (period == 0 || elements.length <= period || elements.begin % period != 0 || elements.length % period != 0) continue;
    const std::int64_t row = std::min((least_row - 1 + period) / period * period, elements.length);
    return {elements.begin, elements.length / row, row, row};
  }
  return elements;
}

void BlockProgram::compute(const Runs& elements, std::byte* workspace) const {
  const Runs rows = first_rows(elements);
  std::vector<RowsOfValue> values;
  values.reserve(types_.size());
  for (std::size_t i = 0; i < sources_.size(); ++i) values.push_back(sources_[i].read(rows, slot(i, workspace)));
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    const std::size_t value = sources_.size() + i;
    const std::vector<int>& operands = program_.instructions[i].operands;
    MapRows map{.rows = rows.count, .length = rows.length};
    std::array<const void*, most_instruction_operands> data{};
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const RowsOfValue& operand = values[static_cast<std::size_t>(operands[k])];
      data[k] = operand.data, map.steps[k] = operand.step;
    }
    values.push_back(straight_[value] ? RowsOfValue{outputs_[value]->at(rows.begin), rows.step}
                                      : RowsOfValue{slot(value, workspace), rows.length});
    map.output_step = values[value].step;
    const Step& step = steps_[i];
    if (!step.widen) {
      step.compute(values[value].data, data.data(), map);
      continue;
    }
    const void* const rounded = slot_at(slots_.count, workspace);
    map.output_step = rows.length;
    step.compute(slot_at(slots_.count, workspace), data.data(), map);
    step.widen(values[value].data, &rounded, {rows.count, rows.length, values[value].step, {rows.length}});
  }
  for (const int id : program_.outputs) {  // only now has every input been read
    const auto value = static_cast<std::size_t>(id);
    if (outputs_[value] && !straight_[value]) outputs_[value]->write(rows, values[value]);
  }
  const std::int64_t rest = elements.elements() - rows.elements();
  if (rest > 0) compute({.begin = rows.begin + rows.elements(), .length = rest}, workspace);
}

/// Halves are computed with as float32; only what makes halves of something else rounds to them.
bool BlockProgram::narrows(const ElementwiseProgram::Instruction& instruction, std::size_t value) const {
  const auto same = [&](int id) { return types_[static_cast<std::size_t>(id)].dtype == types_[value].dtype; };
  return is_half(types_[value].dtype) && std::none_of(instruction.operands.begin(), instruction.operands.end(), same);
}

}  // namespace frit::ops
