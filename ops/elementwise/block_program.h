#pragma once

#include <optional>

#include "frit/core/strided_copy.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/operator/elementwise_program.h"

namespace frit::ops {

/// A program on the CPU: the operators' own kernels carry blocks of elements through all of it, so that what lies between stays in a core's
/// cache. Refers to the program.
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
  /// A tensor as the blocks read or write it: elements side by side, one for all, or in another order.
  struct Elements {
    Tensor tensor;
    StridedElements order;

    Elements(const Tensor& whole, Layout layout) : tensor(whole), order(whole, layout) {}
    std::byte* at(std::int64_t element) const;
    Tensor read(const Runs& elements, std::byte* memory) const;
    void write(const Runs& elements, const Tensor& values) const;
  };

  void compute(const Runs& elements, std::byte* workspace) const;
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
};

}  // namespace frit::ops
