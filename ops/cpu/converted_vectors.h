#pragma once

#include <type_traits>

#include "frit/ops/cpu/simd.h"

namespace frit::ops {

// Vectors V of elements that are stored as another type; V may also be one number.

/// As many elements of another type as V has of its own, side by side.
template <class T, class V>
struct StoredAs {
  typedef T type __attribute__((vector_size(sizeof(V) / sizeof(V{}[0]) * sizeof(T))));
};
template <class T, class V>
requires std::is_arithmetic_v<V>
struct StoredAs<T, V> {
  using type = T;
};

template <class V, class T>
V load_as(const T* from) {
  typename StoredAs<T, V>::type stored;
  std::memcpy(&stored, from, sizeof stored);
  if constexpr (std::is_arithmetic_v<V>) {
    return static_cast<V>(stored);
  } else {
    return __builtin_convertvector(stored, V);
  }
}

template <class T, class V>
void store_as(T* to, V value) {
  typename StoredAs<T, V>::type stored;
  if constexpr (std::is_arithmetic_v<V>) {
    stored = static_cast<T>(value);
  } else {
    stored = __builtin_convertvector(value, typename StoredAs<T, V>::type);
  }
  std::memcpy(to, &stored, sizeof stored);
}

/// All elements the same.
template <class V, class T>
V repeated(T value) {
  return value - V{};  // unlike +, this keeps -0
}

}  // namespace frit::ops
