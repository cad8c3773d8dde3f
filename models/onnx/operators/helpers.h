#pragma once

#include "frit/models/onnx/call.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::onnx {

// Each family of operators adds its own to the table.
void add_activations(OperatorTable& table);
void add_casts(OperatorTable& table);
void add_control(OperatorTable& table);
void add_convolutions(OperatorTable& table);
void add_einsum(OperatorTable& table);
void add_elementwise(OperatorTable& table);
void add_hyperbolic(OperatorTable& table);
void add_indexing(OperatorTable& table);
void add_linear(OperatorTable& table);
void add_losses(OperatorTable& table);
void add_norms(OperatorTable& table);
void add_pools(OperatorTable& table);
void add_rearrangements(OperatorTable& table);
void add_reductions(OperatorTable& table);
void add_resizing(OperatorTable& table);
void add_shapes(OperatorTable& table);
void add_sources(OperatorTable& table);

using Sizes = std::vector<std::int64_t>;

/// As a shape; what is beyond the highest rank is refused.
Shape to_shape(const Call& call, const Sizes& sizes);

/// New axes of size 1, counted in the result.
Value with_unit_axes(Value x, Sizes axes);
/// `x` with as many axes as are asked for, its own being the ones from `axis` on: ONNX's broadcasting before opset 7.
Value aligned(Value x, int rank, std::int64_t axis);
/// The axes in [0, rank), ascending; all if none are given.
Dims axes_of(const Sizes& axes, int rank);
/// Elements along an axis of which something is listed at import, one by one.
inline constexpr std::int64_t longest_list = 1 << 20;

/// 0, 1, ... count - 1 along an axis of `rank`, of size 1 elsewhere. Refuses above longest_list.
Value positions(const Call& call, std::int64_t count, int axis, int rank, DType dtype);

/// Integers computed as float64, which is exact below 2^53; results go back by a cast, towards zero.
Value as_floating(Value x);
/// x without its fraction.
Value truncated(Value x);

/// The elements of one axis at these places, which are known at import.
Value take(const Call& call, Value x, std::int64_t axis, const Sizes& places);

/// Padding with a number; the value itself where there is none.
Value padded(Value x, const Dims& before, const Dims& after, double value);

}  // namespace frit::onnx
