#pragma once

#include "frit/core/tensor.h"

namespace frit {

/// Computes `count` elements of an output from those of its operands, which lie side by side.
using MapRun = void (*)(const void* function, void* output, const void* const* operands, std::int64_t count);

inline constexpr std::size_t most_map_operands = 3;

/// Calls `run` with `function` for all elements of the output, in parallel. The operands have any strides and broadcast to the output's
/// shape, and it may have any too; of what does not lie side by side a few elements at a time are copied. The output may lie on an operand.
void strided_map(const Tensor& output, std::span<const Tensor> operands, MapRun run, const void* function);

}  // namespace frit
