#pragma once

#include <type_traits>

#include "frit/core/convert.h"

namespace frit::ops {

/// The type that elements of type T are computed with.
template <class T>
using Computed = std::conditional_t<is_half_type<T>, float, T>;

}  // namespace frit::ops
