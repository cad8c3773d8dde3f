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

  void block(std::int64_t r, std::int64_t c) const {
    const std::int64_t height = std::min<std::int64_t>(side, rows - r), width = std::min<std::int64_t>(side, columns - c);
    Words v[side];
    if (height == side && width == side) {
#pragma GCC unroll 8
      for (int i = 0; i < side; ++i) std::memcpy(&v[i], from + (c + i) * from_column + r, sizeof v[i]);
      transpose(v);
#pragma GCC unroll 8
      for (int i = 0; i < side; ++i) std::memcpy(to + (r + i) * to_row + c, &v[i], sizeof v[i]);
      return;
    }
    for (int i = 0; i < side; ++i) {
      v[i] = Words{};
      if (i >= width) continue;
      const std::int64_t place = (c + i) * from_column + r, count = reach(place, height, rows, from_column, columns);
      std::memcpy(&v[i], from + place, count == side ? sizeof v[i] : static_cast<std::size_t>(count) * sizeof(Word));
    }
    transpose(v);
    for (int i = 0; i < height; ++i) {
      const std::int64_t place = (r + i) * to_row + c, count = reach(place, width, columns, to_row, rows);
      std::memcpy(to + place, &v[i], count == side ? sizeof v[i] : static_cast<std::size_t>(count) * sizeof(Word));
    }
  }

  /// Tiles of a cache line either way.
  void tile(std::int64_t r, std::int64_t c) const {
    for (std::int64_t inner_c = std::min(columns - 1, c + side) / side * side; inner_c >= c; inner_c -= side) {
      for (std::int64_t inner_r = r; inner_r < std::min(rows, r + 2 * side); inner_r += side) block(inner_r, inner_c);
    }
  }

  void run() const {
    constexpr std::int64_t step = 2 * side;
    const std::int64_t last = (columns - 1) / step * step;
    if (rows > columns) {
      for (std::int64_t r = 0; r < rows; r += step) {
        for (std::int64_t c = last; c >= 0; c -= step) tile(r, c);
      }
    } else {
      for (std::int64_t c = last; c >= 0; c -= step) {
        for (std::int64_t r = 0; r < rows; r += step) tile(r, c);
      }
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
