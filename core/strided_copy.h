#pragma once

#include "frit/core/convert.h"
#include "frit/core/strided_loop.h"
#include "frit/core/tensor.h"

// Copies of elements that lie at any strides, a plane of two axes at a time, so that one order of axes becomes another at the speed of
// memory.

namespace frit {

/// The axes of a tensor in the order in which they lie in memory, the inner one last.
Dims axes_in_memory(int rank, Layout layout);

/// Whether a tensor's channels lie next to each other and its pixels do not.
bool has_inner_channels(const Tensor& tensor);

/// How far a step to the next row and the next column of a plane goes, in elements.
struct PlaneSteps {
  std::int64_t row, column;
};

namespace detail {

/// to[r * to_row + c] = from[c * from_column + r], of elements of four bytes.
void copy_transposed_words(void* to, std::int64_t to_row, const void* from, std::int64_t from_column, std::int64_t rows,
                           std::int64_t columns);

template <class To, class From>
void copy_transposed(To* to, std::int64_t to_row, const From* from, std::int64_t from_column, std::int64_t rows, std::int64_t columns) {
  if constexpr (std::is_same_v<To, From> && sizeof(To) == 4) {
    copy_transposed_words(to, to_row, from, from_column, rows, columns);
  } else {
    constexpr std::int64_t tile = 16;
    for (std::int64_t r0 = 0; r0 < rows; r0 += tile) {
      for (std::int64_t c0 = 0; c0 < columns; c0 += tile) {
        const std::int64_t r1 = std::min(rows, r0 + tile), c1 = std::min(columns, c0 + tile);
        for (std::int64_t r = r0; r < r1; ++r) {
          for (std::int64_t c = c0; c < c1; ++c) to[r * to_row + c] = convert<To>(from[c * from_column + r]);
        }
      }
    }
  }
}

template <class To, class From>
void copy_row(To* to, std::int64_t to_step, const From* from, std::int64_t from_step, std::int64_t count) {
  if (to_step == 1 && from_step == 1) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = convert<To>(from[i]);
  } else if (to_step == 1 && from_step == 0) {
    std::fill_n(to, count, convert<To>(*from));
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i * to_step] = convert<To>(from[i * from_step]);
  }
}

/// One row into dense ones: what is there already is copied on, twice as much each time.
template <class To, class From>
void repeat_row(To* to, const From* from, std::int64_t rows, std::int64_t columns) {
  copy_row(to, 1, from, 1, columns);
  for (std::int64_t done = columns; done < rows * columns;) {
    const std::int64_t count = std::min(done, rows * columns - done);
    std::copy_n(to, count, to + done);
    done += count;
  }
}

template <class To, class From>
void copy_plane(To* to, PlaneSteps t, const From* from, PlaneSteps f, std::int64_t rows, std::int64_t columns) {
  if (rows > 1 && t.column == 1 && f.row == 1 && f.column > 1) return copy_transposed(to, t.row, from, f.column, rows, columns);
  if (rows > 1 && f.column == 1 && t.row == 1 && t.column > 1) return copy_transposed(to, t.column, from, f.row, columns, rows);
  if (f.row == 0 && f.column == 1 && t.column == 1 && t.row == columns) return repeat_row(to, from, rows, columns);
  for (std::int64_t r = 0; r < rows; ++r) copy_row(to + r * t.row, t.column, from + r * f.row, f.column, columns);
}

}  // namespace detail

/// Visits elements begin ... end - 1, row-major, of tensors of one shape that collapse_axes has seen, as many whole rows of the inner
/// axis at a time as lie in a plane, or part of one: body(offsets, rows, columns), where offsets[i] is the element offset of operand i.
template <std::size_t operands, class Body>
void for_each_plane(const Shape& shape, const std::array<Strides, operands>& strides, std::int64_t begin, std::int64_t end,
                    const Body& body) {
  const int inner = shape.rank() - 1;
  const std::int64_t width = shape[inner];
  while (begin < end) {
    std::array<std::int64_t, operands> offsets{};
    std::int64_t rest = begin;
    for (int axis = inner; axis >= 0; --axis) {
      for (std::size_t i = 0; i < operands; ++i) offsets[i] += rest % shape[axis] * strides[i][axis];
      rest /= shape[axis];
    }
    const std::int64_t column = begin % width;
    std::int64_t rows = 1, columns = std::min(width - column, end - begin);
    if (columns == width && inner > 0) rows = std::min(shape[inner - 1] - begin / width % shape[inner - 1], (end - begin) / width);
    body(offsets, rows, columns);
    begin += rows * columns;
  }
}

/// A tensor's elements in an order of its axes.
struct StridedElements {
  Shape shape;
  std::array<Strides, 1> strides;

  /// With the axes as they lie in tensors of the layout.
  StridedElements(const Tensor& tensor, Layout order) {
    const Tensor ordered = tensor.permute(axes_in_memory(tensor.rank(), order));
    shape = ordered.shape();
    strides[0] = ordered.strides();
    collapse_axes(shape, strides);
  }
  bool dense() const { return shape.rank() == 1 && (strides[0][0] == 1 || shape[0] == 1); }
  bool repeated() const { return shape.rank() == 1 && strides[0][0] == 0; }
  PlaneSteps steps() const {
    const int inner = shape.rank() - 1;
    return {inner > 0 ? strides[0][inner - 1] : 0, strides[0][inner]};
  }

  /// Elements begin ... end - 1 of `from`, at which the tensor's first one is, side by side.
  template <class To, class From>
  void gather(const From* from, std::int64_t begin, std::int64_t end, To* to) const {
    for_each_plane(shape, strides, begin, end, [&](const auto& offsets, std::int64_t rows, std::int64_t columns) {
      detail::copy_plane(to, {columns, 1}, from + offsets[0], steps(), rows, columns);
      to += rows * columns;
    });
  }
  /// The other way round.
  template <class To, class From>
  void scatter(To* to, std::int64_t begin, std::int64_t end, const From* from) const {
    for_each_plane(shape, strides, begin, end, [&](const auto& offsets, std::int64_t rows, std::int64_t columns) {
      detail::copy_plane(to + offsets[0], steps(), from, {columns, 1}, rows, columns);
      from += rows * columns;
    });
  }
};

}  // namespace frit
