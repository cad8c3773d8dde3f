#pragma once

#include <type_traits>

namespace frit::ops {

template <class T>
inline constexpr bool is_single = std::is_same_v<T, float>;

}  // namespace frit::ops
