#pragma once

#include <algorithm>

#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {

// (N, C, L) as images (N, C, 1, L) and back: what computes on two image axes computes on one.

inline Value with_unit_axis(Value x, const char* what, const char* name = "an input") {
  require(x.rank() == 3, what, ": expected ", name, " of rank 3, got ", x.shape());
  return unsqueeze(x, 2);
}

inline Value without_unit_axis(Value x) { return squeeze(x, {2}); }

/// (N, ..., C) of (N, C, ...): a view where that lies channels-last.
inline Value channels_innermost(Value x) {
  Dims axes{0};
  for (int axis = 2; axis < x.rank(); ++axis) axes.push_back(axis);
  axes.push_back(1);
  return permute(x, axes);
}
/// (N, C, ...) of (N, ..., C).
inline Value channels_second(Value x) {
  Dims axes{0, x.rank() - 1};
  for (int axis = 1; axis + 1 < x.rank(); ++axis) axes.push_back(axis);
  return permute(x, axes);
}

/// Axis `axis` of (N, C, L), in (N, C, 1, L).
constexpr std::int64_t around_unit_axis(std::int64_t axis) { return axis == 2 || axis == -1 ? 3 : axis < 0 ? axis + 3 : axis; }

/// For Operator::with_unit_axis: of attributes that name one axis.
template <class A>
Attributes axis_around_unit_axis(const Attributes& given) {
  A attributes = given.as<A>();
  attributes.axis = around_unit_axis(attributes.axis);
  return attributes;
}

/// An option's one number, if it has any, after `unit`, which leaves the unit axis alone.
inline Dims after_unit(const Dims& option, std::int64_t unit, const char* what, const char* name) {
  require(option.rank() <= 1, what, ": ", name, " has ", option.rank(), " numbers, expected 1");
  return option.empty() ? Dims{} : Dims{unit, option[0]};
}

/// (C) as it broadcasts to (N, C, ...) of this rank.
inline Value along_channels(Value x, int rank) {
  Shape shape = Dims::filled(std::max(1, rank - 1), 1);
  shape[0] = x.dim(0);
  return reshape(x, shape);
}

}  // namespace frit::ops
