#pragma once

#include "frit/ops/reduction/extremum.h"
#include "frit/ops/reduction/reduce.h"

namespace frit::ops {

/// The extremum of a tile's lanes.
template <class Order, class T>
T extremum_of_lanes(const T* lanes) {
  T best[tile_lanes];
  std::copy_n(lanes, tile_lanes, best);
  fold_lanes([&](int a, int b) { best[a] = replaces<Order>(best[b], best[a]) ? best[b] : best[a]; });
  return best[0];
}

}  // namespace frit::ops
