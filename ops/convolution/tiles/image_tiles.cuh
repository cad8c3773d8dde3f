#pragma once

#include "frit/core/cuda/divisor.cuh"

namespace frit::ops {

/// How the images of all samples are cut into tiles, numbered with x innermost.
struct ImageTiles {
  cuda::Divisor z, y, x;  ///< how many there are along each axis

  struct Tile {
    int sample, z, y, x;  ///< its number along each axis
  };
  __device__ Tile at(std::uint32_t number) const {
    const std::uint32_t row = x.quotient(number), plane = y.quotient(row), sample = z.quotient(plane);
    return {static_cast<int>(sample), static_cast<int>(z.remainder(plane, sample)), static_cast<int>(y.remainder(row, plane)),
            static_cast<int>(x.remainder(number, row))};
  }
};

/// A pixel of a box with so many rows and columns, of pixels that are numbered likewise.
template <int rows, int columns>
struct BoxPixel {
  int z, y, x;

  __device__ explicit BoxPixel(int number) : z(number / (rows * columns)), y(number / columns % rows), x(number % columns) {}
  /// To the pixel whose number is so much larger.
  template <int step>
  __device__ void advance() {
    x += step % columns;
    y += step / columns % rows;
    z += step / (rows * columns);
    if (x >= columns) x -= columns, ++y;
    if (y >= rows) y -= rows, ++z;
  }
};

/// Whether an image of this size (z, y, x) has the position.
__device__ inline bool is_in(int z, int y, int x, const int (&size)[3]) {
  return static_cast<unsigned>(z) < static_cast<unsigned>(size[0]) && static_cast<unsigned>(y) < static_cast<unsigned>(size[1]) &&
         static_cast<unsigned>(x) < static_cast<unsigned>(size[2]);
}

}  // namespace frit::ops
