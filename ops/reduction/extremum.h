#pragma once

#include <limits>
#include <type_traits>

#include "frit/core/half.h"

namespace frit::ops {

// The order of max and min: NaN comes before everything, and of equals the first counts.

template <class T>
FRIT_HOST_DEVICE bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x != x;
  } else {
    return false;
  }
}

struct Maximum {
  template <class T>
  FRIT_HOST_DEVICE static bool before(T a, T b) {
    return a > b;
  }
  /// What no element comes after.
  template <class T>
  FRIT_HOST_DEVICE static constexpr T last() {
    if constexpr (std::is_floating_point_v<T>) {
      return -std::numeric_limits<T>::infinity();
    } else {
      return std::numeric_limits<T>::lowest();
    }
  }
};

struct Minimum {
  template <class T>
  FRIT_HOST_DEVICE static bool before(T a, T b) {
    return a < b;
  }
  template <class T>
  FRIT_HOST_DEVICE static constexpr T last() {
    if constexpr (std::is_floating_point_v<T>) {
      return std::numeric_limits<T>::infinity();
    } else {
      return std::numeric_limits<T>::max();
    }
  }
};

/// Does `candidate`, which comes later in the tensor, replace `best`?
template <class Order, class T>
FRIT_HOST_DEVICE bool replaces(T candidate, T best) {
  return Order::before(candidate, best) || (is_nan(candidate) && !is_nan(best));
}

/// Equal, or both NaN.
template <class T>
FRIT_HOST_DEVICE bool ties(T a, T b) {
  return a == b || (is_nan(a) && is_nan(b));
}

}  // namespace frit::ops
