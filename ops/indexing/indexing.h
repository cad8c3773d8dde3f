#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

// Indices are i64 or i32, and count from 0. One that names nothing is an error on the CPU; on a GPU, where nobody waits for the device to
// have looked, what it would take is NaN (an integer: 0), and what it would put is left out. Gradients of an element that is named more
// than once add up, in the same order at every run.

/// The elements of each line along an axis that its indices name, as torch.gather: `indices` has x's shape but for the axis.
Value gather(Value x, std::int64_t axis, Value indices);
/// The slices of x that `indices`, of any shape, name along the axis, in whose place come the indices' axes.
Value index_select(Value x, std::int64_t axis, Value indices);
/// The rows of weight (V, D) that indices (...) name -> (..., D).
Value embedding(Value indices, Value weight);
/// 1 where the new axis' place is the index, else 0.
Value one_hot(Value indices, std::int64_t classes, DType dtype = DType::f32, std::int64_t axis = -1);

/// Of each line along an axis. NaN is the greatest; of equal elements the first comes first. Operator "sort" (attributes axis, descending,
/// count).
struct Sorted {
  Value values, indices;  ///< indices i64
};
Sorted sort(Value x, std::int64_t axis = -1, bool descending = false);
Value argsort(Value x, std::int64_t axis = -1, bool descending = false);
/// The k greatest (or least) elements, in order.
Sorted top_k(Value x, std::int64_t k, std::int64_t axis = -1, bool largest = true);

}  // namespace frit
