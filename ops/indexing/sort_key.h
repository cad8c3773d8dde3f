#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "frit/core/convert.h"

namespace frit::ops {

/// Of 32 bits for all that fits them.
template <class T>
using SortKey = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

/// Unsigned numbers in the order that elements are sorted in: NaN is the greatest, both zeros are equal.
template <class T>
FRIT_HOST_DEVICE SortKey<T> sort_key(T value, bool descending) {
  if constexpr (is_half_type<T>) {
    return sort_key(static_cast<float>(value), descending);
  } else {
    using Key = SortKey<T>;
    constexpr Key sign = Key{1} << (8 * sizeof(Key) - 1), all = ~Key{0};
    Key key = 0;
    if constexpr (std::is_floating_point_v<T>) {
      const auto bits = value == 0 ? Key{0} : std::bit_cast<Key>(value);
      key = value != value ? all : (bits & sign) != 0 ? ~bits : bits | sign;
    } else {
      key = static_cast<Key>(value) ^ (std::is_signed_v<T> ? sign : Key{0});
    }
    return descending ? ~key : key;
  }
}

}  // namespace frit::ops
