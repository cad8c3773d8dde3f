#pragma once

#include <cstdint>

#include "frit/core/half.h"

namespace frit::ops {

template <class T>
struct Equal {
  FRIT_HOST_DEVICE std::uint8_t operator()(T a, T b) const { return a == b; }
};

template <class T>
struct NotEqual {
  FRIT_HOST_DEVICE std::uint8_t operator()(T a, T b) const { return a != b; }
};

template <class T>
struct Less {
  FRIT_HOST_DEVICE std::uint8_t operator()(T a, T b) const { return a < b; }
};

template <class T>
struct LessEqual {
  FRIT_HOST_DEVICE std::uint8_t operator()(T a, T b) const { return a <= b; }
};

template <class T>
struct Greater {
  FRIT_HOST_DEVICE std::uint8_t operator()(T a, T b) const { return a > b; }
};

template <class T>
struct GreaterEqual {
  FRIT_HOST_DEVICE std::uint8_t operator()(T a, T b) const { return a >= b; }
};

/// Any condition but 0 selects `a`.
template <class T>
struct Where {
  FRIT_HOST_DEVICE T operator()(std::uint8_t condition, T a, T b) const { return condition != 0 ? a : b; }
};

}  // namespace frit::ops
