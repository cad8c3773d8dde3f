#include "frit/core/dtype.h"

#include <ostream>

#include "frit/core/text.h"

namespace frit {

std::size_t size_of(DType dtype) {
  return dispatch_all(dtype, []<class T>() { return sizeof(T); });
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return "f64";
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::i64: return "i64";
    case DType::i32: return "i32";
    case DType::u8: return "u8";
  }
  return "?";
}

bool is_floating(DType dtype) { return dtype == DType::f64 || dtype == DType::f32 || is_half(dtype); }

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
DType computed_dtype(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

DType parse_dtype(std::string_view name) {
  for (const DType dtype : all_dtypes) {
    if (name_of(dtype) == name) return dtype;
  }
  fail(ErrorKind::argument, "unknown dtype \"", printable(name), "\": expected one of f64 f32 f16 bf16 i64 i32 u8");
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

}  // namespace frit
