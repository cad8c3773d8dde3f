#include "frit/ops/cpu/bfloat_product.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "frit/core/error.h"
#include "frit/ops/cpu/prefetch.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__AVX512F__) && defined(__AVX512BW__)
#define FRIT_BFLOAT_INSTRUCTIONS
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace frit::ops {

void pack_bfloat_steps(std::span<const Run> runs, const float* block, int vectors, BFloat16* packed) {
  constexpr std::int64_t lanes = simd::lanes<float>;
  constexpr std::array<float, lanes> zeros = {};
  const std::int64_t width = vectors * lanes;
  for (const Run& run : runs) {
    const auto row = [&](std::int64_t element, int v) { return element < run.length ? block + element * width + v * lanes : zeros.data(); };
    for (std::int64_t k = 0; k < run.length; k += bfloat_step) {
      for (int v = 0; v < vectors; ++v) {
        for (std::int64_t pair = k; pair < k + bfloat_step; pair += 2, packed += 2 * lanes) {
          const float *even = row(pair, v), *odd = row(pair + 1, v);
          for (std::int64_t i = 0; i < lanes; ++i) packed[2 * i] = BFloat16(even[i]), packed[2 * i + 1] = BFloat16(odd[i]);
        }
      }
    }
    block += run.length * width;
  }
}

#ifdef FRIT_BFLOAT_INSTRUCTIONS

namespace {

using simd::lanes;
using simd::Vector;
using BfloatProduct = RunProduct<float, BFloat16>;

constexpr int tile_rows = 16,
              most_rows = 2 * tile_rows;  // of an AMX tile, and that are multiplied together
constexpr int tile_elements = tile_rows * static_cast<int>(bfloat_step);

/// Of rows that are multiplied together.
struct alignas(64) Sums {
  float rows[most_rows][product_columns<float>];
};

/// Writes the sums of positions [first, first + count).
void finish(const BfloatProduct& p, std::int64_t first, std::int64_t count, const Sums& sums) {
  const Vector<float> low = simd::broadcast(p.rectifier.low), high = simd::broadcast(p.rectifier.high);
  for (std::int64_t i = 0; i < count; ++i) {
    float* const row = p.c + (p.c_places != nullptr ? p.c_places[first + i] : (first + i) * p.c_stride);
    for (int v = 0; v < p.vectors; ++v) {
      float* const c = row + v * lanes<float>;
      Vector<float> sum = simd::load(&sums.rows[i][v * lanes<float>]);
      if (p.accumulate) {
        sum += simd::load(c);
      } else if (p.bias != nullptr) {
        sum += simd::load(p.bias + v * lanes<float>);
      }
      if (p.rectifier.addend != nullptr) sum += simd::load(p.rectifier.addend + (c - p.c));
      simd::store(c, simd::clamp<float>(sum, low, high));
    }
  }
}

/// Two elements of a row as one number, or one and a zero.
template <bool whole>
inline std::int32_t pair_at(const BFloat16* from) {
  std::int32_t result = 0;
  std::memcpy(&result, from, whole ? sizeof result : sizeof *from);
  return result;
}

template <int rows, int vectors>
using PairTile = __m512[rows][vectors];

/// Adds the products of elements `offset` and, if `whole`, the one after it.
template <bool whole, int rows, int vectors>
[[gnu::always_inline]] __attribute__((target("avx512bf16"))) inline void add_pair(PairTile<rows, vectors>& tile,
                                                                                  const BFloat16* const (&a)[rows], std::int64_t offset,
                                                                                  const BFloat16* b) {
  __m512i b_row[vectors];
#pragma GCC unroll 2
  for (int v = 0; v < vectors; ++v) b_row[v] = _mm512_loadu_si512(b + v * tile_elements);
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i) {
    const __m512i pair = _mm512_set1_epi32(pair_at<whole>(a[i] + offset));
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) tile[i][v] = _mm512_dpbf16_ps(tile[i][v], (__m512bh)pair, (__m512bh)b_row[v]);
  }
}

/// Sums of up to `rows` positions, the last of which stands for those that are missing.
template <int rows, int vectors>
__attribute__((target("avx512bf16"))) void add_pairs(const BfloatProduct& p, std::span<const BFloat16* const> positions, Sums& sums) {
  PairTile<rows, vectors> tile = {};
  const BFloat16* a[rows];
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i) a[i] = positions[std::min(static_cast<std::size_t>(i), positions.size() - 1)];
  const BFloat16* b = p.b;
  for (const Run& run : p.runs) {
    for (std::int64_t begin = 0; begin < run.length; begin += bfloat_step, b += vectors * tile_elements) {
      const std::int64_t count = std::min(bfloat_step, run.length - begin), offset = run.offset + begin;
      std::int64_t k = 0;
      for (; k + 1 < count; k += 2) add_pair<true, rows, vectors>(tile, a, offset + k, b + k * lanes<float>);
      if (k < count) add_pair<false, rows, vectors>(tile, a, offset + k, b + k * lanes<float>);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) _mm512_store_ps(&sums.rows[i][v * lanes<float>], tile[i][v]);
  }
}

void multiply_pairs(const BfloatProduct& p, std::span<const BFloat16* const> positions, Sums& sums) {
  constexpr std::size_t few_rows = 4;
  if (p.vectors == 1) return positions.size() > few_rows ? add_pairs<12, 1>(p, positions, sums) : add_pairs<4, 1>(p, positions, sums);
  positions.size() > few_rows ? add_pairs<12, 2>(p, positions, sums) : add_pairs<4, 2>(p, positions, sums);
}

/// Elements of a product that are gathered at a time, if they do not lie evenly: what two tiles of rows take of the nearest cache.
constexpr std::int64_t most_gathered = 1024;

/// What a tile of rows is loaded from: step by step.
struct TileSource {
  const BFloat16* first;
  std::int64_t stride;    ///< between rows
  std::int64_t step = 0;  ///< between steps, or 0: they lie as the runs say

  const BFloat16* at(std::int64_t offset, std::int64_t index) const { return first + (step != 0 ? index * step : offset); }
  std::int64_t stride_bytes() const { return stride * static_cast<std::int64_t>(sizeof(BFloat16)); }
};

/// Whether a whole tile of positions has all steps at even distances.
bool lie_evenly(std::span<const Run> runs, std::span<const BFloat16* const> positions) {
  if (positions.size() != tile_rows) return false;
  for (std::size_t i = 2; i < tile_rows; ++i) {
    if (positions[i] - positions[i - 1] != positions[1] - positions[0]) return false;
  }
  return std::all_of(runs.begin(), runs.end(), [](const Run& run) { return run.length % bfloat_step == 0; });
}

/// Rows as tiles are loaded, in `memory` if they do not lie so; the last position stands for those that are missing.
TileSource tile_source(std::span<const Run> runs, std::span<const BFloat16* const> positions, BFloat16* memory) {
  if (lie_evenly(runs, positions)) return {positions[0], positions[1] - positions[0]};
  const BFloat16* a[tile_rows];
  for (std::size_t i = 0; i < tile_rows; ++i) a[i] = positions[std::min(i, positions.size() - 1)];
  BFloat16* to = memory;
  for (const Run& run : runs) {
    for (std::int64_t k = 0; k < run.length; k += bfloat_step) {
      const std::int64_t count = std::min(bfloat_step, run.length - k);
      const auto mask = static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
#pragma GCC unroll 16
      for (int i = 0; i < tile_rows; ++i, to += bfloat_step) _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16(mask, a[i] + run.offset + k));
    }
  }
  return {memory, bfloat_step, tile_elements};
}

/// Tiles 0 to 3 hold sums, of two tiles of rows by two of columns, 4 and 5 rows of a, and 6 and 7 columns of b.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, first_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileShapes tile_shapes;

template <int heights, int vectors>
__attribute__((target("amx-tile,amx-bf16"))) void add_tiles(const BfloatProduct& p, const TileSource (&a)[2], Sums& sums) {
  _tile_zero(0);
  if constexpr (vectors > 1) _tile_zero(1);
  if constexpr (heights > 1) _tile_zero(2);
  if constexpr (heights > 1 && vectors > 1) _tile_zero(3);
  const BFloat16* b = p.b;
  std::int64_t index = 0;
  for (const Run& run : p.runs) {
    for (std::int64_t k = 0; k < run.length; k += bfloat_step, ++index, b += vectors * tile_elements) {
      _tile_loadd(4, a[0].at(run.offset + k, index), a[0].stride_bytes());
      _tile_loadd(6, b, 64);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (vectors > 1) {
        _tile_loadd(7, b + tile_elements, 64);
        _tile_dpbf16ps(1, 4, 7);
      }
      if constexpr (heights > 1) {
        _tile_loadd(5, a[1].at(run.offset + k, index), a[1].stride_bytes());
        _tile_dpbf16ps(2, 5, 6);
        if constexpr (vectors > 1) _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  constexpr int row_bytes = sizeof sums.rows[0];
  _tile_stored(0, &sums.rows[0][0], row_bytes);
  if constexpr (vectors > 1) _tile_stored(1, &sums.rows[0][lanes<float>], row_bytes);
  if constexpr (heights > 1) _tile_stored(2, &sums.rows[tile_rows][0], row_bytes);
  if constexpr (heights > 1 && vectors > 1) _tile_stored(3, &sums.rows[tile_rows][lanes<float>], row_bytes);
}

void multiply_tiles(const BfloatProduct& p, std::span<const BFloat16* const> positions, Sums& sums) {
  alignas(64) static thread_local BFloat16 memory[2][most_gathered * tile_rows];
  const std::size_t first = std::min<std::size_t>(positions.size(), tile_rows);
  const bool two = positions.size() > first;
  TileSource a[2] = {tile_source(p.runs, positions.first(first), memory[0])};
  if (two) a[1] = tile_source(p.runs, positions.subspan(first), memory[1]);
  asm volatile("" ::: "memory");  // compilers do not know what loads of tiles read
  if (p.vectors == 1) return two ? add_tiles<2, 1>(p, a, sums) : add_tiles<1, 1>(p, a, sums);
  two ? add_tiles<2, 2>(p, a, sums) : add_tiles<1, 2>(p, a, sums);
}

__attribute__((target("amx-tile"))) void begin_tiles() { _tile_loadconfig(&tile_shapes); }
__attribute__((target("amx-tile"))) void end_tiles() { _tile_release(); }

/// What a leaf of cpuid, 7, says of extensions, and Linux allows: a process has to ask for the memory of tiles.
bool detect(BfloatInstructions instructions) {
  constexpr unsigned avx512_bf16 = 1u << 5, amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (instructions == BfloatInstructions::avx512) return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & avx512_bf16) != 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & amx_bf16) == 0 || (edx & amx_tile) == 0) return false;
  constexpr long request_permission = 0x1023,
                 tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

}  // namespace

bool has_bfloat_instructions(BfloatInstructions instructions) {
  static const bool avx512 = detect(BfloatInstructions::avx512), amx = detect(BfloatInstructions::amx);
  return instructions == BfloatInstructions::amx ? amx : instructions == BfloatInstructions::none || avx512;
}

void multiply_by(BfloatInstructions instructions, const BfloatProduct& p) {
  const bool by_tiles = instructions == BfloatInstructions::amx;
  const std::int64_t count = std::ssize(p.a), height = by_tiles ? most_rows : product_rows;
  const std::int64_t next = std::ssize(p.next), share = count == 0 ? 0 : next / ((count - 1) / height + 1) + 1;
  if (by_tiles) begin_tiles();
  for (std::int64_t first = 0, read = 0; first < count; first += height, read += share) {
    const std::int64_t rows = std::min(height, count - first);
    const auto positions = p.a.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
    if (read < next) prefetch(p.next.data() + read, std::min(share, next - read) * static_cast<std::int64_t>(sizeof(BFloat16)));
    Sums sums;
    by_tiles ? multiply_tiles(p, positions, sums) : multiply_pairs(p, positions, sums);
    finish(p, first, rows, sums);
  }
  if (by_tiles) end_tiles();
}

#else

bool has_bfloat_instructions(BfloatInstructions instructions) { return instructions == BfloatInstructions::none; }

void multiply_by(BfloatInstructions, const RunProduct<float, BFloat16>&) { FRIT_CHECK(false); }

#endif

BfloatInstructions bfloat_instructions() {
  for (const BfloatInstructions best : {BfloatInstructions::amx, BfloatInstructions::avx512}) {
    if (has_bfloat_instructions(best)) return best;
  }
  return BfloatInstructions::none;
}

void multiply(const RunProduct<float, BFloat16>& product) { multiply_by(bfloat_instructions(), product); }

}  // namespace frit::ops
