#pragma once

#include "frit/core/half.h"

namespace frit::ops {

/// The rule of a running maximum: the first of equal maxima stays, the last NaN wins.
template <class T>
FRIT_HOST_DEVICE bool replaces_maximum(T candidate, T best) {
  return (candidate > best) | (candidate != candidate);  // no branch, so that loops vectorise
}

}  // namespace frit::ops
