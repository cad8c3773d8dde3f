#pragma once

#include "frit/ops/reduction/extremum.h"
#include "frit/ops/reduction/reduce.h"

namespace frit::ops {

/// The result's shape, of an operator with attributes A. No axis may be empty.
template <class A>
Shape extremum_shape(const InferContext& call) {
  const Dims axes = reduction_axes<A>(call);
  for (const std::int64_t axis : axes) {
    call.require(call.shape(0)[static_cast<int>(axis)] > 0, "axis ", axis, " is empty (input ", call.shape(0), ")");
  }
  return reduced_shape(call.shape(0), axes, call.as<A>().keep_dims);
}

/// Of the extrema, and their places or numbers.
template <class A>
std::vector<TensorType> infer_extremum(const InferContext& call) {
  const Shape shape = extremum_shape<A>(call);
  return {{call.inputs[0].dtype, shape}, {DType::i64, shape}};
}

/// The extremum of a tile's lanes.
template <class Order, class T>
T extremum_of_lanes(const T* lanes) {
  T best[tile_lanes];
  std::copy_n(lanes, tile_lanes, best);
  fold_lanes([&](int a, int b) { best[a] = replaces<Order>(best[b], best[a]) ? best[b] : best[a]; });
  return best[0];
}

}  // namespace frit::ops
