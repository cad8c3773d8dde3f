#pragma once

#include <cstdint>

#include "frit/core/half.h"

namespace frit::ops {

#define FRIT_COMPARISON(Name, op)                                               \
  template <class T>                                                            \
  struct Name {                                                                 \
    FRIT_HOST_DEVICE std::uint8_t operator()(T a, T b) const { return a op b; } \
  };
FRIT_COMPARISON(Equal, ==)
FRIT_COMPARISON(NotEqual, !=)
FRIT_COMPARISON(Less, <)
FRIT_COMPARISON(LessEqual, <=)
FRIT_COMPARISON(Greater, >)
FRIT_COMPARISON(GreaterEqual, >=)
#undef FRIT_COMPARISON

/// Any condition but 0 selects `a`.
template <class T>
struct Where {
  FRIT_HOST_DEVICE T operator()(std::uint8_t condition, T a, T b) const { return condition != 0 ? a : b; }
};

}  // namespace frit::ops
