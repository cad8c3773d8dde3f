#pragma once

#include <array>

#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp.h"
#include "frit/ops/cpu/simd_math.h"
#include "frit/ops/cpu/transpose.h"
#include "frit/ops/cpu/work_split.h"

namespace frit::ops {

// The logsumexp of an image's pixels on the CPU, tile by tile.

/// Pixels of a tile, and about how many elements they have, which then stay in the nearest cache; and vectors that are computed at a time.
inline constexpr std::int64_t most_tile_pixels = 256, tile_elements = 4096;
inline constexpr int tile_vectors = 4;
inline constexpr std::int64_t pixel_multiple = tile_vectors * simd::lanes<float>;

/// One value a pixel of a tile.
template <class T>
struct alignas(64) PixelValues : std::array<T, most_tile_pixels> {};

/// How the planes of an image are cut into tiles, which lie in memory as (C, pixels) whatever the image's layout.
struct PixelTiling {
  Planes planes;
  EvenBlocks pixels;

  explicit PixelTiling(const Planes& p)
      : planes(p),
        pixels(p.pixels,
               std::clamp(tile_elements / std::max<std::int64_t>(1, p.channels) / pixel_multiple * pixel_multiple, pixel_multiple,
                          most_tile_pixels),
               pixel_multiple) {}

  std::int64_t count() const { return planes.samples * pixels.count; }
  WorkSplit split(DType dtype) const {
    const std::int64_t elements = planes.channels * pixels.size;
    return {count(), elements * 8, static_cast<std::size_t>(elements) * size_of(dtype)};
  }
};

/// An image (N, block * C, pixels) as planes (N * block, C, pixels).
template <class T>
struct PlanesInMemory {
  T* data;
  PixelTiling tiling;
  std::int64_t block;
  bool channels_last;

  PlanesInMemory(const Tensor& tensor, const PixelTiling& tiles, std::int64_t in_block)
      : data(data_or_null<T>(tensor)), tiling(tiles), block(in_block), channels_last(tensor.layout() == Layout::channels_last) {}

  void load(T* tile, std::int64_t sample, std::int64_t first, std::int64_t count) const {
    if (channels_last) return transpose(data + place(sample, first), pitch(), count, tiling.planes.channels, tile, tiling.pixels.size);
    for_each_row(tile, sample, first, [&](T* row, const T* from) { std::copy_n(from, count, row); });
  }
  void store(T* tile, std::int64_t sample, std::int64_t first, std::int64_t count) const {
    if (channels_last) return transpose(tile, tiling.pixels.size, tiling.planes.channels, count, data + place(sample, first), pitch());
    for_each_row(tile, sample, first, [&](const T* row, T* to) { std::copy_n(row, count, to); });
  }
  /// Brings pixels nearer that are loaded soon: while a tile is computed, the memory would else stand still. Inlined early, since GCC drops
  /// calls of functions that only prefetch.
  [[gnu::always_inline]] void prefetch(std::int64_t sample, std::int64_t first, std::int64_t count) const {
    constexpr std::int64_t line = 64 / sizeof(T);
    if (!channels_last || first + count > tiling.planes.pixels) return;
    const T* const end = data + place(sample, first + count - 1) + tiling.planes.channels;
    for (const T* from = data + place(sample, first); from < end; from += line) __builtin_prefetch(from);
  }

 private:
  /// From pixel to pixel of a channels-last image.
  std::int64_t pitch() const { return block * tiling.planes.channels; }
  std::int64_t place(std::int64_t sample, std::int64_t pixel) const {
    return (sample / block * tiling.planes.pixels + pixel) * pitch() + sample % block * tiling.planes.channels;
  }
  template <class Body>
  void for_each_row(T* tile, std::int64_t sample, std::int64_t first, const Body& body) const {
    const Planes& planes = tiling.planes;
    for (std::int64_t c = 0; c < planes.channels; ++c) {
      body(tile + c * tiling.pixels.size, data + (sample * planes.channels + c) * planes.pixels + first);
    }
  }
};

/// The logsumexp of each pixel, the sigmoid of that and `shift`, and the sum over c of exp(x[c] - largest x[c]), which is shifted by 0
/// where it is not finite. A tile becomes the exponentials if they are kept. Rows are whole vectors, of which the last may hold more than
/// the tile's pixels.
template <class T>
struct ExponentialSums {
  PixelValues<T> sums, logarithm, sigmoid;

  /// Calls meanwhile(pixel, pixels) as it goes.
  template <class Body>
  ExponentialSums(T* tile, const PixelTiling& tiling, std::int64_t count, bool kept, const Body& meanwhile) {
    for (std::int64_t i = 0; i < count; i += tile_vectors * lanes) {
      meanwhile(i, std::min<std::int64_t>(tile_vectors * lanes, count - i));
      Vector shift[tile_vectors], sum[tile_vectors], y[tile_vectors], e[tile_vectors];
      find_shift(shift, tile + i, tiling);
      if (kept) {
        add<true>(sum, tile + i, tiling, shift);
      } else {
        add<false>(sum, tile + i, tiling, shift);
      }
      for (int v = 0; v < tile_vectors; ++v) {
        y[v] = simd::log<T>(sum[v]) + shift[v];
        e[v] = -(y[v] + ScaledSigmoid<T>::shift);
      }
      simd::exp<T>(e);
      for (int v = 0; v < tile_vectors; ++v) {
        const auto place = static_cast<std::size_t>(i + v * lanes);
        simd::store(&sums[place], sum[v]);
        simd::store(&logarithm[place], y[v]);
        simd::store(&sigmoid[place], 1 / (1 + e[v]));
      }
    }
  }

 private:
  using Vector = simd::Vector<T>;
  static constexpr int lanes = simd::lanes<T>;

  static void find_shift(Vector (&shift)[tile_vectors], const T* tile, const PixelTiling& tiling) {
    for (int v = 0; v < tile_vectors; ++v) shift[v] = simd::load(tile + v * lanes);
    for (std::int64_t c = 1; c < tiling.planes.channels; ++c) {
      for (int v = 0; v < tile_vectors; ++v) {
        const Vector x = simd::load(tile + c * tiling.pixels.size + v * lanes);
        shift[v] = simd::max(x, shift[v]);
      }
    }
    for (int v = 0; v < tile_vectors; ++v) shift[v] = shift[v] - shift[v] == 0 ? shift[v] : Vector{};
  }

  template <bool kept>
  static void add(Vector (&sums)[tile_vectors], T* tile, const PixelTiling& tiling, const Vector (&shift)[tile_vectors]) {
    // In parts, since a long sum of rounded numbers loses digits.
    constexpr std::int64_t part_channels = 32;
    for (int v = 0; v < tile_vectors; ++v) sums[v] = Vector{};
    for (std::int64_t first = 0; first < tiling.planes.channels; first += part_channels) {
      Vector part[tile_vectors] = {}, e[tile_vectors];
      for (std::int64_t c = first; c < std::min(first + part_channels, tiling.planes.channels); ++c) {
        T* const row = tile + c * tiling.pixels.size;
        for (int v = 0; v < tile_vectors; ++v) e[v] = simd::load(row + v * lanes) - shift[v];
        simd::exp<T>(e);
        for (int v = 0; v < tile_vectors; ++v) {
          if (kept) simd::store(row + v * lanes, e[v]);
          part[v] += e[v];
        }
      }
      for (int v = 0; v < tile_vectors; ++v) sums[v] += part[v];
    }
  }
};

/// Calls body(number of the tile, tile, sample, first pixel, pixels) for the tiles of all samples, in parallel.
template <class T, class Body>
void for_each_tile(const PixelTiling& tiling, std::span<std::byte> workspace, const Body& body) {
  tiling.split(dtype_of<T>()).run(workspace, [&](std::int64_t number, std::byte* memory) {
    const std::int64_t block = number % tiling.pixels.count;
    body(number, reinterpret_cast<T*>(memory), number / tiling.pixels.count, tiling.pixels.begin(block), tiling.pixels.length_of(block));
  });
}

}  // namespace frit::ops
