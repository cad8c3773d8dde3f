#pragma once

#include <array>
#include <memory>

#include "frit/core/tensor.h"

namespace frit {

inline constexpr std::size_t most_map_operands = 3;

/// Rows of elements that lie side by side, and how many elements it is from one row to the next of an output and of its operands.
struct MapRows {
  std::int64_t rows, length, output_step = 0;
  std::array<std::int64_t, most_map_operands> steps = {};
};

/// Computes each element of an output from those of its operands at its place. The output may lie on an operand.
using MapRun = void (*)(const void* function, void* output, const void* const* operands, const MapRows& rows);

/// What computes elements of certain types, with what it holds.
struct ElementFunction {
  MapRun run = nullptr;
  std::shared_ptr<const void> state = nullptr;

  void operator()(void* output, const void* const* operands, const MapRows& rows) const { run(state.get(), output, operands, rows); }
  explicit operator bool() const { return run != nullptr; }
};

/// Converts elements of another dtype.
ElementFunction conversion(DType to, DType from);

/// Computes all elements of the output, in parallel. The operands have any strides and broadcast to the output's shape, and it may have any
/// too; of what does not lie side by side a few elements at a time are copied. The output may lie on an operand.
void strided_map(const Tensor& output, std::span<const Tensor> operands, const ElementFunction& function);

}  // namespace frit
