#include "frit/core/strided_copy.h"

#include <cstring>

namespace frit {

Dims axes_in_memory(int rank, Layout layout) {
  Dims axes;
  const bool channels_last = layout == Layout::channels_last;
  for (int axis = 0; axis < rank; ++axis) {
    if (axis != 1 || !channels_last) axes.push_back(axis);
  }
  if (channels_last) axes.push_back(1);
  return axes;
}

bool has_inner_channels(const Tensor& tensor) {
  if (tensor.rank() < 4 || tensor.shape()[1] == 1 || tensor.strides()[1] != 1) return false;
  for (int axis = 2; axis < tensor.rank(); ++axis) {
    if (tensor.shape()[axis] > 1 && tensor.strides()[axis] < tensor.shape()[1]) return false;
  }
  return true;
}

namespace detail {
namespace {

using Word = std::uint32_t;
constexpr int side = 8;
typedef Word Words __attribute__((vector_size(side * sizeof(Word))));

/// Rows become columns: within pairs, within quarters, within the whole.
[[gnu::always_inline]] inline void transpose(Words (&v)[side]) {
  Words pairs[side], quads[side];
#pragma GCC unroll 4
  for (int i = 0; i < side; i += 2) {
    pairs[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 4
  for (int i = 0; i < side; i += 4) {
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      quads[i + 2 * k] = __builtin_shufflevector(pairs[i + k], pairs[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      quads[i + 2 * k + 1] = __builtin_shufflevector(pairs[i + k], pairs[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < side / 2; ++i) {
    v[i] = __builtin_shufflevector(quads[i], quads[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    v[i + 4] = __builtin_shufflevector(quads[i], quads[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

/// The matrix whose rows are read along its columns. Where rows lie next to each other, a vector may be read past the end of one, or
/// written there if the rows and columns that follow are written later.
struct Transposition {
  Word* to;
  std::int64_t to_row;
  const Word* from;
  std::int64_t from_column, rows, columns;

  /// Elements of a vector that may be touched from `place` on, of which `wanted` are needed, in memory whose lines have `length` elements.
  static std::int64_t reach(std::int64_t place, std::int64_t wanted, std::int64_t length, std::int64_t line, std::int64_t lines) {
    return line == length ? std::min<std::int64_t>(side, line * lines - place) : wanted;
  }

  static void copy_some(void* destination, const void* source, std::int64_t count) {
    std::memcpy(destination, source, count == side ? sizeof(Words) : static_cast<std::size_t>(count) * sizeof(Word));
  }

  void whole_block(std::int64_t r, std::int64_t c) const {
    Words v[side];
#pragma GCC unroll 8
    for (int i = 0; i < side; ++i) std::memcpy(&v[i], from + (c + i) * from_column + r, sizeof v[i]);
    transpose(v);
#pragma GCC unroll 8
    for (int i = 0; i < side; ++i) std::memcpy(to + (r + i) * to_row + c, &v[i], sizeof v[i]);
  }

  void block(std::int64_t r, std::int64_t c) const {
    const std::int64_t height = std::min<std::int64_t>(side, rows - r), width = std::min<std::int64_t>(side, columns - c);
    if (height == side && width == side) return whole_block(r, c);
    Words v[side] = {};
#pragma GCC unroll 8
    for (int i = 0; i < side; ++i) {
      const std::int64_t place = (c + i) * from_column + r;
      if (i < width) copy_some(&v[i], from + place, reach(place, height, rows, from_column, columns));
    }
    transpose(v);
#pragma GCC unroll 8
    for (int i = 0; i < side; ++i) {
      const std::int64_t place = (r + i) * to_row + c;
      if (i < height) copy_some(to + place, &v[i], reach(place, width, columns, to_row, rows));
    }
  }

  /// Of a cache line either way.
  static constexpr std::int64_t tile = 2 * side;

  void prefetch(std::int64_t r, std::int64_t c) const {
    for (std::int64_t i = c; i < std::min(columns, c + tile); ++i) __builtin_prefetch(from + i * from_column + r, 0);
    for (std::int64_t i = r; i < std::min(rows, r + tile); ++i) __builtin_prefetch(to + i * to_row + c, 1);
  }

  /// Along the shorter side first, the last columns before others: what is written past a row's end comes right later.
  void run() const {
    const std::int64_t tall = (rows + tile - 1) / tile, wide = (columns + tile - 1) / tile, inner = std::min(tall, wide), ahead = 4;
    const auto visit = [&](std::int64_t number, const auto& body) {
      const std::int64_t in = number % inner, out = number / inner;
      body((rows > columns ? out : in) * tile, (wide - 1 - (rows > columns ? in : out)) * tile);
    };
    for (std::int64_t number = 0; number < tall * wide; ++number) {
      if (number + ahead < tall * wide) visit(number + ahead, [&](std::int64_t r, std::int64_t c) { prefetch(r, c); });
      visit(number, [&](std::int64_t r, std::int64_t c) {
        for (std::int64_t column = c + side < columns ? c + side : c; column >= c; column -= side) {
          for (std::int64_t row = r; row < std::min(rows, r + tile); row += side) block(row, column);
        }
      });
    }
  }
};

}  // namespace

void copy_transposed_words(void* to, std::int64_t to_row, const void* from, std::int64_t from_column, std::int64_t rows,
                           std::int64_t columns) {
  Transposition{static_cast<Word*>(to), to_row, static_cast<const Word*>(from), from_column, rows, columns}.run();
}

}  // namespace detail
}  // namespace frit
