#pragma once

#include <array>
#include <span>

#include "frit/core/shape.h"
#include "frit/core/thread_pool.h"

namespace frit {

/// Merges neighbouring axes that every operand passes over in one stride, and drops axes of size 1, in place. Afterwards the shape has rank
/// 1 at least, and the last axis is the inner one.
void collapse_axes(Shape& shape, std::span<Strides> strides);

/// Elements that one task of an elementwise loop handles.
inline constexpr std::int64_t elementwise_grain = 16384;

/// Visits elements begin ... end - 1, row-major, of `operands` tensors of one shape that collapse_axes has seen, a run of the inner
/// axis at a time: body(offsets, steps, count), where offsets[i] is the element offset of operand i at the run's start and steps[i] its
/// stride within the run.
template <std::size_t operands, class Body>
void strided_range(const Shape& shape, const std::array<Strides, operands>& strides, std::int64_t begin, std::int64_t end,
                   const Body& body) {
  const int inner = shape.rank() - 1;
  std::array<std::int64_t, operands> steps;
  for (std::size_t i = 0; i < operands; ++i) steps[i] = strides[i][inner];
  Dims index = Dims::filled(shape.rank(), 0);
  std::array<std::int64_t, operands> offsets{};
  for (std::int64_t axis = inner, rest = begin; axis >= 0; --axis) {
    const int a = static_cast<int>(axis);
    index[a] = rest % shape[a];
    rest /= shape[a];
    for (std::size_t i = 0; i < operands; ++i) offsets[i] += index[a] * strides[i][a];
  }
  while (begin < end) {
    const std::int64_t run = std::min(shape[inner] - index[inner], end - begin);
    body(offsets, steps, run);
    begin += run;
    index[inner] += run;
    for (std::size_t i = 0; i < operands; ++i) offsets[i] += run * steps[i];
    for (int axis = inner; axis > 0 && index[axis] == shape[axis]; --axis) {
      index[axis] = 0;
      ++index[axis - 1];
      for (std::size_t i = 0; i < operands; ++i) offsets[i] += strides[i][axis - 1] - shape[axis] * strides[i][axis];
    }
  }
}

/// Visits all elements of `operands` tensors of one shape likewise, in parallel.
template <std::size_t operands, class Body>
void strided_loop(Shape shape, std::array<Strides, operands> strides, const Body& body) {
  const std::int64_t elements = element_count(shape);
  if (elements == 0) return;
  collapse_axes(shape, strides);
  parallel_for(elements, elementwise_grain, [&](std::int64_t begin, std::int64_t end) { strided_range(shape, strides, begin, end, body); });
}

}  // namespace frit
