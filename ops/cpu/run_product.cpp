#include "frit/ops/cpu/run_product.h"

#include <algorithm>
#include <array>
#include <utility>

#include "frit/ops/cpu/product_tile.h"

namespace frit::ops {
namespace {

using simd::lanes;
using simd::Vector;

template <class T, int rows, int vectors>
void multiply_tile(const RunProduct<T>& p) {
  Vector<T> sums[rows][vectors] = {};
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
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    T* const row = p.c + (p.c_places != nullptr ? p.c_places[i] : i * p.c_stride);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      T* const c = row + v * lanes<T>;
      if (p.accumulate) {
        sums[i][v] += simd::load(c);
      } else if (p.bias != nullptr) {
        sums[i][v] += simd::load(p.bias + v * lanes<T>);
      }
      simd::store(c, sums[i][v]);
    }
  }
}

/// for_each_position(body), body(element, row of b): adds up what they give, and that to c.
template <class T, int rows, int vectors, class Product, class Positions>
[[gnu::always_inline]] inline void add_tile_of(const Product& p, const Positions& for_each_position) {
  Vector<T> sums[rows][vectors];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[i][v] = Vector<T>{};
  }
  for_each_position([&](const auto& element, const T* b)
                        __attribute__((always_inline)) { add_products<T, rows, vectors>(sums, b, element); });
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      T* const c = p.c + i * p.c_stride + v * lanes<T>;
      simd::store(c, simd::load(c) + sums[i][v]);
    }
  }
}

template <class T, int rows, int vectors>
void add_tile(const OuterProducts<T>& p) {
  add_tile_of<T, rows, vectors>(
      p, [&](const auto& body) __attribute__((always_inline)) {
        const T *a = p.a, *b = p.b;
        for (std::int64_t k = 0; k < p.positions; ++k, a += p.a_stride, b += p.b_stride) {
          body(
              [&](int i) __attribute__((always_inline)) { return a[i]; }, b);
        }
      });
}

template <class T, int rows, int vectors>
void add_gathered_tile(const GatheredOuterProducts<T>& p) {
  std::int64_t elements[rows];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) elements[i] = p.rows[static_cast<std::size_t>(i)];
  add_tile_of<T, rows, vectors>(
      p, [&](const auto& body) __attribute__((always_inline)) {
        const T* b = p.b;
        for (const std::int64_t position : p.positions) {
          const T* const a = p.a + position;
          body(
              [&](int i) __attribute__((always_inline)) { return a[elements[i]]; }, b);
          b += p.b_stride;
        }
      });
}

template <class Product>
using TileFunction = void (*)(const Product&);
template <class Product>
using Tiles = std::array<TileFunction<Product>, product_rows * product_vectors>;

/// For 1 .. product_rows rows and 1 .. product_vectors vectors.
template <class T, int... sizes>
constexpr Tiles<RunProduct<T>> multiply_tiles(std::integer_sequence<int, sizes...>) {
  return {&multiply_tile<T, sizes / product_vectors + 1, sizes % product_vectors + 1>...};
}
template <class T, int... sizes>
constexpr Tiles<OuterProducts<T>> add_tiles(std::integer_sequence<int, sizes...>) {
  return {&add_tile<T, sizes / product_vectors + 1, sizes % product_vectors + 1>...};
}
template <class T, int... sizes>
constexpr Tiles<GatheredOuterProducts<T>> add_gathered_tiles(std::integer_sequence<int, sizes...>) {
  return {&add_gathered_tile<T, sizes / product_vectors + 1, sizes % product_vectors + 1>...};
}
using Sizes = std::make_integer_sequence<int, product_rows * product_vectors>;

std::size_t tile_index(int rows, int vectors) { return static_cast<std::size_t>((rows - 1) * product_vectors + vectors - 1); }

}  // namespace

template <class T>
void multiply(const RunProduct<T>& product) {
  static constexpr auto tiles = multiply_tiles<T>(Sizes());
  RunProduct<T> tile = product;
  for (std::size_t done = 0; done < product.a.size();) {
    const int rows = next_part(static_cast<std::int64_t>(product.a.size() - done), product_rows);
    tile.a = product.a.subspan(done);
    if (product.c_places != nullptr) {
      tile.c_places = product.c_places + done;
    } else {
      tile.c = product.c + static_cast<std::int64_t>(done) * product.c_stride;
    }
    tiles[tile_index(rows, product.vectors)](tile);
    done += static_cast<std::size_t>(rows);
  }
}

template <class T>
void add_outer_products(const OuterProducts<T>& products) {
  static constexpr auto tiles = add_tiles<T>(Sizes());
  OuterProducts<T> tile = products;
  for (std::int64_t done = 0; done < products.rows;) {
    const int rows = next_part(products.rows - done, product_rows);
    tile.a = products.a + done;
    tile.c = products.c + done * products.c_stride;
    tiles[tile_index(rows, products.vectors)](tile);
    done += rows;
  }
}

template <class T>
void add_outer_products(const GatheredOuterProducts<T>& products) {
  static constexpr auto tiles = add_gathered_tiles<T>(Sizes());
  GatheredOuterProducts<T> tile = products;
  for (std::size_t done = 0; done < products.rows.size();) {
    const int rows = next_part(static_cast<std::int64_t>(products.rows.size() - done), product_rows);
    tile.rows = products.rows.subspan(done);
    tile.c = products.c + static_cast<std::int64_t>(done) * products.c_stride;
    tiles[tile_index(rows, products.vectors)](tile);
    done += static_cast<std::size_t>(rows);
  }
}

template void multiply(const RunProduct<float>&);
template void multiply(const RunProduct<double>&);
template void add_outer_products(const OuterProducts<float>&);
template void add_outer_products(const OuterProducts<double>&);
template void add_outer_products(const GatheredOuterProducts<float>&);
template void add_outer_products(const GatheredOuterProducts<double>&);

}  // namespace frit::ops
