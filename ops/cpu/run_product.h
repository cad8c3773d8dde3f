#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "frit/ops/cpu/simd.h"

namespace frit::ops {

/// Elements of an image that lie side by side: what a position reads of it from `offset` on, counted from its own first element.
struct Run {
  std::int64_t offset, length;
};

/// The stride of rows of so many elements, for which lines fall on different cache sets: an odd number of whole 64-byte lines.
constexpr std::int64_t packed_stride(std::int64_t elements, std::size_t element_size) {
  const auto line = static_cast<std::int64_t>(64 / element_size);
  return ((elements + line - 1) / line | 1) * line;
}

/// Vectors of columns that are computed at a time, with so many positions or rows.
inline constexpr int product_vectors = 2, product_rows = simd::registers == 32 ? 12 : 6;
/// Whether a product's rows that lie so many bytes apart share places in the nearest cache, fewer than there are rows.
constexpr bool rows_collide(std::int64_t bytes) { return product_rows > 8 && bytes % 4096 == 0; }
/// Columns of a block.
template <class T>
inline constexpr int product_columns = product_vectors* simd::lanes<T>;

/// What is done to a sum before it is written: an addend, then bounds. NaN stays.
template <class T>
struct Rectifier {
  const T* addend = nullptr;  ///< or null: the elements that lie as the results do
  T low = -std::numeric_limits<T>::infinity(), high = std::numeric_limits<T>::infinity();

  /// Whether it changes any sum.
  bool rectifies() const {
    return addend != nullptr || low != -std::numeric_limits<T>::infinity() || high != std::numeric_limits<T>::infinity();
  }
};

/// c (positions, columns) = sum over the runs' elements k of a[position][k] b (k, columns), on the calling thread. `b` has rows of whole
/// vectors, no more than product_vectors. What is multiplied may be narrower than its sums (see bfloat_product.h).
template <class T, class A = T>
struct RunProduct {
  static constexpr int most_vectors = product_vectors;
  std::span<const Run> runs;
  std::span<const A* const> a;  ///< the positions
  const A* b;
  int vectors;
  T* c;
  std::int64_t c_stride;                   ///< between positions
  std::int64_t last_columns = 0;           ///< that c has of the last vector; 0: all of them
  const std::int64_t* c_places = nullptr;  ///< or where each position's row is
  bool accumulate = false;                 ///< adds to what is in c
  const T* bias = nullptr;                 ///< or null: a number a column, added unless accumulating
  Rectifier<T> rectifier = {};
  std::span<const A> next = {};  ///< what is read after this product: it is brought to the cache meanwhile
};

/// Each element of c is one sum in the order of the runs: whatever is computed with it, its bits are the same.
template <class T>
void multiply(const RunProduct<T>& product);

/// The same, where each run is of three pixels of `channels` channels that neighbouring positions, a pixel apart, have in common: an
/// element is read once for all that it adds to. The columns are one vector, a run's sum is channel by channel, and `next` is not read. For
/// float.
template <class T>
struct SlidingProduct : RunProduct<T> {
  static constexpr int most_vectors = 1, taps = 3;
  std::int64_t channels;
};
template <class T>
void multiply(const SlidingProduct<T>& product);

/// c (rows, columns) += sum over positions p of a (positions, rows)[p][row] b (positions, columns)[p][column], on the calling thread; or c
/// = that and the bias, unless accumulating. Strides that are powers of two let lines fall on the same cache sets.
template <class T>
struct OuterProducts {
  static constexpr int most_vectors = product_vectors;
  std::int64_t positions, rows;
  int vectors;  ///< of columns, no more than product_vectors; all of b's are read
  const T* a;
  std::int64_t a_stride;
  const T* b;
  std::int64_t b_stride;
  T* c;
  std::int64_t c_stride;
  std::int64_t last_columns = 0;  ///< as above
  bool accumulate = true;
  const T* bias = nullptr;  ///< as above
};
/// The same with elements a[positions[p] + rows[row]], always accumulating.
template <class T>
struct GatheredOuterProducts {
  static constexpr int most_vectors = product_vectors;
  std::span<const std::int64_t> positions, rows;
  int vectors;
  const T* a;
  const T* b;
  std::int64_t b_stride;
  T* c;
  std::int64_t c_stride;
  static constexpr std::int64_t last_columns = 0;
  static constexpr bool accumulate = true;
  static constexpr const T* bias = nullptr;
};

/// With the bits of the same product by runs.
template <class T>
void add_outer_products(const OuterProducts<T>& products);
template <class T>
void add_outer_products(const GatheredOuterProducts<T>& products);

}  // namespace frit::ops
