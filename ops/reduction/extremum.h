#pragma once

#include <limits>
#include <type_traits>

#include "frit/core/half.h"

namespace frit::ops {

// The order of max and min: NaN comes before everything, and of equals the first counts. All comparisons are made before
// they are combined, so that loops become vector code.

template <class T>
FRIT_HOST_DEVICE bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x != x;
  } else {
    return false;
  }
}

struct MaximumOrder {
  static constexpr const char* name = "MaximumOrder";
  template <class T>
  FRIT_HOST_DEVICE static bool stays(T best, T candidate) {
    return best >= candidate;
  }
  /// What every element replaces or equals.
  template <class T>
  FRIT_HOST_DEVICE static constexpr T start() {
    return std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  }
};

struct MinimumOrder {
  static constexpr const char* name = "MinimumOrder";
  template <class T>
  FRIT_HOST_DEVICE static bool stays(T best, T candidate) {
    return best <= candidate;
  }
  template <class T>
  FRIT_HOST_DEVICE static constexpr T start() {
    return std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  }
};

/// Does `candidate`, which comes later in the tensor, replace `best`?
template <class Order, class T>
FRIT_HOST_DEVICE bool replaces(T candidate, T best) {
  const bool passes = !Order::stays(best, candidate);
  const bool number = !is_nan(best);
  return passes && number;
}

/// Equal, or both NaN.
template <class T>
FRIT_HOST_DEVICE bool ties(T a, T b) {
  const bool equal = a == b, first = is_nan(a), second = is_nan(b);
  return equal || (first && second);
}

}  // namespace frit::ops
