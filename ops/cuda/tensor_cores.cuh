#pragma once

#include <cstdint>
#include <type_traits>

#include "frit/core/cuda/vector.cuh"
#include "frit/core/half.h"

// Products of small matrices by a warp, on tensor cores: sums (rows, 16 columns) += left (rows, depth) * right (depth, 16 columns). Both
// factors lie in shared memory with their depth outside, left[depth][row] and right[depth][column], `step` elements apart; the right one's
// second 8 columns are `block_step` elements from the first. A thread keeps, for either factor, the offset in elements of what it reads of
// it; addresses are those of shared memory.

namespace frit::tensor_cores {

inline constexpr int rows = 16, columns = 16;
/// A thread's sums.
inline constexpr int held = 8;
using Sums = float[held];

/// Matrices of 8 x 8 halves, transposed: lane 8 i + r has the address of row r of the i-th. A thread gets two neighbours of each.
__device__ inline void load_transposed(std::uint32_t (&matrices)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(row)
               : "memory");
}
__device__ inline void load_transposed(std::uint32_t (&matrices)[2], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(matrices[0]), "=r"(matrices[1])
               : "r"(row)
               : "memory");
}
__device__ inline float load_float(std::uint32_t address) {
  float element;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(element) : "r"(address) : "memory");
  return element;
}

/// One instruction: sums (16, 8) += left (16, depth) * right (depth, 8).
template <class Stored>
struct Instruction {
  __device__ static void multiply(float* sums, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
#define FRIT_MMA(shape, type)                                                                                                        \
  asm("mma.sync.aligned." shape ".row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
    if constexpr (std::is_same_v<Stored, float>) {
      FRIT_MMA("m16n8k8", "tf32");
    } else if constexpr (std::is_same_v<Stored, Half>) {
      FRIT_MMA("m16n8k16", "f16");
    } else {
      static_assert(std::is_same_v<Stored, BFloat16>);
      FRIT_MMA("m16n8k16", "bf16");
    }
#undef FRIT_MMA
  }
};

/// What a thread reads of a factor, and what it does with it.
struct Factor {
  std::uint32_t of[4];
};
template <class Stored>
struct FactorProduct {
  __device__ static int column_of(int i, int lane) { return lane % 4 * 2 + i % 2 + i / 4 * 8; }
  __device__ static void multiply(Sums& sums, const Factor& a, const Factor& b) {
    Instruction<Stored>::multiply(sums, a.of, b.of[0], b.of[1]);
    Instruction<Stored>::multiply(sums + 4, a.of, b.of[2], b.of[3]);
  }
};

/// Halves of either kind. Rows and columns start at multiples of 16 bytes.
template <class Stored>
struct Product : FactorProduct<Stored> {
  static constexpr int depth = 16;
  static constexpr bool rounds = false;

  template <int count>
  __device__ static const cuda::Vector<Stored, count>& rounded(const cuda::Vector<Stored, count>& elements) {
    return elements;
  }

  __device__ static int row_of(int i, int lane) { return lane / 4 + i / 2 % 2 * 8; }
  __device__ static int left_offset(int step, int lane) { return (lane % 8 + lane / 16 * 8) * step + lane / 8 % 2 * 8; }
  __device__ static int right_offset(int step, int block_step, int lane) { return lane % 16 * step + lane / 16 * block_step; }
  __device__ static Factor left(std::uint32_t own, int) { return right(own, 0); }
  __device__ static Factor right(std::uint32_t own, int) {
    Factor b;
    load_transposed(b.of, own);
    return b;
  }
};

/// float32, which is to be rounded to the 10 bits of TF32 first. A thread reads pairs of neighbours of the left factor; its rows are
/// numbered so that these are what it needs.
template <>
struct Product<float> : FactorProduct<float> {
  static constexpr int depth = 8;
  static constexpr bool rounds = true;

  template <int count>
  __device__ static cuda::Vector<float, count> rounded(const cuda::Vector<float, count>& elements) {
    cuda::Vector<float, count> result;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      std::uint32_t bits;
#if __CUDA_ARCH__ >= 900
      asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(elements[i]));
#else
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(elements[i]));
#endif
      result[i] = __uint_as_float(bits);
    }
    return result;
  }

  __device__ static int row_of(int i, int lane) { return lane / 4 * 2 + i / 2 % 2; }
  __device__ static int left_offset(int step, int lane) { return lane % 4 * step + lane / 4 * 2; }
  __device__ static int right_offset(int step, int, int lane) { return lane % 4 * step + lane / 4; }
  /// `further`: bytes to what is half the depth further.
  __device__ static Factor left(std::uint32_t own, int further) {
    Factor a;
    load_pair(a.of[0], a.of[1], own);
    load_pair(a.of[2], a.of[3], own + static_cast<std::uint32_t>(further));
    return a;
  }
  __device__ static Factor right(std::uint32_t own, int further) {
    const std::uint32_t second = own + static_cast<std::uint32_t>(further);
    return {{load<0>(own), load<0>(second), load<32>(own), load<32>(second)}};
  }

 private:
  template <int bytes>
  __device__ static std::uint32_t load(std::uint32_t address) {
    std::uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1 + %2];" : "=r"(word) : "r"(address), "n"(bytes) : "memory");
    return word;
  }
  __device__ static void load_pair(std::uint32_t& first, std::uint32_t& second, std::uint32_t address) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "r"(address) : "memory");
  }
};

}  // namespace frit::tensor_cores
