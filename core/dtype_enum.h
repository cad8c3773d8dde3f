#pragma once

#include <cstdint>

namespace frit {

/// The element types. Comparisons give u8, 0 or 1.
enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, u8 };

}  // namespace frit
