#pragma once

#include <algorithm>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/launch.h"
#include "frit/core/cuda/vector.h"
#include "frit/ops/convolution/taps/tap_tiles.h"
#include "frit/ops/cuda/async_copy.h"
#include "frit/ops/cuda/tensor_cores.h"

namespace frit::ops {

/// Copies the input's pixels that a tile and its taps take to shared memory, zeros for those outside of the image.
template <class Stored, bool doubled, int held>
class StagedInput {
 public:
  static constexpr int width = doubled ? 4 : cuda::vector_width<Stored>, bytes = width * static_cast<int>(sizeof(Stored));
  using Product = tensor_cores::Product<Stored>;

  __device__ StagedInput(const Stored* input, const TapTiles& tiles) : input_(input), tiles_(tiles) {
    const int units = tiles.channels / width;
#pragma unroll
    for (int i = 0; i < held; ++i) {
      const int item = static_cast<int>(threadIdx.x) + i * TapTiles::threads, pixels = item / units, c = (item - pixels * units) * width;
      const int lines = pixels / tiles.input_width, column = pixels - lines * tiles.input_width;
      const int depth = lines / tiles.input_rows, row = lines - depth * tiles.input_rows;
      const bool never = depth >= tiles.kernel[0] || (tiles.one_column && !inside(column - tiles.padding[2], 2));
      staged_[i] = never ? -1 : (pixels * tiles.input_step + c) * static_cast<int>(sizeof(Stored));
      from_[i] = ((depth * tiles.input[1] + row) * tiles.input[2] + column) * tiles.channels + c;
      place_[i] = depth << 20 | row << 10 | column;
    }
  }

  __device__ void start(std::uint32_t inputs, const TilePlace& tile) const {
    const int d = tile.depth - tiles_.padding[0], h = tile.row - tiles_.padding[1], w = tile.column - tiles_.padding[2];
    const Stored* const from =
        input_ + (((tile.sample * tiles_.input[0] + d) * tiles_.input[1] + h) * tiles_.input[2] + w) * tiles_.channels;
    const bool whole = d >= 0 && d + tiles_.kernel[0] <= tiles_.input[0] && h >= 0 && h + tiles_.input_rows <= tiles_.input[1] &&
                       (tiles_.one_column || (w >= 0 && w + tiles_.input_width <= tiles_.input[2]));
    // A pixel's second half is its neighbour's first.
    const auto has_half = [&](int i) { return doubled && (place_[i] & 1023) > 0; };
    const int half = bytes - tiles_.input_step * static_cast<int>(sizeof(Stored));
    if (whole) {
#pragma unroll
      for (int i = 0; i < held; ++i) {
        if (staged_[i] < 0) continue;
        cuda::copy_bytes<bytes>(inputs + staged_[i], from + from_[i]);
        if (has_half(i)) cuda::copy_bytes<bytes>(inputs + staged_[i] + half, from + from_[i]);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < held; ++i) {
      if (staged_[i] < 0) continue;
      const bool present = inside(d + (place_[i] >> 20), 0) && inside(h + (place_[i] >> 10 & 1023), 1) && inside(w + (place_[i] & 1023), 2);
      const Stored* const unit = present ? from + from_[i] : input_;
      cuda::copy_bytes_or_zeros<bytes>(inputs + staged_[i], unit, present);
      if (has_half(i)) cuda::copy_bytes_or_zeros<bytes>(inputs + staged_[i] + half, unit, present);
    }
  }

  __device__ void transform(std::uint32_t inputs) const {
    if constexpr (Product::rounds) {
#pragma unroll
      for (int i = 0; i < held; ++i) {
        const std::uint32_t address = inputs + staged_[i];
        if (staged_[i] >= 0) cuda::store_shared<Stored>(address, Product::rounded(cuda::load_shared<Stored>(address)));
      }
    }
  }

 private:
  __device__ bool inside(int index, int axis) const { return static_cast<unsigned>(index) < static_cast<unsigned>(tiles_.input[axis]); }

  const Stored* input_;
  const TapTiles& tiles_;
  int staged_[held];  ///< in bytes; negative: in no tile
  int from_[held], place_[held];
};

/// Blocks that share out tiles, so many to a multiprocessor: along x those that share a sample, along y samples.
inline dim3 tap_grid(const TapTiles& tiles, int to_multiprocessor, int device) {
  const std::int64_t blocks = cuda::properties(device).multiprocessors * to_multiprocessor;
  const std::int64_t rows = std::clamp<std::int64_t>(tiles.samples, 1, blocks);
  return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(blocks / rows, 1, tiles.count)), static_cast<unsigned>(rows));
}

}  // namespace frit::ops
