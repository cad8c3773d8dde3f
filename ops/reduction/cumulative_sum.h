#pragma once

#include "frit/core/fields.h"

namespace frit::ops {

struct CumulativeSumAttributes {
  std::int64_t axis = 0;
  bool exclusive = false, reverse = false;
  void fields(FieldVisitor& v) {
    v.field("axis", axis);
    v.field("exclusive", exclusive);
    v.field("reverse", reverse);
  }
};

}  // namespace frit::ops
