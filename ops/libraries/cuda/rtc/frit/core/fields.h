#pragma once

#include "frit/core/dtype_enum.h"

namespace frit {

struct FieldVisitor {
  template <class T>
  void field(const char*, T&) {}
};

}  // namespace frit
