#pragma once

#include <climits>

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/convolution/weight_gradient/row_tiles.cuh"
#include "frit/ops/cuda/async_copy.cuh"
#include "frit/ops/cuda/phase_barrier.cuh"
#include "frit/ops/cuda/tensor_cores.cuh"
#include "frit/ops/cuda/warpgroup_products.cuh"

// What row products stage in shared memory, see row_tiles.cuh.

namespace frit::ops {

/// Some tiles in shared memory, and the ring of the input's rows that they meet.
struct RowRing {
  std::uint32_t memory;
  int image = 0, row = 0, column = 0;           ///< of the tile: sample and depth, first row of the gradient, column of the input
  int first = 0, stage = RowTiles::stages - 1;  ///< the slot of the row that the tile's first taps meet; which gradient is its
  unsigned parity = 1;
  bool fresh = false;  ///< its rows are all new

  __device__ cuda::PhaseBarrier full(int of) const { return {memory + static_cast<std::uint32_t>(of * cuda::PhaseBarrier::bytes)}; }
  __device__ cuda::PhaseBarrier empty(int of) const { return full(RowTiles::stages + of); }
  __device__ std::uint32_t gradient(const RowTiles& w) const {
    return memory + static_cast<std::uint32_t>(RowTiles::barrier_bytes + stage * w.gradient_bytes);
  }
  __device__ std::uint32_t slot(const RowTiles& w, int input_row) const {
    return memory + static_cast<std::uint32_t>(RowTiles::barrier_bytes + RowTiles::stages * w.gradient_bytes +
                                               wrapped(w, first + input_row) * w.slot_bytes);
  }
  /// To a tile, `begins` being the block's first.
  __device__ void advance(const RowTiles& w, int number, bool begins) {
    const auto n = static_cast<std::uint32_t>(number), strip = w.row_tiles.quotient(n);
    const int before = row;
    row = static_cast<int>(w.row_tiles.remainder(n, strip)) * w.rows;
    image = static_cast<int>(w.column_tiles.quotient(strip));
    column = static_cast<int>(w.column_tiles.remainder(strip, static_cast<std::uint32_t>(image))) * w.columns;
    fresh = begins || row <= before;
    if (!begins) first = wrapped(w, first + w.rows + (fresh ? RowTiles::side - 1 : 0));
    if (++stage == RowTiles::stages) stage = 0, parity ^= 1;
  }

 private:
  __device__ static int wrapped(const RowTiles& w, int slot) { return slot >= w.slots ? slot - w.slots : slot; }
};

/// A thread that stages has 4 channels of an image, and with 7 others that have the same some of a row's places.
struct Stager {
  static constexpr int vectors = RowTiles::channels / 4, together = RowTiles::stagers / vectors;

  __device__ static int channel(int thread) { return thread % vectors * 4; }
  __device__ static int place(int thread) { return thread / vectors; }
};

/// Starts copies of the tiles' gradients, with two columns more than a tile has, zeros for pixels that do not exist.
struct GradientStager {
  const float* gradient;
  std::uint32_t to;  ///< of the first gradient in shared memory
  int place;

  __device__ GradientStager(int thread, const RowRing& ring, const float* gradient, const RowTiles& w, const RowBlock& block)
      : place(Stager::place(thread)) {
    const int channel = Stager::channel(thread);
    this->gradient = gradient + block.output + channel;
    to = ring.memory + static_cast<std::uint32_t>(RowTiles::barrier_bytes + channel * 4 + place * RowTiles::gradient_pixel);
    if (block.output + channel >= w.out_channels) place = INT_MAX / 2;  // it has none
  }

  __device__ void stage(const RowRing& ring, const RowTiles& w) const {
    const int columns = w.columns + RowTiles::side - 1, first_column = ring.column + w.padding[2] - (RowTiles::side - 1);
    const int rows = min(w.rows, w.size[1] - ring.row);
    std::uint32_t to_line = to + static_cast<std::uint32_t>(ring.stage * w.gradient_bytes);
    std::int64_t line = (static_cast<std::int64_t>(ring.image) * w.size[1] + ring.row) * w.size[2] + first_column;
#pragma unroll 1
    for (int y = 0; y < rows; ++y) {
      const float* const from = gradient + line * w.out_channels;
      std::uint32_t to_pixel = to_line;
#pragma unroll 2
      for (int x = place; x < columns; x += Stager::together) {
        const bool present = static_cast<unsigned>(first_column + x) < static_cast<unsigned>(w.size[2]);
        cuda::copy_bytes_or_zeros<16>(to_pixel, from + x * w.out_channels, present);
        to_pixel += Stager::together * RowTiles::gradient_pixel;
      }
      line += w.size[2];
      to_line += static_cast<std::uint32_t>(columns * RowTiles::gradient_pixel);
    }
  }
};

/// Brings the rows of the input that are new in tiles, as right factors: 4 pixels of a channel are 16 bytes, and 8 channels of these lie
/// one after the other. Rows are copied as they lie in memory, and written again when all threads have read what they copied of them.
struct RowStager {
  static constexpr int most_quads = 2;  ///< of a thread in a row: 4 pixels of 4 channels each

  const float* input;
  int line, place, from, to;  ///< line: of several short rows that are brought together; where its channels lie in a row, before and after

  __device__ RowStager(int thread, const float* input, const RowTiles& w, const RowBlock& block) {
    const int channel = Stager::channel(thread), quads = w.columns / 4;
    this->input = input + block.input + channel;
    line = w.lines > 1 ? Stager::place(thread) / quads : 0;
    place = Stager::place(thread) - line * quads;
    if (line >= w.lines || block.input + channel >= w.in_channels) line = INT_MAX / 2;  // it has none
    from = channel * 4;
    to = channel / 8 * w.group_bytes + channel % 8 * warpgroup::chunk_bytes;
  }

  /// Starts the copies, zeros for pixels that do not exist.
  __device__ void copy(const RowRing& ring, const RowTiles& w, const RowBlock& block) const {
    const auto image = static_cast<std::uint32_t>(ring.image), sample = w.depths.quotient(image);
    const int depth = static_cast<int>(w.depths.remainder(image, sample)) - w.padding[0] + block.depth_tap;
    const bool any = static_cast<unsigned>(depth) < static_cast<unsigned>(w.input[0]);
    const std::int64_t plane = (static_cast<std::int64_t>(sample) * w.input[0] + depth) * w.input[1];
#pragma unroll 1
    for (int y = first_row(ring) + line; y < input_rows(w); y += w.lines) {
      const int row = ring.row - w.padding[1] + y;
      const bool present = any && static_cast<unsigned>(row) < static_cast<unsigned>(w.input[1]);
      const std::uint32_t raw = ring.slot(w, y) + static_cast<std::uint32_t>(from);
#pragma unroll
      for (int k = 0; k < most_quads; ++k) {
        const int quad = place + k * Stager::together, column = ring.column + quad * 4;
        if (quad * 4 >= w.columns) break;
        const float* const pixel = input + ((plane + row) * w.input[2] + column) * w.in_channels;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          cuda::copy_bytes_or_zeros<16>(raw + pixel_bytes * static_cast<std::uint32_t>(quad * 4 + i), pixel + i * w.in_channels,
                                        present && column + i < w.input[2]);
        }
      }
    }
  }
  /// Once the calling thread's copies are there.
  __device__ void transpose(const RowRing& ring, const RowTiles& w) const {
#pragma unroll 1
    for (int first = first_row(ring); first < input_rows(w); first += w.lines) {
      const bool any = first + line < input_rows(w);
      const std::uint32_t slot = ring.slot(w, any ? first + line : 0);
      cuda::WideVector<float> pixels[most_quads][4];
#pragma unroll
      for (int k = 0; k < most_quads; ++k) {
        const int quad = place + k * Stager::together;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t raw = slot + static_cast<std::uint32_t>(from) + pixel_bytes * static_cast<std::uint32_t>(quad * 4 + i);
          if (any && quad * 4 < w.columns) pixels[k][i] = cuda::load_shared<float>(raw);
        }
      }
      asm volatile("bar.sync 1, %0;" ::"n"(RowTiles::stagers) : "memory");
#pragma unroll
      for (int k = 0; k < most_quads; ++k) {
        const int quad = place + k * Stager::together;
        const std::uint32_t address = slot + static_cast<std::uint32_t>(to + quad * (warpgroup::group_rows * warpgroup::chunk_bytes));
        if (any && quad * 4 < w.columns) store(address, pixels[k]);
      }
    }
  }

 private:
  static constexpr std::uint32_t pixel_bytes = RowTiles::channels * sizeof(float);

  __device__ static int first_row(const RowRing& ring) { return ring.fresh ? 0 : RowTiles::side - 1; }
  __device__ static int input_rows(const RowTiles& w) { return w.rows + RowTiles::side - 1; }
  __device__ static void store(std::uint32_t to, const cuda::WideVector<float> (&pixels)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const cuda::WideVector<float> channel = {pixels[0][k], pixels[1][k], pixels[2][k], pixels[3][k]};
      cuda::store_shared(to + static_cast<std::uint32_t>(k * warpgroup::chunk_bytes), tensor_cores::Product<float>::rounded(channel));
    }
  }
};

}  // namespace frit::ops
