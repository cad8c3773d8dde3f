#include <array>

#include "frit/ops/shape/sizes.h"

namespace frit {
namespace {

/// Of the axes before `axis`, and of those after it.
std::int64_t elements_before(const Shape& shape, int axis) { return element_count(Shape(std::span(shape.begin(), shape.begin() + axis))); }
std::int64_t elements_after(const Shape& shape, int axis) { return element_count(Shape(std::span(shape.begin() + axis + 1, shape.end()))); }

/// Whose first size follows the batch, unless axis 0 is the one that is changed.
Value reshape_around(Value x, int axis, const Shape& shape) {
  return axis > 0 ? ops::reshape_to(x, ops::with_batch_of(x, shape)) : reshape(x, shape);
}

/// Axis 1 of (outer, size, inner).
Value flip_middle(Value x) {
  const std::int64_t outer = x.dim(0), size = x.dim(1), inner = x.dim(2);
  if (size < 2) return x;
  if (size % 2 == 1) return concatenate(std::array{flip_middle(slice(x, 1, 1, size)), slice(x, 1, 0, 1)}, 1);
  const Value exchanged = concatenate(std::array{slice(x, 1, size / 2, size), slice(x, 1, 0, size / 2)}, 1);
  const Value halves = ops::reshape_to(exchanged, ops::with_batch_of(x, {outer * 2, size / 2, inner}));
  return ops::reshape_to(flip_middle(halves), ops::with_batch_of(x, x.shape()));
}

}  // namespace

Values split(Value x, const std::vector<std::int64_t>& sizes, std::int64_t axis) {
  const std::int64_t size = x.dim(normalize_axis(axis, x.rank(), "split"));
  std::int64_t end = 0;
  Values parts;
  for (const std::int64_t part : sizes) {
    require(part >= 0 && part <= size - end, "split: sizes must not be negative nor exceed the axis' ", size, " together, got ", part,
            " after ", end, " (input ", x.shape(), ")");
    parts.push_back(slice(x, axis, end, end + part));
    end += part;
  }
  require(end == size, "split: sizes must add up to the axis' ", size, ", got ", end, " (input ", x.shape(), ")");
  return parts;
}

Values split(Value x, std::int64_t size, std::int64_t axis) {
  require(size > 0, "split: size must be positive, got ", size);
  const std::int64_t whole = x.dim(normalize_axis(axis, x.rank(), "split"));
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(whole / size), size);
  if (whole % size > 0) sizes.push_back(whole % size);
  return split(x, sizes, axis);
}

Value stack(const Values& parts, std::int64_t axis) {
  Values columns;
  for (const Value part : parts) {
    require(part.type() == parts[0].type(), "stack: part ", columns.size(), " is ", part.type(), ", expected ", parts[0].type());
    columns.push_back(unsqueeze(part, normalize_axis(axis, part.rank() + 1, "stack")));
  }
  require(!parts.empty(), "stack: no parts were given");
  return concatenate(columns, normalize_axis(axis, parts[0].rank() + 1, "stack"));
}

Value squeeze(Value x, const Dims& axes) {
  std::array<bool, Dims::max_rank> dropped{};
  for (int axis = 0; axis < x.rank() && axes.empty(); ++axis) dropped[static_cast<std::size_t>(axis)] = x.dim(axis) == 1;
  for (const std::int64_t given : axes) {
    const int axis = normalize_axis(given, x.rank(), "squeeze");
    require(x.dim(axis) == 1, "squeeze: axis ", given, " must have size 1 (input ", x.shape(), ")");
    dropped[static_cast<std::size_t>(axis)] = true;
  }
  std::vector<Size> sizes;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (!dropped[static_cast<std::size_t>(axis)]) sizes.push_back(size_of(x, axis));
  }
  return ops::reshape_to(x, sizes);
}

Value unsqueeze(Value x, std::int64_t axis) {
  std::vector<Size> sizes = ops::sizes_of(x);
  sizes.insert(sizes.begin() + normalize_axis(axis, x.rank() + 1, "unsqueeze"), 1);
  return ops::reshape_to(x, sizes);
}

Value pixel_shuffle(Value x, std::int64_t factor) {
  require(x.rank() == 4 && factor > 0 && factor < (1 << 15) && x.dim(1) % (factor * factor) == 0,
          "pixel_shuffle: expected (N, C r r, H, W) with r = ", factor, ", got ", x.shape());
  const std::int64_t channels = x.dim(1) / (factor * factor);
  const Size batch = size_of(x, 0), height = size_of(x, 2), width = size_of(x, 3);
  const Value split = reshape(x, {batch, channels, factor, factor, height, width});
  return reshape(permute(split, {0, 1, 4, 2, 5, 3}), {batch, channels, height * factor, width * factor});
}

Value pixel_unshuffle(Value x, std::int64_t factor) {
  require(x.rank() == 4 && factor > 0 && factor < (1 << 15) && x.dim(2) % factor == 0 && x.dim(3) % factor == 0,
          "pixel_unshuffle: expected (N, C, H r, W r) with r = ", factor, ", got ", x.shape());
  const std::int64_t channels = x.dim(1);
  const Size batch = size_of(x, 0), height = size_of(x, 2) / factor, width = size_of(x, 3) / factor;
  const Value split = reshape(x, {batch, channels, height, factor, width, factor});
  return reshape(permute(split, {0, 1, 3, 5, 2, 4}), {batch, channels * factor * factor, height, width});
}

Value tile(Value x, const Dims& times) {
  require(times.rank() == x.rank(), "tile: expected ", x.rank(), " numbers, got ", times.rank(), " (input ", x.shape(), ")");
  for (int axis = 0; axis < x.rank(); ++axis) {
    require(times[axis] >= 0, "tile: times must not be negative, got ", times);
    Shape shape = x.shape();
    const std::int64_t outer = elements_before(shape, axis), inner = shape[axis] * elements_after(shape, axis);
    const bool overflow = __builtin_mul_overflow(shape[axis], times[axis], &shape[axis]);
    require(!overflow, "tile: axis ", axis, " would be longer than 2^63 - 1");
    if (times[axis] == 1) continue;
    const Value apart = reshape_around(x, axis, {outer, 1, inner});
    x = reshape_around(expand(apart, {axis > 0 ? -1 : outer, times[axis], inner}), axis, shape);
  }
  return x;
}

Value flip(Value x, std::int64_t axis) {
  const int place = normalize_axis(axis, x.rank(), "flip");
  const Shape& shape = x.shape();
  return reshape_around(flip_middle(reshape_around(x, place, {elements_before(shape, place), shape[place], elements_after(shape, place)})),
                        place, shape);
}

Value roll(Value x, std::int64_t shift, std::int64_t axis) {
  const std::int64_t size = x.dim(normalize_axis(axis, x.rank(), "roll"));
  const std::int64_t moved = size == 0 ? 0 : (shift % size + size) % size;
  if (moved == 0) return x;
  return concatenate(std::array{slice(x, axis, size - moved, size), slice(x, axis, 0, size - moved)}, axis);
}

}  // namespace frit
