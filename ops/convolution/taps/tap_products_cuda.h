#pragma once

#include "frit/core/convert.h"
#include "frit/core/cuda/launch.h"
#include "frit/core/cuda/reduce.h"
#include "frit/core/cuda/vector.h"
#include "frit/ops/convolution/taps/tap_tiles_cuda.h"

// The gradient of a convolution's weight as a product of matrices on tensor cores,
//   weight gradient (k, tap, c) = sum over pixels p of gradient (p, k) * input (p + tap, c),
// for few enough channels and taps that a block holds all of it. The gradient comes from a source, which may compute it on the spot: then
// it is never stored. For each of a block's tiles a thread calls, of its source,
//   start(rows, tile)      starts copies to the thread's part of the tile in shared memory
//   prepare(tile)          while the tile before is worked on: reads what else it takes
//   transform(rows, tile)  makes the gradient of what was copied, where it lies
// where `rows` is the tile's address: a pixel's channels side by side, and room behind them that spreads pixels over the banks. For each
// sample it calls begin(sample) before, and at last end().

namespace frit::ops {

/// Copies the gradient, or what it is made from, to shared memory. A thread has 16 bytes of some pixels, always of the same channels.
template <class Stored>
class StagedGradient {
 public:
  static constexpr int width = cuda::vector_width<Stored>, held = TapTiles::held;

  __device__ StagedGradient(const Stored* gradient, const TapTiles& tiles) : gradient_(gradient), tiles_(tiles) {
    const int vectors = tiles.outputs / width;
    pixel_ = static_cast<int>(threadIdx.x) / vectors;
    channel_ = (static_cast<int>(threadIdx.x) - pixel_ * vectors) * width;
    from_ = (row_of(pixel_) * tiles.size[2] + column_of(pixel_)) * tiles.outputs + channel_;
#pragma unroll
    for (int i = 0; i < held; ++i) {
      const int pixel = pixel_ + i * tiles.further_pixels;
      never_[i] = pixel >= tiles.pixels() || (tiles.one_column && column_of(pixel) >= tiles.size[2]);
    }
  }

  __device__ std::uint32_t address(std::uint32_t rows, int i) const {
    return rows + static_cast<std::uint32_t>((pixel_ + i * tiles_.further_pixels) * tiles_.gradient_step + channel_) * sizeof(Stored);
  }
  /// Whether the thread's i-th vector is in no tile.
  __device__ bool never(int i) const { return never_[i]; }

  __device__ void start(std::uint32_t rows, const TilePlace& tile) const {
    const std::int64_t first = ((tile.sample * tiles_.size[0] + tile.depth) * tiles_.size[1] + tile.row) * tiles_.size[2] + tile.column;
    const Stored* const from = gradient_ + first * tiles_.outputs + from_;
    const bool whole =
        tile.row + tiles_.rows <= tiles_.size[1] && (tiles_.one_column || tile.column + (1 << tiles_.log_width) <= tiles_.size[2]);
    if (whole) {
#pragma unroll
      for (int i = 0; i < held; ++i) {
        if (!never_[i]) cuda::copy_bytes<16>(address(rows, i), from + tiles_.further_from[i]);
      }
      return;
    }
#pragma unroll 1
    for (int i = 0; i < held; ++i) {
      const int pixel = pixel_ + i * tiles_.further_pixels;
      if (pixel >= tiles_.pixels()) continue;
      const bool present = tile.row + row_of(pixel) < tiles_.size[1] && tile.column + column_of(pixel) < tiles_.size[2];
      cuda::copy_bytes_or_zeros<16>(address(rows, i), present ? from + tiles_.further_from[i] : gradient_, present);
    }
  }

 private:
  __device__ int row_of(int pixel) const { return pixel >> tiles_.log_width; }
  __device__ int column_of(int pixel) const { return pixel & ((1 << tiles_.log_width) - 1); }

  const Stored* gradient_;
  const TapTiles& tiles_;
  int pixel_, channel_, from_;
  bool never_[held];
};

/// One block some tiles of some samples; its warps share out the result and, where that is small, the pixels. Reads what the source reads
/// and the input once but for the cache. Deterministic.
template <class Stored, class Source, int columns, bool doubled, int input_held>
__global__ void __launch_bounds__(TapTiles::threads, Source::blocks_wanted)
    multiply_taps(float* partials /* (blocks, K, columns) */, const __grid_constant__ typename Source::Arguments given, const Stored* input,
                  const __grid_constant__ TapTiles tiles) {
  using Product = tensor_cores::Product<Stored>;
  constexpr int ahead = TapTiles::ahead, slots = ahead + 1, bytes = sizeof(Stored);
  extern __shared__ __align__(16) std::byte memory[];
  // What is never copied has to be finite.
  for (int i = static_cast<int>(threadIdx.x); i < slots * tiles.tile_bytes / 16; i += TapTiles::threads) {
    reinterpret_cast<uint4*>(memory)[i] = uint4{};
  }
  __syncthreads();
  const std::uint32_t first_slot = cuda::shared_address(memory);
  const StagedInput<Stored, doubled, input_held> staged_input(input, tiles);
  Source source(given, tiles);
  const int warp = static_cast<int>(threadIdx.x) / cuda::warp_size, lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const int channel = warp % tiles.channel_warps * tensor_cores::rows, column_warp = warp / tiles.channel_warps % tiles.column_warps,
            pixel_warp = warp / (tiles.channel_warps * tiles.column_warps), steps = tiles.pixels() / Product::depth;
  const int left_offset = (channel + Product::left_offset(tiles.gradient_step, lane)) * bytes,
            right_offset = Product::right_offset(tiles.input_step, tiles.block_step, lane);
  const int left_step = tiles.gradient_step * bytes, right_step = tiles.input_step * bytes;
  std::uint32_t offset[columns];
#pragma unroll
  for (int j = 0; j < columns; ++j) {
    offset[j] = static_cast<std::uint32_t>(tiles.gradient_bytes + (tiles.column_offset(column_warp * columns + j) + right_offset) * bytes);
  }
  tensor_cores::Sums sums[columns] = {};
  const int step = static_cast<int>(gridDim.x), first = static_cast<int>(blockIdx.x);
  for (std::int64_t sample = blockIdx.y; sample < tiles.samples; sample += gridDim.y) {
    TilePlace places[slots];  // of this tile and of those that are on their way
    const auto start = [&](TilePlace& place, std::uint32_t slot, int number) {
      if (number < tiles.count) {
        place = tiles.place(sample, number);
        source.start(slot, place);
        staged_input.start(slot + tiles.gradient_bytes, place);
      }
      cuda::end_copy_group();
    };
    source.begin(sample);
#pragma unroll
    for (int i = 0; i < ahead; ++i) start(places[i], first_slot + i * tiles.tile_bytes, first + i * step);
    if (first < tiles.count) source.prepare(places[0]);
    std::uint32_t slot = first_slot, free_slot = first_slot + ahead * tiles.tile_bytes;
    for (int number = first; number < tiles.count; number += step) {
      cuda::wait_for_copy_groups<ahead - 1>();
      source.transform(slot, places[0]);
      staged_input.transform(slot + tiles.gradient_bytes);
      __syncthreads();  // the tile is there, and the one before it was used
      start(places[ahead], free_slot, number + ahead * step);
#pragma unroll
      for (int i = 0; i < ahead; ++i) places[i] = places[i + 1];
      if (number + step < tiles.count) source.prepare(places[0]);
#pragma unroll 1
      for (int k = pixel_warp; k < steps; k += tiles.pixel_warps) {
        const int pixel = k * Product::depth, row = pixel >> tiles.log_width;
        const auto left = Product::left(slot + left_offset + pixel * left_step, 4 * left_step);
        // A row of the input is longer than one of the gradient.
        const std::uint32_t right = slot + (pixel + row * (tiles.input_width - (1 << tiles.log_width))) * right_step;
#pragma unroll
        for (int j = 0; j < columns; ++j) Product::multiply(sums[j], left, Product::right(right + offset[j], 4 * right_step));
      }
      free_slot = slot;
      slot = slot == first_slot + ahead * tiles.tile_bytes ? first_slot : slot + tiles.tile_bytes;
    }
    __syncthreads();
  }
  source.end();
  cuda::wait_for_copies();
  // The warps with other pixels add their sums, one after the other.
  auto* const total = reinterpret_cast<float*>(memory);
  const int row_columns = tiles.row_columns();
  for (int turn = 0; turn < tiles.pixel_warps; ++turn) {
    __syncthreads();
    if (turn != pixel_warp) continue;
#pragma unroll
    for (int j = 0; j < columns; ++j) {
#pragma unroll
      for (int i = 0; i < tensor_cores::held; ++i) {
        float& sum = total[(channel + Product::row_of(i, lane)) * row_columns + (column_warp * columns + j) * tensor_cores::columns +
                           Product::column_of(i, lane)];
        sum = turn == 0 ? sums[j][i] : sum + sums[j][i];
      }
    }
  }
  __syncthreads();
  const int count = tiles.outputs * row_columns;
  float* const own = partials + static_cast<std::int64_t>(blockIdx.y * gridDim.x + blockIdx.x) * count;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += TapTiles::threads) own[i] = total[i];
}

/// Where the sums of multiply_taps go.
struct TapResult {
  int items, columns, group, channels, taps, rows;  ///< columns: with those that mean nothing; taps: along a row; rows: of taps
  std::int64_t row_step, channel_step, tap_step;

  TapResult(const TapTiles& tiles, const Tensor& weight)
      : items(tiles.outputs * tiles.row_columns()),
        columns(tiles.row_columns()),
        group(tiles.group),
        channels(tiles.channels),
        taps(tiles.kernel[2]),
        rows(tiles.kernel[0] * tiles.kernel[1]) {
    const bool channels_last = !weight.is_contiguous();
    row_step = static_cast<std::int64_t>(channels) * rows * taps;
    channel_step = channels_last ? 1 : rows * taps;
    tap_step = channels_last ? channels : 1;
  }

  /// -1 for sums that mean nothing.
  __device__ std::int64_t place(int item) const {
    const int output = item / columns, column = item - output * columns, block = column / tensor_cores::columns, row = block / group;
    const int element = (block - row * group) * tensor_cores::columns + column % tensor_cores::columns, tap = element / channels;
    if (row >= rows || tap >= taps) return -1;
    return output * row_step + (element - tap * channels) * channel_step + (row * taps + tap) * tap_step;
  }
};

inline constexpr int sum_parts = 8, sum_columns = 32;

/// A row of threads a part of the blocks, a column a sum. Deterministic.
template <class Stored>
__global__ void __launch_bounds__(sum_parts* sum_columns)
    sum_partials(Stored* weight_gradient /* (K, C, taps), by its steps */, const float* partials /* (blocks, K, columns) */, int blocks,
                 TapResult result) {
  __shared__ float shared[sum_parts][sum_columns];
  const int item = static_cast<int>(blockIdx.x * sum_columns + threadIdx.x), part = static_cast<int>(threadIdx.y);
  float sum = 0;
  if (item < result.items) {
#pragma unroll 8
    for (int block = part; block < blocks; block += sum_parts) sum += partials[static_cast<std::int64_t>(block) * result.items + item];
  }
  shared[part][threadIdx.x] = sum;
  __syncthreads();
  if (part != 0 || item >= result.items) return;
  for (int other = 1; other < sum_parts; ++other) sum += shared[other][threadIdx.x];
  const std::int64_t place = result.place(item);
  if (place >= 0) weight_gradient[place] = convert<Stored>(sum);
}

inline std::size_t partial_bytes(const TapTiles& tiles, const dim3& grid) {
  return static_cast<std::size_t>(grid.x) * grid.y * static_cast<std::size_t>(tiles.outputs * tiles.row_columns()) * sizeof(float);
}

/// `partials` holds partial_bytes.
template <class Stored, class Source, int columns, bool doubled, int input_held>
void run_tap_products(const Tensor& weight_gradient, float* partials, const typename Source::Arguments& source, const Tensor& input,
                      const TapTiles& tiles, const dim3& grid, CUstream_st* stream) {
  const TapResult result(tiles, weight_gradient);
  cuda::launch(multiply_taps<Stored, Source, columns, doubled, input_held>,
               {grid, dim3(TapTiles::threads), static_cast<std::size_t>(tiles.shared_bytes)}, stream, partials, source,
               input.data<Stored>(), tiles);
  cuda::launch(sum_partials<Stored>,
               {dim3(static_cast<unsigned>((result.items + sum_columns - 1) / sum_columns)), dim3(sum_columns, sum_parts)}, stream,
               weight_gradient.data<Stored>(), partials, static_cast<int>(grid.x * grid.y), result);
}

}  // namespace frit::ops
