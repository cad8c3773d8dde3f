#include "frit/ops/cpu/run_product.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "frit/ops/cpu/prefetch.h"

namespace frit::ops {
namespace {

using simd::lanes;
using simd::Vector;

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

/// c = what finished(load, sum, c, v) makes of the sums and what they are added to, for rows of c that begin at row(i); load(from, v) reads
/// what belongs to vector v of c. `last` are the columns of the last one, if it is a part of a vector. All hold copies of what a product
/// says: after a store, which may have changed it, that would be read again.
template <class T, int rows, int vectors, bool part, class Row, class Finished>
[[gnu::always_inline]] inline void store(const Tile<T, rows, vectors>& sums, std::int64_t last, bool accumulate, const T* bias,
                                         const Row& row, const Finished& finished) {
  const auto load = [last](const T* from, int v) __attribute__((always_inline)) {
    return part && v == vectors - 1 ? simd::load_first(from, last) : simd::load(from);
  };
  const auto store_each = [&](const auto& before) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      T* const first = row(i);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        T* const c = first + v * lanes<T>;
        const Vector<T> result = finished(load, sums[i][v] + before(c, v), c, v);
        part&& v == vectors - 1 ? simd::store_first(c, result, last) : simd::store(c, result);
      }
    }
  };
  if (accumulate) {
    store_each([&](const T* c, int v) { return load(c, v); });
  } else {
    Vector<T> biases[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) biases[v] = bias == nullptr ? Vector<T>{} : load(bias + v * lanes<T>, v);
    store_each([&](const T*, int v) { return biases[v]; });
  }
}

template <class T, int rows, int vectors, bool part, class Product>
[[gnu::always_inline]] inline void finish_columns(const Tile<T, rows, vectors>& sums, const Product& p) {
  const auto as_they_are = [](const auto&, Vector<T> sum, const T*, int) { return sum; };
  if constexpr (std::is_base_of_v<RunProduct<T>, Product>) {
    const auto row = [c = p.c, stride = p.c_stride, places = p.c_places](int i) {
      return c + (places != nullptr ? places[i] : i * stride);
    };
    const Rectifier<T> r = p.rectifier;
    if (!r.rectifies()) return store<T, rows, vectors, part>(sums, p.last_columns, p.accumulate, p.bias, row, as_they_are);
    const Vector<T> low = simd::broadcast(r.low), high = simd::broadcast(r.high);
    const auto rectified = [=, first = p.c](const auto& load, Vector<T> sum, const T* c, int v) {
      if (r.addend != nullptr) sum += load(r.addend + (c - first), v);
      return simd::clamp<T>(sum, low, high);
    };
    store<T, rows, vectors, part>(sums, p.last_columns, p.accumulate, p.bias, row, rectified);
  } else {
    const auto row = [c = p.c, stride = p.c_stride](int i) { return c + i * stride; };
    store<T, rows, vectors, part>(sums, p.last_columns, p.accumulate, p.bias, row, as_they_are);
  }
}

template <class T, int rows, int vectors, class Product>
[[gnu::always_inline]] inline void finish_rows(const Tile<T, rows, vectors>& sums, const Product& p) {
  p.last_columns > 0 ? finish_columns<T, rows, vectors, true>(sums, p) : finish_columns<T, rows, vectors, false>(sums, p);
}

/// Row by row, for any number of them: a tenth of the code.
template <class T, int vectors, class Product>
[[gnu::noinline]] void finish_each_row(const Tile<T, 1, vectors>* sums, int rows, Product p) {
  for (int i = 0; i < rows; ++i) {
    finish_rows<T, 1, vectors>(sums[i], p);
    if constexpr (std::is_base_of_v<RunProduct<T>, Product>) {
      if (p.c_places != nullptr) {
        ++p.c_places;
        continue;
      }
      if (p.rectifier.addend != nullptr) p.rectifier.addend += p.c_stride;
    }
    p.c += p.c_stride;
  }
}

template <class T, int rows, int vectors, class Product>
[[gnu::always_inline]] inline void finish(const Tile<T, rows, vectors>& sums, const Product& p) {
  if constexpr (std::is_same_v<T, double>) {
    Tile<T, 1, vectors> each[rows];
    for (int i = 0; i < rows; ++i) std::copy_n(sums[i], vectors, each[i][0]);
    finish_each_row<T, vectors>(each, rows, p);
  } else {
    finish_rows<T, rows, vectors>(sums, p);
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
#pragma GCC unroll 2
    for (std::int64_t k = run.offset; k < end; ++k, b += vectors * lanes<T>) {
      add_products<T, rows, vectors>(
          sums, b, [&](int i) __attribute__((always_inline)) { return a[i][k]; });
    }
  }
  finish<T, rows, vectors>(sums, p);
}

template <class T, int rows, int vectors>
void multiply_tile(const SlidingProduct<T>& p) {
  constexpr int taps = SlidingProduct<T>::taps;
  Tile<T, rows, vectors> sums = {};
  const T* b = p.b;
  for (const Run& run : p.runs) {
    const T* const end = p.a[0] + run.offset + p.channels;
    for (const T* first = end - p.channels; first < end; ++first, b += lanes<T>) {
      Vector<T> b_rows[taps];
#pragma GCC unroll 4
      for (int t = 0; t < taps; ++t) {
        b_rows[t] = simd::load(b + t * p.channels * lanes<T>);
        simd::keep_in_register(b_rows[t]);
      }
      const T* pixel = first;
#pragma GCC unroll 16
      for (int i = 0; i < rows + taps - 1; ++i, pixel += p.channels) {
        const Vector<T> factor = simd::broadcast(*pixel);
#pragma GCC unroll 4
        for (int t = 0; t < taps; ++t) {
          if (i >= t && i - t < rows) sums[i - t][0] = simd::multiply_add(factor, b_rows[t], sums[i - t][0]);
        }
      }
    }
    b += (taps - 1) * p.channels * lanes<T>;
  }
  finish<T, rows, vectors>(sums, p);
}

template <class T, int rows, int vectors>
void multiply_tile(const OuterProducts<T>& p) {
  Tile<T, rows, vectors> sums = {};
  const T *a = p.a, *b = p.b;
#pragma GCC unroll 2
  for (std::int64_t k = 0; k < p.positions; ++k, a += p.a_stride, b += p.b_stride) {
    add_products<T, rows, vectors>(
        sums, b, [&](int i) __attribute__((always_inline)) { return a[i]; });
  }
  finish<T, rows, vectors>(sums, p);
}

template <class T, int rows, int vectors>
void multiply_tile(const GatheredOuterProducts<T>& p) {
  Tile<T, rows, vectors> sums = {};
  std::int64_t element[rows];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) element[i] = p.rows[static_cast<std::size_t>(i)];
  const T* b = p.b;
  for (const std::int64_t position : p.positions) {
    const T* const a = p.a + position;
    add_products<T, rows, vectors>(
        sums, b, [&](int i) __attribute__((always_inline)) { return a[element[i]]; });
    b += p.b_stride;
  }
  finish<T, rows, vectors>(sums, p);
}

template <class Product>
using TileFunction = void (*)(const Product&);

/// For 1 .. product_rows rows and 1 .. most_vectors vectors.
template <class T, class Product, int... sizes>
constexpr std::array<TileFunction<Product>, sizeof...(sizes)> tile_functions(std::integer_sequence<int, sizes...>) {
  return {&multiply_tile<T, sizes / Product::most_vectors + 1, sizes % Product::most_vectors + 1>...};
}

/// Tiles of evenly many rows, counted once: no divisions between them.
struct TileRows {
  std::int64_t tiles, rows, longer;  ///< the first `longer` tiles have a row more

  explicit TileRows(std::int64_t all) : tiles((all + product_rows - 1) / product_rows), rows(0), longer(0) {
    if (tiles > 0) rows = all / tiles, longer = all % tiles;
  }
};

/// begin(tile, index, row) lets one begin at a row.
template <class T, class Product, class Begin>
void multiply_tiles(const Product& product, const TileRows& cut, const Begin& begin) {
  static constexpr auto functions = tile_functions<T, Product>(std::make_integer_sequence<int, product_rows * Product::most_vectors>());
  Product tile = product;
  for (std::int64_t i = 0, row = 0; i < cut.tiles; ++i) {
    const std::int64_t rows = cut.rows + (i < cut.longer ? 1 : 0);
    tile.c = product.c + row * product.c_stride;
    begin(tile, i, row);
    functions[static_cast<std::size_t>((rows - 1) * Product::most_vectors + product.vectors - 1)](tile);
    row += rows;
  }
}

}  // namespace

template <class T>
void multiply(const RunProduct<T>& product) {
  const TileRows cut(std::ssize(product.a));
  const std::int64_t next = std::ssize(product.next), share = cut.tiles == 0 ? 0 : next / cut.tiles + 1;
  multiply_tiles<T>(product, cut, [&](RunProduct<T>& tile, std::int64_t i, std::int64_t row) {
    tile.a = product.a.subspan(static_cast<std::size_t>(row));
    if (product.c_places != nullptr) tile.c = product.c, tile.c_places = product.c_places + row;
    if (product.rectifier.addend != nullptr) tile.rectifier.addend = product.rectifier.addend + (tile.c - product.c);
    const std::int64_t begin = i * share, end = std::min(begin + share, next);
    if (begin < end) prefetch(product.next.data() + begin, (end - begin) * static_cast<std::int64_t>(sizeof(T)));
  });
}

template <class T>
void multiply(const SlidingProduct<T>& product) {
  const auto& a = product.a;
  for (std::size_t first = 0, last; first < a.size(); first = last) {
    for (last = first + 1; last < a.size() && a[last] - a[last - 1] == product.channels; ++last) {
    }
    const auto begin = static_cast<std::int64_t>(first);
    SlidingProduct<T> row = product;
    if (product.c_places == nullptr) row.c = product.c + begin * product.c_stride;
    multiply_tiles<T>(row, TileRows(static_cast<std::int64_t>(last - first)), [&](SlidingProduct<T>& tile, std::int64_t, std::int64_t i) {
      tile.a = a.subspan(static_cast<std::size_t>(begin + i));
      if (product.c_places != nullptr) tile.c = product.c, tile.c_places = product.c_places + begin + i;
      if (product.rectifier.addend != nullptr) tile.rectifier.addend = product.rectifier.addend + (tile.c - product.c);
    });
  }
}

template <class T>
void add_outer_products(const OuterProducts<T>& products) {
  multiply_tiles<T>(products, TileRows(products.rows),
                    [&](OuterProducts<T>& tile, std::int64_t, std::int64_t row) { tile.a = products.a + row; });
}

template <class T>
void add_outer_products(const GatheredOuterProducts<T>& products) {
  multiply_tiles<T>(products, TileRows(std::ssize(products.rows)), [&](GatheredOuterProducts<T>& tile, std::int64_t, std::int64_t row) {
    tile.rows = products.rows.subspan(static_cast<std::size_t>(row));
  });
}

template void multiply(const RunProduct<float>&);
template void multiply(const RunProduct<double>&);
template void multiply(const SlidingProduct<float>&);
template void add_outer_products(const OuterProducts<float>&);
template void add_outer_products(const OuterProducts<double>&);
template void add_outer_products(const GatheredOuterProducts<float>&);
template void add_outer_products(const GatheredOuterProducts<double>&);

}  // namespace frit::ops
