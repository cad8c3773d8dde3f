#pragma once

#include "frit/core/half.h"
#include "frit/ops/cpu/run_product.h"

namespace frit::ops {

/// A processor's instructions that multiply bfloat16 numbers and sum in float32: AVX-512 BF16, or AMX, with tiles of 16 rows or columns by
/// 32 elements.
enum class BfloatInstructions { none, avx512, amx };

/// The fastest that this machine's processor has, of those that the library is compiled for: none but for x86-64-v4.
BfloatInstructions bfloat_instructions();
bool has_bfloat_instructions(BfloatInstructions instructions);

/// Elements of a run that are multiplied together: in a packed b, runs are filled up with zeros to a multiple of this.
inline constexpr std::int64_t bfloat_step = 32;
constexpr std::int64_t whole_bfloat_steps(std::int64_t elements) { return (elements + bfloat_step - 1) / bfloat_step * bfloat_step; }

/// Packs a block (elements of the runs, whole vectors of columns) as such a product reads it: for each step of each run, and each vector,
/// pairs of elements (16, columns, 2).
void pack_bfloat_steps(std::span<const Run> runs, const float* block, int vectors, BFloat16* packed);

/// With a packed b, by bfloat_instructions(): the bits of different ones differ.
void multiply(const RunProduct<float, BFloat16>& product);
void multiply_by(BfloatInstructions instructions, const RunProduct<float, BFloat16>& product);

}  // namespace frit::ops
