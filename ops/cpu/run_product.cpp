#include "frit/ops/cpu/run_product.h"

#include <algorithm>
#include <array>
#include <utility>

namespace frit::ops {
namespace {

using simd::lanes;
using simd::Vector;

/// The next tile's part of `left`: evenly large parts of at most `most`.
int next_part(std::int64_t left, std::int64_t most) {
  const std::int64_t parts = (left + most - 1) / most;
  return static_cast<int>((left + parts - 1) / parts);
}

/// Sums that are held in registers.
template <class T, int rows, int vectors>
using Tile = Vector<T>[rows][vectors];

/// Adds a row of b, `vectors` vectors, times element(i) to each row i of a tile.
template <class T, int rows, int vectors, class Element>
[[gnu::always_inline]] inline void add_products(Tile<T, rows, vectors>& sums, const T* b, const Element& element) {
  Vector<T> b_row[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    b_row[v] = simd::load(b + v * lanes<T>);
    simd::keep_in_register(b_row[v]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    const Vector<T> factor = simd::broadcast(element(i));
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[i][v] = simd::multiply_add(factor, b_row[v], sums[i][v]);
  }
}

/// c = the sums and what before(c, v) gives, vector v of a row.
template <class T, int rows, int vectors, class Before>
[[gnu::always_inline]] inline void store(const Tile<T, rows, vectors>& sums, T* c, std::int64_t stride, const Before& before) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i, c += stride) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) simd::store(c + v * lanes<T>, sums[i][v] + before(c, v));
  }
}

template <class T, int rows, int vectors, class Product>
[[gnu::always_inline]] inline void finish(const Tile<T, rows, vectors>& sums, const Product& p) {
  if (p.accumulate) {
    store<T, rows, vectors>(sums, p.c, p.c_stride, [](const T* c, int v) { return simd::load(c + v * lanes<T>); });
  } else if (p.bias != nullptr) {
    store<T, rows, vectors>(sums, p.c, p.c_stride, [bias = p.bias](const T*, int v) { return simd::load(bias + v * lanes<T>); });
  } else {
    store<T, rows, vectors>(sums, p.c, p.c_stride, [](const T*, int) { return Vector<T>{}; });
  }
}

template <class T, int rows, int vectors>
void multiply_tile(const RunProduct<T>& p) {
  Tile<T, rows, vectors> sums = {};
  const T* a[rows];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) a[i] = p.a[static_cast<std::size_t>(i)];
  const T* b = p.b;
  for (const Run& run : p.runs) {
    const std::int64_t end = run.offset + run.length;
    for (std::int64_t k = run.offset; k < end; ++k, b += vectors * lanes<T>) {
      add_products<T, rows, vectors>(
          sums, b, [&](int i) __attribute__((always_inline)) { return a[i][k]; });
    }
  }
  finish<T, rows, vectors>(sums, p);
}

template <class T, int rows, int vectors>
void multiply_tile(const OuterProducts<T>& p) {
  Tile<T, rows, vectors> sums = {};
  const T *a = p.a, *b = p.b;
  const std::int64_t a_stride = p.a_stride, b_stride = p.b_stride;
  for (std::int64_t k = 0; k < p.positions; ++k, a += a_stride, b += b_stride) {
    add_products<T, rows, vectors>(
        sums, b, [&](int i) __attribute__((always_inline)) { return a[i]; });
  }
  finish<T, rows, vectors>(sums, p);
}

template <class Product>
using TileFunction = void (*)(const Product&);

/// For 1 .. product_rows rows and 1 .. product_vectors vectors.
template <class T, template <class> class Product, int... sizes>
constexpr std::array<TileFunction<Product<T>>, sizeof...(sizes)> tile_functions(std::integer_sequence<int, sizes...>) {
  return {&multiply_tile<T, sizes / product_vectors + 1, sizes % product_vectors + 1>...};
}

/// Tile by tile; rows_of(tile, done) lets one begin at row `done`.
template <class T, template <class> class Product, class RowsOf>
void multiply_tiles(const Product<T>& product, std::int64_t count, const RowsOf& rows_of) {
  static constexpr auto functions = tile_functions<T, Product>(std::make_integer_sequence<int, product_rows * product_vectors>());
  Product<T> tile = product;
  for (std::int64_t done = 0; done < count;) {
    const int rows = next_part(count - done, product_rows);
    rows_of(tile, done);
    tile.c = product.c + done * product.c_stride;
    functions[static_cast<std::size_t>((rows - 1) * product_vectors + product.vectors - 1)](tile);
    done += rows;
  }
}

}  // namespace

template <class T>
void multiply(const RunProduct<T>& product) {
  multiply_tiles(product, std::ssize(product.a),
                 [&](RunProduct<T>& tile, std::int64_t done) { tile.a = product.a.subspan(static_cast<std::size_t>(done)); });
}

template <class T>
void add_outer_products(const OuterProducts<T>& products) {
  multiply_tiles(products, products.rows, [&](OuterProducts<T>& tile, std::int64_t done) { tile.a = products.a + done; });
}

template void multiply(const RunProduct<float>&);
template void multiply(const RunProduct<double>&);
template void add_outer_products(const OuterProducts<float>&);
template void add_outer_products(const OuterProducts<double>&);

}  // namespace frit::ops
