#pragma once

#include <optional>

#include "frit/core/strided_copy.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/operator/elementwise_program.h"

namespace frit::ops {

/// A program on the CPU: what computes the operators' elements carries blocks of them through all of it, so that what lies between stays in
/// a core's cache. Refers to the program.
class BlockProgram {
 public:
  /// On operands of these types, which it can be computed with.
  BlockProgram(const ElementwiseProgram& program, std::span<const TensorType> operands);

  /// How the elements of `run` are numbered: as the outputs lie in memory, or where only all of them are computed, as is fastest.
  enum class Numbering { of_outputs, any };

  /// The tensors that it reads and writes, of any layouts, before anything is computed. An output may be undefined, or be one of the
  /// inputs. If any output lies channels-last, that is the order of all.
  void bind(std::span<const Tensor> inputs, std::span<const Tensor> outputs, Numbering numbering = Numbering::of_outputs);

  /// All elements, in parallel.
  void run(std::span<std::byte> scratch) const;
  std::size_t scratch() const { return work_.scratch(); }

  /// Some elements, in a thread's own workspace.
  void run(Runs elements, std::byte* workspace) const;
  std::size_t workspace_bytes() const { return slot_bytes_ * static_cast<std::size_t>(slots_.count + 1); }

 private:
  /// A value's elements in the rows of a block, and how many elements it is from one row to the next.
  struct RowsOfValue {
    std::byte* data;
    std::int64_t step;
  };
  /// A tensor as the blocks read or write it.
  struct Elements {
    Tensor tensor;
    StridedElements order;
    std::int64_t size;        ///< of an element, in bytes
    std::int64_t period = 0;  ///< not 0: so many elements that lie side by side are repeated

    Elements(const Tensor& whole, Layout layout);
    std::byte* at(std::int64_t element) const { return static_cast<std::byte*>(tensor.raw()) + element * size; }
    bool same_in(const Runs& rows) const;
    /// Where the elements lie, or `memory`, to which they have been brought.
    RowsOfValue read(const Runs& rows, std::byte* memory) const;
    void write(const Runs& rows, const RowsOfValue& values) const;
  };
  /// How an instruction is computed, and, of a result that is rounded to halves, how these become what is computed with.
  struct Step {
    ElementFunction compute, widen;
  };

  void compute(const Runs& elements, std::byte* workspace) const;
  Runs first_rows(const Runs& elements) const;
  Step step_of(std::size_t instruction, std::span<const Tensor> inputs) const;
  bool narrows(const ElementwiseProgram::Instruction& instruction, std::size_t value) const;
  std::byte* slot_at(int slot, std::byte* workspace) const { return workspace + static_cast<std::size_t>(slot) * slot_bytes_; }
  std::byte* slot(std::size_t value, std::byte* workspace) const { return slot_at(slots_.slots[value], workspace); }

  const ElementwiseProgram& program_;
  SlotPlan slots_;
  std::vector<TensorType> types_;                 // by value, as are the next two
  std::vector<std::optional<Elements>> outputs_;  // none where the value is not read
  std::vector<bool> straight_;                    // it may be written where the output lies
  Shape shape_;
  EvenBlocks blocks_;
  std::size_t slot_bytes_ = 0;
  WorkSplit work_;
  std::vector<Elements> sources_;
  std::vector<Step> steps_;
};

}  // namespace frit::ops
