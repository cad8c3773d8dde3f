#pragma once

#include <concepts>
#include <initializer_list>

#include "frit/ops/operator/value.h"

namespace frit {

/// A size to be: a number, or that of a value's axis (see size_of), times one number and over another.
struct Size {
  template <std::integral Integer>
  Size(Integer value) : number(static_cast<std::int64_t>(value)) {}  // NOLINT: meant to convert
  Size(Value value, std::int64_t value_axis) : of(value), axis(value_axis) {}

  friend Size operator*(Size size, std::int64_t factor) { return (size.of ? size.times : size.number) *= factor, size; }
  friend Size operator/(Size size, std::int64_t divisor) { return size.over *= divisor, size; }

  Value of = {};  ///< none: the number
  std::int64_t number = 0, axis = 0, times = 1, over = 1;
};
/// The size of an axis, whatever it will be when the graph runs: reshape(x, {size_of(x, 0), heads, -1}) holds for every batch, where
/// x.dim(0) is the number that it was when the graph was made. Goes into reshape and expand, also as size_of(x, 2) * 2 and
/// size_of(x, 2) / 2, which must be whole then.
Size size_of(Value x, std::int64_t axis);

Value reshape(Value x, const Shape& shape);                 ///< one size may be -1; operator "reshape"
Value reshape(Value x, std::initializer_list<Size> sizes);  ///< operator "reshape_to_sizes" where a size is a value's
/// Axes first..last as one. Emits "flatten" (attributes start_axis, end_axis), which keeps its meaning when the batch size changes.
Value flatten(Value x, std::int64_t start_axis = 1, std::int64_t end_axis = -1);
Value permute(Value x, const Dims& axes);
Value transpose(Value x, std::int64_t first, std::int64_t second);  ///< emits "permute"
/// Elements begin, begin + step, ... below end of one axis; negative bounds count from the end, bounds are clipped to the axis, step > 0.
Value slice(Value x, std::int64_t axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1);
/// The elements at one index of an axis, which is dropped; a negative index counts from the end. `x[i]` is select(x, 0, i).
Value select(Value x, std::int64_t axis, std::int64_t index);
Value concatenate(std::span<const Value> parts, std::int64_t axis);
inline Value concatenate(std::initializer_list<Value> parts, std::int64_t axis) {
  return concatenate(std::span(parts.begin(), parts.size()), axis);
}
/// Constant padding: before[i] and after[i] elements of `value` on axis i. No negative sizes.
Value pad(Value x, const Dims& before, const Dims& after, double value = 0);
enum class PaddingMode { zeros, reflect, replicate, circular };
/// Padding by what lies inside: mirrored about the outermost elements, which are not repeated; the outermost elements; or the other end. No
/// more than the axis has for that: size - 1 elements if mirrored, `size` if circular. No negative sizes.
Value pad(Value x, const Dims& before, const Dims& after, PaddingMode mode);
Value expand(Value x, const Shape& shape);                 ///< NumPy broadcasting; -1 keeps a size
Value expand(Value x, std::initializer_list<Size> sizes);  ///< operator "expand_to_sizes" where a size is a value's
Value cast(Value x, DType dtype);

// Made of the operators above.

Values split(Value x, std::int64_t size, std::int64_t axis);  ///< pieces of that size along one axis, the last one shorter if need be
Values split(Value x, const std::vector<std::int64_t>& sizes, std::int64_t axis);  ///< of these sizes, which add up to the axis
Value stack(const Values& parts, std::int64_t axis);                               ///< joined along a new axis
Value squeeze(Value x, const Dims& axes = {});  ///< without these axes, whose size is 1; none given: without any axis of size 1
Value unsqueeze(Value x, std::int64_t axis);    ///< with a new axis of size 1, which is `axis` of the result
Value tile(Value x, const Dims& times);         ///< repeated so many times along each axis; numbers for all axes
Value flip(Value x, std::int64_t axis);         ///< back to front: log2(size) exchanges of halves
/// (N, C r r, H, W) to (N, C, H r, W r), r being the factor: channel (c r + i) r + j goes to row h r + i and column w r + j of channel c.
Value pixel_shuffle(Value x, std::int64_t factor);
/// The reverse: (N, C, H r, W r) to (N, C r r, H, W).
Value pixel_unshuffle(Value x, std::int64_t factor);
Value roll(Value x, std::int64_t shift, std::int64_t axis);  ///< element i moves to i + shift, those beyond the end to the beginning

}  // namespace frit
