#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "frit/ops/cpu/simd_math.h"
#include "frit/ops/cpu/vector_math.h"

namespace frit::ops::simd {

/// Vectors that are computed with at a time, a step of each in turn: each step waits for the one before.
inline constexpr int lane_vectors = 4;

/// Whether something holds, in each lane.
struct Mask {
  Vector<std::int32_t> values[lane_vectors];
};

/// Vectors of float32 as the number that a functor is written for: of the same formula they make vector code that does not hang on what the
/// compiler makes of a loop. A number stands for itself in all lanes.
struct Lanes {
  Vector<float> values[lane_vectors];

  Lanes() = default;
  template <class Number>
  requires std::is_arithmetic_v<Number> Lanes(Number number) {
#pragma GCC unroll 4
    for (int i = 0; i < lane_vectors; ++i) values[i] = broadcast(static_cast<float>(number));
  }
};

/// Of each vector what the function makes of those at its place.
template <class Result, class Function, class... Operands>
[[gnu::always_inline]] inline Result each_of(const Function& function, const Operands&... operands) {
  Result result;
#pragma GCC unroll 4
  for (int i = 0; i < lane_vectors; ++i) result.values[i] = function(operands.values[i]...);
  return result;
}

#define FRIT_LANES_OPERATOR(op, Operand, Result)                         \
  inline Result operator op(const Operand& a, const Operand& b) {        \
    return each_of<Result>([](auto x, auto y) { return x op y; }, a, b); \
  }
FRIT_LANES_OPERATOR(+, Lanes, Lanes)
FRIT_LANES_OPERATOR(-, Lanes, Lanes)
FRIT_LANES_OPERATOR(*, Lanes, Lanes)
FRIT_LANES_OPERATOR(/, Lanes, Lanes)
FRIT_LANES_OPERATOR(<, Lanes, Mask)
FRIT_LANES_OPERATOR(<=, Lanes, Mask)
FRIT_LANES_OPERATOR(>, Lanes, Mask)
FRIT_LANES_OPERATOR(>=, Lanes, Mask)
FRIT_LANES_OPERATOR(!=, Lanes, Mask)
FRIT_LANES_OPERATOR(&, Mask, Mask)
FRIT_LANES_OPERATOR(|, Mask, Mask)
#undef FRIT_LANES_OPERATOR
inline Lanes operator-(const Lanes& a) {
  return each_of<Lanes>([](Vector<float> x) { return -x; }, a);
}

inline Lanes select(const Mask& condition, const Lanes& yes, const Lanes& no) {
  return each_of<Lanes>([](Vector<std::int32_t> c, Vector<float> y, Vector<float> n) { return c ? y : n; }, condition, yes, no);
}
inline Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& c) {
  return each_of<Lanes>([](Vector<float> x, Vector<float> y, Vector<float> z) { return multiply_add(x, y, z); }, a, b, c);
}

namespace detail {
using Bits = Vector<std::int32_t>;
inline Bits bits_of(Vector<float> x) { return reinterpret_cast<Bits>(x); }
inline Vector<float> value_of(Bits x) { return reinterpret_cast<Vector<float>>(x); }
inline constexpr std::int32_t sign_bit = std::numeric_limits<std::int32_t>::min();
}  // namespace detail

inline Lanes magnitude(const Lanes& x) {
  return each_of<Lanes>([](Vector<float> v) { return detail::value_of(detail::bits_of(v) & ~detail::sign_bit); }, x);
}
inline Lanes with_sign_of(const Lanes& sign, const Lanes& x) {
  return each_of<Lanes>(
      [](Vector<float> s, Vector<float> v) {
        return detail::value_of((detail::bits_of(v) & ~detail::sign_bit) | (detail::bits_of(s) & detail::sign_bit));
      },
      sign, x);
}

/// As the functions of a float (see vector_math.h), with the same bits.
inline Lanes within_exponents(const Lanes& x) {
  return each_of<Lanes>([](Vector<float> v) { return min(broadcast(most_exponent), max(broadcast(-most_exponent), v)); }, x);
}
inline Lanes times_power_of_two(const Lanes& y, const Lanes& rounded) {
  return each_of<Lanes>(
      [](Vector<float> v, Vector<float> r) {
#if defined(__AVX512F__)
        return Vector<float>(_mm512_maskz_scalef_ps(0xffff, v, r - rounding));
#else
        const detail::Bits whole = detail::bits_of(r) - std::bit_cast<std::int32_t>(rounding), half = whole >> 1;
        const auto power = [](detail::Bits exponent) { return detail::value_of((exponent + 127) << 23); };
        return v * power(half) * power(whole - half);
#endif
      },
      y, rounded);
}
inline Lanes nan_of(const Lanes& result, const Lanes&) { return result; }  // it is NaN where the operand was
inline Lanes vector_log(const Lanes& x) {
  return each_of<Lanes>([](Vector<float> v) { return log<float>(v); }, x);
}

}  // namespace frit::ops::simd

namespace frit::ops {

template <>
inline constexpr bool is_single<simd::Lanes> = true;

}  // namespace frit::ops
