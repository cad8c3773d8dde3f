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
  bool has_pixels = false;
  for (int axis = 2; axis < tensor.rank(); ++axis) {
    if (tensor.shape()[axis] == 1) continue;
    if (tensor.strides()[axis] < tensor.shape()[1]) return false;
    has_pixels = true;
  }
  return has_pixels;
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

  /// Of so many rows and columns, with vectors all of which may be touched.
  template <int height, int width>
  void whole_block(std::int64_t r, std::int64_t c) const {
    Words v[side] = {};
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) std::memcpy(&v[i], from + (c + i) * from_column + r, sizeof v[i]);
    transpose(v);
#pragma GCC unroll 8
    for (int i = 0; i < height; ++i) std::memcpy(to + (r + i) * to_row + c, &v[i], sizeof v[i]);
  }

  void block(std::int64_t r, std::int64_t c) const {
    const std::int64_t height = std::min<std::int64_t>(side, rows - r), width = std::min<std::int64_t>(side, columns - c);
    if (height == side && width == side) return whole_block<side, side>(r, c);
    Words v[side] = {};
    for (int i = 0; i < width; ++i) {
      const std::int64_t place = (c + i) * from_column + r;
      copy_some(&v[i], from + place, reach(place, height, rows, from_column, columns));
    }
    transpose(v);
    for (int i = 0; i < height; ++i) {
      const std::int64_t place = (r + i) * to_row + c;
      copy_some(to + place, &v[i], reach(place, width, columns, to_row, rows));
    }
  }

  /// The last columns before others, as what is written past a row's end comes right later. Along the longer side several lines of the
  /// cache at a time: of many that are far apart, memory brings one slowly.
  void run() const {
    constexpr std::int64_t length = 32 * side;
    const std::int64_t tall = rows > columns ? length : side, wide = rows > columns ? side : length;
    const auto tile = [&](std::int64_t r, std::int64_t c) {
      for (std::int64_t column = (std::min(columns, c + wide) - 1) / side * side; column >= c; column -= side) {
        for (std::int64_t row = r; row < std::min(rows, r + tall); row += side) block(row, column);
      }
    };
    const std::int64_t last = (columns - 1) / wide * wide;
    if (rows > columns) {
      for (std::int64_t r = 0; r < rows; r += tall) {
        for (std::int64_t c = last; c >= 0; c -= wide) tile(r, c);
      }
    } else {
      for (std::int64_t c = last; c >= 0; c -= wide) {
        for (std::int64_t r = 0; r < rows; r += tall) tile(r, c);
      }
    }
  }

  /// Of few columns that lie next to each other, or rows.
  template <int few>
  std::int64_t run_narrow() const {
    std::int64_t done = 0;
    if (columns == few) {
      for (; (done + side) * few + side <= rows * few; done += side) whole_block<side, few>(done, 0);
    } else {
      for (; (done + side) * few + side <= columns * few; done += side) whole_block<few, side>(0, done);
    }
    return done;
  }
};

}  // namespace

void copy_transposed_words(void* to, std::int64_t to_row, const void* from, std::int64_t from_column, std::int64_t rows,
                           std::int64_t columns) {
  Transposition all{static_cast<Word*>(to), to_row, static_cast<const Word*>(from), from_column, rows, columns};
  const bool narrow = columns < side && to_row == columns, flat = rows < side && from_column == rows;
  std::int64_t done = 0;
  switch (narrow ? columns : flat ? rows : 0) {
    case 2: done = all.run_narrow<2>(); break;
    case 3: done = all.run_narrow<3>(); break;
    case 4: done = all.run_narrow<4>(); break;
    case 5: done = all.run_narrow<5>(); break;
    case 6: done = all.run_narrow<6>(); break;
    case 7: done = all.run_narrow<7>(); break;
    default: break;
  }
  if (narrow) {
    all.to += done * to_row, all.from += done, all.rows -= done;
  } else {
    all.to += done, all.from += done * from_column, all.columns -= done;
  }
  if (all.rows > 0 && all.columns > 0) all.run();
}

}  // namespace detail
}  // namespace frit
