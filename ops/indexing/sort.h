#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "frit/core/convert.h"
#include "frit/core/fields.h"
#include "frit/core/shape.h"

namespace frit::ops {

struct SortAttributes {
  std::int64_t axis = -1;
  bool descending = false;
  std::int64_t count = -1;  ///< of each line's first elements, which are kept; -1: all
  void fields(FieldVisitor& v) {
    v.field("axis", axis);
    v.field("descending", descending);
    v.field("count", count);
  }
};

/// A contiguous tensor's lines along one axis: (outer, size, inner), of which `count` elements a line are kept.
struct SortedLines {
  std::int64_t outer = 1, size, inner = 1, count;

  SortedLines(const Shape& shape, const SortAttributes& attributes) {
    const int axis = normalize_axis(attributes.axis, shape.rank(), "sort");
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
    size = shape[axis];
    count = attributes.count < 0 ? size : attributes.count;
  }
  FRIT_HOST_DEVICE std::int64_t lines() const { return outer * inner; }
};

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
