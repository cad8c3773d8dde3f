#include "frit/ops/cpu/run_product.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "frit/ops/cpu/prefetch.h"
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
  const Vector<T> low = simd::broadcast(p.rectifier.low), high = simd::broadcast(p.rectifier.high);
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const std::int64_t place = i * p.c_stride + v * lanes<T>;
      if (p.accumulate) {
        sums[i][v] += simd::load(p.c + place);
      } else if (p.bias != nullptr) {
        sums[i][v] += simd::load(p.bias + v * lanes<T>);
      }
      if (p.rectifier.addend != nullptr) sums[i][v] += simd::load(p.rectifier.addend + place);
      simd::store(p.c + place, simd::clamp<T>(sums[i][v], low, high));
    }
  }
}

template <class T, int rows, int vectors>
void add_tile(const OuterProducts<T>& p) {
  Vector<T> sums[rows][vectors];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[i][v] = Vector<T>{};
  }
  const T *a = p.a, *b = p.b;
  for (std::int64_t k = 0; k < p.positions; ++k, a += p.a_stride, b += p.b_stride) {
    add_products<T, rows, vectors>(
        sums, b, [&](int i) __attribute__((always_inline)) { return a[i]; });
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      T* const c = p.c + i * p.c_stride + v * lanes<T>;
      simd::store(c, simd::load(c) + sums[i][v]);
    }
  }
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
using Sizes = std::make_integer_sequence<int, product_rows * product_vectors>;

std::size_t tile_index(int rows, int vectors) { return static_cast<std::size_t>((rows - 1) * product_vectors + vectors - 1); }

template <class T>
std::int64_t bytes_of_b(const RunProduct<T>& p) {
  std::int64_t depth = 0;
  for (const Run& run : p.runs) depth += run.length;
  return depth * p.vectors * simd::vector_bytes;
}

}  // namespace

template <class T>
void multiply(const RunProduct<T>& product) {
  static constexpr auto tiles = multiply_tiles<T>(Sizes());
  const std::int64_t positions = std::ssize(product.a);
  if (positions == 0) return;
  const std::int64_t count = (positions - 1) / product_rows + 1, rows = positions / count, longer = positions % count;
  const std::int64_t next_bytes = product.next == nullptr ? 0 : bytes_of_b(product), share = next_bytes / count + 1;
  const auto* const next = reinterpret_cast<const std::byte*>(product.next);
  RunProduct<T> tile = product;
  for (std::int64_t i = 0, done = 0; i < count; ++i) {
    const std::int64_t tile_rows = rows + (i < longer ? 1 : 0), place = done * product.c_stride;
    tile.a = product.a.subspan(static_cast<std::size_t>(done));
    tile.c = product.c + place;
    if (product.rectifier.addend != nullptr) tile.rectifier.addend = product.rectifier.addend + place;
    tiles[tile_index(static_cast<int>(tile_rows), product.vectors)](tile);
    if (i * share < next_bytes) prefetch(next + i * share, std::min(share, next_bytes - i * share));
    done += tile_rows;
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

template void multiply(const RunProduct<float>&);
template void multiply(const RunProduct<double>&);
template void add_outer_products(const OuterProducts<float>&);
template void add_outer_products(const OuterProducts<double>&);

}  // namespace frit::ops
