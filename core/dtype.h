#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <type_traits>

#include "frit/core/dtype_enum.h"
#include "frit/core/error.h"
#include "frit/core/half.h"

namespace frit {

inline constexpr DType all_dtypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8};

std::size_t size_of(DType dtype);       ///< bytes of one element
std::string_view name_of(DType dtype);  ///< "f32", ...
bool is_floating(DType dtype);
bool is_half(DType dtype);                 ///< f16 or bf16
DType computed_dtype(DType dtype);         ///< what such numbers are computed with: halves as float32
DType parse_dtype(std::string_view name);  ///< throws ErrorKind::argument and lists the names
std::ostream& operator<<(std::ostream& out, DType dtype);

template <class T>
inline constexpr bool unsupported_type = false;

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, Half>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::u8;
  else
    static_assert(unsupported_type<T>, "no dtype for this C++ type");
}

/// Calls `body.template operator()<T>()` for double or float: the types that CPU kernels compute in. Half tensors never
/// reach a CPU kernel; ops::run and the executable convert them to float32 and back.
template <class Body>
decltype(auto) dispatch_floating(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f64: return body.template operator()<double>();
    case DType::f32: return body.template operator()<float>();
    default: fail(ErrorKind::bug, "no floating kernel for dtype ", name_of(dtype));
  }
}

/// Calls `body` for every type that a CPU kernel can compute in: f64 f32 i64 i32 u8.
template <class Body>
decltype(auto) dispatch_arithmetic(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::i64: return body.template operator()<std::int64_t>();
    case DType::i32: return body.template operator()<std::int32_t>();
    case DType::u8: return body.template operator()<std::uint8_t>();
    default: return dispatch_floating(dtype, body);
  }
}

/// Calls `body` for every storage type, halves included.
template <class Body>
decltype(auto) dispatch_all(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f16: return body.template operator()<Half>();
    case DType::bf16: return body.template operator()<BFloat16>();
    default: return dispatch_arithmetic(dtype, body);
  }
}

}  // namespace frit
