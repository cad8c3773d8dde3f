#pragma once

#include <cstdint>

#include "frit/ops/cpu/simd.h"

namespace frit::ops::winograd {

// The transforms of tiles of 4 x 4 outputs of 3 x 3 taps, and of their transposition, 3 x 3 sums over 4 x 4 factors: both read 6 x 6
// inputs, and both have the polynomials' points 0, a, -a, b, -b and infinity, so that they share the inputs' transform.

using V = simd::Vector<float>;

inline constexpr int lanes = simd::lanes<float>;
/// Outputs, taps and elements of a tile along an axis, and elements in all.
inline constexpr int tile_outputs = 4, taps = 3, edge = tile_outputs + taps - 1, elements = edge * edge;

inline std::int64_t tiles_of(std::int64_t size) { return (size + tile_outputs - 1) / tile_outputs; }

/// a b = 1.
inline constexpr float a = 2.0f / 3, b = 3.0f / 2;

/// What a polynomial is at the points: at 0, from its even and odd parts at a and b, and at infinity.
inline void store_points(V zero, V even_a, V odd_a, V even_b, V odd_b, V infinity, V* out, int step) {
  out[0] = zero;
  out[step] = even_a + odd_a;
  out[2 * step] = even_a - odd_a;
  out[3 * step] = even_b + odd_b;
  out[4 * step] = even_b - odd_b;
  out[5 * step] = infinity;
}

/// x * factor + addend.
inline V multiply_add(V x, float factor, V addend) { return simd::multiply_add(x, simd::broadcast(factor), addend); }

/// One axis of a tile's inputs, of its taps, or back of its outputs: `in[i * step]`, `out[i * out_step]`.
inline void transform_input(const V* in, int step, V* out, int out_step) {
  constexpr float middle = a * a + b * b;
  const V d1 = in[step], d2 = in[2 * step], d3 = in[3 * step], d4 = in[4 * step];
  const V even_a = multiply_add(d2, -(b * b), d4), odd_a = multiply_add(d3, a, d1 * -b);
  const V even_b = multiply_add(d2, -(a * a), d4), odd_b = multiply_add(d3, b, d1 * -a);
  store_points(multiply_add(d2, -middle, in[0] + d4), even_a, odd_a, even_b, odd_b, multiply_add(d3, -middle, d1 + in[5 * step]), out,
               out_step);
}

inline constexpr float of_a = 1 / (2 * a * a * (a * a - b * b)), of_b = 1 / (2 * b * b * (b * b - a * a));

inline void transform_taps(const V* in, int step, V* out, int out_step) {
  const V even_a = multiply_add(in[2 * step], a * a, in[0]) * of_a, odd_a = in[step] * (a * of_a);
  const V even_b = multiply_add(in[2 * step], b * b, in[0]) * of_b, odd_b = in[step] * (b * of_b);
  store_points(in[0], even_a, odd_a, even_b, odd_b, in[2 * step], out, out_step);
}

inline void transform_output(const V* in, int step, V* out, int out_step) {
  const V sum_a = in[step] + in[2 * step], difference_a = in[step] - in[2 * step];
  const V sum_b = in[3 * step] + in[4 * step], difference_b = in[3 * step] - in[4 * step];
  out[0] = in[0] + sum_a + sum_b;
  out[out_step] = multiply_add(difference_a, a, difference_b * b);
  out[2 * out_step] = multiply_add(sum_a, a * a, sum_b * (b * b));
  out[3 * out_step] = multiply_add(difference_a, a * a * a, multiply_add(difference_b, b * b * b, in[5 * step]));
}

/// Likewise of the transposition: four factors, and three sums.
inline void transform_factors(const V* in, int step, V* out, int out_step) {
  const V even_a = multiply_add(in[2 * step], a * a, in[0]) * of_a, odd_a = multiply_add(in[3 * step], a * a, in[step]) * (a * of_a);
  const V even_b = multiply_add(in[2 * step], b * b, in[0]) * of_b, odd_b = multiply_add(in[3 * step], b * b, in[step]) * (b * of_b);
  store_points(in[0], even_a, odd_a, even_b, odd_b, in[3 * step], out, out_step);
}

inline void transform_sums(const V* in, int step, V* out, int out_step) {
  const V sum_a = in[step] + in[2 * step], sum_b = in[3 * step] + in[4 * step];
  out[0] = in[0] + sum_a + sum_b;
  out[out_step] = multiply_add(in[step] - in[2 * step], a, (in[3 * step] - in[4 * step]) * b);
  out[2 * out_step] = multiply_add(sum_a, a * a, multiply_add(sum_b, b * b, in[5 * step]));
}

/// Both axes of a square of `size` elements, which gives one of `to` elements.
template <int size, int to, class Transform>
inline void transform_square(const V (&in)[size * size], V (&out)[to * to], const Transform& transform) {
  V rows[size * to];
#pragma GCC unroll 8
  for (int row = 0; row < size; ++row) transform(in + row * size, 1, rows + row * to, 1);
#pragma GCC unroll 8
  for (int column = 0; column < to; ++column) transform(rows + column, to, out + column, to);
}

/// Writes a transformed tile, `step` between its elements, and has the lines after these brought to the nearest cache: a processor does
/// not foresee so many, and waits for them when it writes.
inline void store_elements(const V (&tile)[elements], float* to, std::int64_t step) {
  constexpr std::int64_t ahead = 2 * 64 / sizeof(float);
#pragma GCC unroll 36
  for (int e = 0; e < elements; ++e) {
    simd::store(to + e * step, tile[e]);
    __builtin_prefetch(to + e * step + ahead, 1);
  }
}

}  // namespace frit::ops::winograd
