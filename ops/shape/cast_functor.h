#pragma once

#include "frit/core/convert.h"
#include "frit/core/fields.h"

namespace frit::ops {

struct CastAttributes {
  DType dtype = DType::f32;
  void fields(FieldVisitor& v) { v.field("dtype", dtype); }
};

/// A number rounded to a dtype and held in T, in which both the number and the dtype's values fit.
template <class T>
struct Cast {
  DType dtype;

  explicit Cast(const CastAttributes& a) : dtype(a.dtype) {}
  FRIT_HOST_DEVICE T operator()(T x) const {
    switch (dtype) {
      case DType::f16: return convert<T>(convert<Half>(x));
      case DType::bf16: return convert<T>(convert<BFloat16>(x));
      case DType::u8: return convert<T>(convert<std::uint8_t>(x));
      default: return x;
    }
  }
};

}  // namespace frit::ops
