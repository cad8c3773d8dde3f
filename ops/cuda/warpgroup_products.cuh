#pragma once

#include <cstdint>
#include <type_traits>

#include "frit/core/half.h"
#ifdef __CUDACC__
#include "frit/core/cuda/vector.cuh"
#endif

// Products of matrices in shared memory by a warpgroup, 4 warps of which the first's number is a multiple of 4: Hopper's wgmma, of
// architecture 90a. sums (64, 48) += left (64, depth) * right (depth, 48), where a row of either factor's half of the depth is 16 bytes.
// What ordinary stores put into shared memory is seen after `fence_stores` by each thread that stored, and a barrier of the block.

namespace frit::warpgroup {

inline constexpr int threads = 128, rows = 64, columns = 48, chunk_bytes = 16;
/// Rows of 16 bytes that lie one after the other.
inline constexpr int group_rows = 8;

/// Of devices that have these instructions.
inline constexpr int capability = 90;
/// Whether a device does and frit was compiled for them.
bool available(int device);

/// Whether what is being compiled may have them.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define FRIT_HAS_WARPGROUP_PRODUCTS 1
#else
#define FRIT_HAS_WARPGROUP_PRODUCTS 0
#endif

/// Where a factor lies, for the instruction: from the first half of the depth to the second, and from one group of 8 rows to the next, in
/// bytes. These are multiples of 16 below 2^18; an address is added to the first word as `units`.
FRIT_HOST_DEVICE inline std::uint32_t first_word(std::uint32_t offset, std::uint32_t halves) { return offset / 16 | halves / 16 << 16; }
/// Of an address in shared memory, which in a cluster has the block's number in front.
FRIT_HOST_DEVICE inline std::uint32_t units(std::uint32_t address) { return address % (1 << 18) / 16; }
FRIT_HOST_DEVICE inline std::uint32_t second_word(std::uint32_t groups) { return groups / 16; }

#ifdef __CUDACC__
__device__ inline void fence_stores() {
#if FRIT_HAS_WARPGROUP_PRODUCTS
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/// By all threads of the warpgroup, as what follows: before products, which add to sums that the thread has written.
__device__ inline void begin_products() {
#if FRIT_HAS_WARPGROUP_PRODUCTS
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/// After products: they are on their way.
__device__ inline void commit_products() {
#if FRIT_HAS_WARPGROUP_PRODUCTS
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/// Until they are there, but for those of the last `groups`: the sums may be read and written when all are.
template <int groups = 0>
__device__ inline void wait_for_products() {
#if FRIT_HAS_WARPGROUP_PRODUCTS
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
#endif
}
/// Gives registers of the block's other warpgroups to this one, or others its own: it has so many in what follows.
template <int registers>
__device__ inline void take_registers() {
#if FRIT_HAS_WARPGROUP_PRODUCTS
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}
template <int registers>
__device__ inline void leave_registers() {
#if FRIT_HAS_WARPGROUP_PRODUCTS
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}
__device__ inline void complete_products() {
  commit_products();
  wait_for_products();
}

/// A thread's sums: [4 j + 2 h + v] is in row 16 w + 8 h + lane / 4, column 8 j + 2 (lane % 4) + v, w being its warp's number of four.
using Sums = float[24];

// A thread's sums as operands of an instruction, and their names in it.
#define FRIT_FOUR(i) "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3])
#define FRIT_SUMS_16 FRIT_FOUR(0), FRIT_FOUR(4), FRIT_FOUR(8), FRIT_FOUR(12)
#define FRIT_SUMS_32 FRIT_SUMS_16, FRIT_FOUR(16), FRIT_FOUR(20), FRIT_FOUR(24), FRIT_FOUR(28)
#define FRIT_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FRIT_16 FRIT_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FRIT_24 FRIT_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define FRIT_32 FRIT_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define FRIT_48 FRIT_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define FRIT_64 FRIT_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
/// The instruction FRIT_WGMMA(shape, type, transposed, ...) for `n` columns; `transposed` is said of halves alone.
#define FRIT_BY_TYPE(n, transposed, ...)                         \
  if constexpr (std::is_same_v<Stored, Half>) {                  \
    FRIT_WGMMA("m64n" n "k16", "f16", transposed, __VA_ARGS__);  \
  } else if constexpr (std::is_same_v<Stored, BFloat16>) {       \
    FRIT_WGMMA("m64n" n "k16", "bf16", transposed, __VA_ARGS__); \
  } else {                                                       \
    FRIT_WGMMA("m64n" n "k8", "tf32", "", __VA_ARGS__);          \
  }

/// sums = left * right + sums, or + 0, once they are complete.
template <class Stored>
__device__ void multiply(Sums& s, std::uint64_t left, std::uint64_t right, bool adds) {
#if FRIT_HAS_WARPGROUP_PRODUCTS
#define FRIT_WGMMA(shape, type, transposed, sums)                                                                              \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %26, 0;\nwgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" sums \
               "}, %24, %25, p, 1, 1" transposed ";\n}"                                                                        \
               : FRIT_SUMS_16, FRIT_FOUR(16), FRIT_FOUR(20)                                                                    \
               : "l"(left), "l"(right), "r"(static_cast<int>(adds)))
  FRIT_BY_TYPE("48", ", 0, 0", FRIT_24)
#undef FRIT_WGMMA
#endif
}

/// The same with twice as many columns.
inline constexpr int wide_columns = 2 * columns;
using WideSums = float[48];

/// The compiler moves no use of the sums past here.
template <int count>
__device__ void hold(float (&sums)[count]) {
#pragma unroll
  for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
}

/// sums += left * right, once they are complete.
template <class Stored>
__device__ void multiply(WideSums& s, std::uint64_t left, std::uint64_t right) {
#if FRIT_HAS_WARPGROUP_PRODUCTS
#define FRIT_WGMMA(shape, type, transposed, sums)                                                                          \
  asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" sums "}, %48, %49, 1, 1, 1" transposed ";" \
               : FRIT_SUMS_32, FRIT_FOUR(32), FRIT_FOUR(36), FRIT_FOUR(40), FRIT_FOUR(44)                                  \
               : "l"(left), "l"(right))
  FRIT_BY_TYPE("96", ", 0, 0", FRIT_48)
#undef FRIT_WGMMA
#endif
}

/// An element as products take it: float32 to the 10 bits of TF32, halves as they are.
template <class Stored>
__device__ std::uint32_t rounded_word(std::uint32_t word) {
#if FRIT_HAS_WARPGROUP_PRODUCTS
  if constexpr (sizeof(Stored) == 4) asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
#endif
  return word;
}
template <class Stored>
__device__ Stored rounded(Stored x) {
  if constexpr (sizeof(Stored) == 4) x = __uint_as_float(rounded_word<Stored>(__float_as_uint(x)));
  return x;
}

/// sums (64, columns) += left * right, once they are complete; the left factor is in registers, words of 2 halves or one float32, rounded:
/// [2 k + h] is in row 16 w + 8 h + lane / 4, word 4 k + lane % 4 of the depth. The sums are as above, columns / 2 a thread.
template <class Stored, int columns>
__device__ __forceinline__ void multiply_held(float (&s)[columns / 2], const std::uint32_t (&left)[4], std::uint64_t right) {
#if FRIT_HAS_WARPGROUP_PRODUCTS
#define FRIT_WGMMA(shape, type, transposed, sums, a, b, c, d, e)                                                           \
  asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" sums "}, {" a ", " b ", " c ", " d "}, " e \
               ", 1, 1, 1" transposed ";"                                                                                  \
               : FRIT_SUMS                                                                                                 \
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right))
  if constexpr (columns == 16) {
#define FRIT_SUMS FRIT_FOUR(0), FRIT_FOUR(4)
    FRIT_BY_TYPE("16", ", 0", FRIT_8, "%8", "%9", "%10", "%11", "%12")
#undef FRIT_SUMS
  } else if constexpr (columns == 32) {
#define FRIT_SUMS FRIT_SUMS_16
    FRIT_BY_TYPE("32", ", 0", FRIT_16, "%16", "%17", "%18", "%19", "%20")
#undef FRIT_SUMS
  } else if constexpr (columns == 64) {
#define FRIT_SUMS FRIT_SUMS_32
    FRIT_BY_TYPE("64", ", 0", FRIT_32, "%32", "%33", "%34", "%35", "%36")
#undef FRIT_SUMS
  } else {
    static_assert(columns == 128);
#define FRIT_SUMS \
  FRIT_SUMS_32, FRIT_FOUR(32), FRIT_FOUR(36), FRIT_FOUR(40), FRIT_FOUR(44), FRIT_FOUR(48), FRIT_FOUR(52), FRIT_FOUR(56), FRIT_FOUR(60)
    FRIT_BY_TYPE("128", ", 0", FRIT_64, "%64", "%65", "%66", "%67", "%68")
#undef FRIT_SUMS
  }
#undef FRIT_WGMMA
#endif
}
#undef FRIT_BY_TYPE
#undef FRIT_64
#undef FRIT_48
#undef FRIT_32
#undef FRIT_24
#undef FRIT_16
#undef FRIT_8
#undef FRIT_SUMS_32
#undef FRIT_SUMS_16
#undef FRIT_FOUR

/// A thread's part of 64 bytes of a left factor's depth, of its rows `upper` and `lower`: 16 bytes each, which are words of two products.
template <class Stored>
struct Fragment {
  std::uint32_t upper[4], lower[4];

  __device__ __forceinline__ static Fragment read(std::uint32_t upper_address, std::uint32_t lower_address) {
    Fragment f;
    read(f.upper, upper_address);
    read(f.lower, lower_address);
    return f;
  }
  /// Both products; the right factors lie one after the other, so many units apart.
  template <int columns>
  __device__ __forceinline__ void multiply(float (&sums)[columns / 2], std::uint64_t right, std::uint64_t units) const {
    multiply_held<Stored, columns>(sums, {upper[0], lower[0], upper[1], lower[1]}, right);
    multiply_held<Stored, columns>(sums, {upper[2], lower[2], upper[3], lower[3]}, right + units);
  }

 private:
  __device__ __forceinline__ static void read(std::uint32_t (&words)[4], std::uint32_t from) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
#pragma unroll
    for (std::uint32_t& word : words) word = rounded_word<Stored>(word);
  }
};

/// The row of the result that a column of the products should be, so that a thread's sums are of 4 neighbours of each 16.
FRIT_HOST_DEVICE constexpr int neighbour_of(int column) { return column / 16 * 16 + column % 8 / 2 * 4 + column / 8 % 2 * 2 + column % 2; }
/// From 16 n + 4 (lane % 4) on, of the upper or the lower row.
template <int count>
__device__ cuda::Vector<float, 4> neighbours(const float (&sums)[count], int n, int lower) {
  const float* const own = sums + n * 8 + lower * 2;
  return {{own[0], own[1], own[4], own[5]}};
}
#endif

}  // namespace frit::warpgroup
