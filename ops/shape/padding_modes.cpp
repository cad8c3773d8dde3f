#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

/// Elements begin ... end - 1 of an axis, back to front.
Value mirrored(Value x, int axis, std::int64_t begin, std::int64_t end) { return flip(slice(x, axis, begin, end), axis); }

/// The element at `place` so many times along an axis.
Value repeated(Value x, int axis, std::int64_t place, std::int64_t times) {
  Shape shape = Dims::filled(x.rank(), -1);
  shape[axis] = times;
  return expand(slice(x, axis, place, place + 1), shape);
}

Value pad_axis(Value x, int axis, std::int64_t before, std::int64_t after, PaddingMode mode) {
  const std::int64_t size = x.dim(axis);
  Values parts = {x};
  switch (mode) {
    case PaddingMode::reflect: parts = {mirrored(x, axis, 1, before + 1), x, mirrored(x, axis, size - 1 - after, size - 1)}; break;
    case PaddingMode::replicate: parts = {repeated(x, axis, 0, before), x, repeated(x, axis, size - 1, after)}; break;
    default: parts = {slice(x, axis, size - before, size), x, slice(x, axis, 0, after)}; break;
  }
  std::erase_if(parts, [&](Value part) { return part.dim(axis) == 0; });
  return concatenate(parts, axis);
}

}  // namespace

Value pad(Value x, const Dims& before, const Dims& after, PaddingMode mode) {
  if (mode == PaddingMode::zeros) return pad(x, before, after, 0.0);
  require(before.rank() == x.rank() && after.rank() == x.rank(), "pad: expected ", x.rank(), " sizes before and after, got ", before.rank(),
          " and ", after.rank(), " (input ", x.shape(), ")");
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (before[axis] == 0 && after[axis] == 0) continue;
    const std::int64_t size = x.dim(axis);
    const std::int64_t most = mode == PaddingMode::reflect ? size - 1 : mode == PaddingMode::circular ? size : INT64_MAX;
    require(size > 0 && std::min(before[axis], after[axis]) >= 0 && std::max(before[axis], after[axis]) <= most, "pad: axis ", axis, " of ",
            size, " cannot be padded by ", before[axis], " before and ", after[axis], " after (input ", x.shape(), ")");
    x = pad_axis(x, axis, before[axis], after[axis], mode);
  }
  return x;
}

}  // namespace frit
