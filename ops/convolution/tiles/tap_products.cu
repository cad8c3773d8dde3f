// The gradient of a convolution's weight as a product of matrices on tensor cores,
//   weight gradient (k, tap, c) = sum over pixels p of gradient (p, k) * input (p + tap, c),
// for few enough channels and taps that a block holds all of it.

#include <algorithm>
#include <utility>

#include "frit/core/convert.h"
#include "frit/core/cuda/device.h"
#include "frit/core/cuda/reduce.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/convolution/tiles/tap_tiles.cuh"
#include "frit/ops/cuda/async_copy.cuh"
#include "frit/ops/cuda/sum_partials.cuh"
#include "frit/ops/cuda/tensor_cores.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"

namespace frit::ops {
namespace {

constexpr int blocks_wanted = 2;  // to a multiprocessor

/// Copies the input's pixels that a tile and its taps take to shared memory, zeros for those outside of the image.
template <class Stored, bool doubled>
class StagedInput {
 public:
  static constexpr int held = TapTiles::held;
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

/// Copies the gradient to shared memory. A thread has 16 bytes of some pixels, always of the same channels.
template <class Stored>
class StagedGradient {
 public:
  static constexpr int width = cuda::vector_width<Stored>, held = TapTiles::held;
  using Product = tensor_cores::Product<Stored>;

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

  __device__ void transform(std::uint32_t rows) const {
    if constexpr (Product::rounds) {
#pragma unroll
      for (int i = 0; i < held; ++i) {
        if (!never_[i]) cuda::store_shared<Stored>(address(rows, i), Product::rounded(cuda::load_shared<Stored>(address(rows, i))));
      }
    }
  }

 private:
  __device__ std::uint32_t address(std::uint32_t rows, int i) const {
    return rows + static_cast<std::uint32_t>((pixel_ + i * tiles_.further_pixels) * tiles_.gradient_step + channel_) * sizeof(Stored);
  }
  __device__ int row_of(int pixel) const { return pixel >> tiles_.log_width; }
  __device__ int column_of(int pixel) const { return pixel & ((1 << tiles_.log_width) - 1); }

  const Stored* gradient_;
  const TapTiles& tiles_;
  int pixel_, channel_, from_;
  bool never_[held];  ///< in no tile
};

/// One block some tiles of some samples; its warps share out the result and, where that is small, the pixels. Reads the gradient once and
/// the input once but for the cache. Deterministic.
template <class Stored, int columns, bool doubled>
__global__ void __launch_bounds__(TapTiles::threads, blocks_wanted)
    multiply_taps(float* partials /* (blocks, K, columns) */, const Stored* gradient, const Stored* input,
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
  const StagedGradient<Stored> staged_gradient(gradient, tiles);
  const StagedInput<Stored, doubled> staged_input(input, tiles);
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
        staged_gradient.start(slot, place);
        staged_input.start(slot + tiles.gradient_bytes, place);
      }
      cuda::end_copy_group();
    };
#pragma unroll
    for (int i = 0; i < ahead; ++i) start(places[i], first_slot + i * tiles.tile_bytes, first + i * step);
    std::uint32_t slot = first_slot, free_slot = first_slot + ahead * tiles.tile_bytes;
    for (int number = first; number < tiles.count; number += step) {
      cuda::wait_for_copy_groups<ahead - 1>();
      staged_gradient.transform(slot);
      staged_input.transform(slot + tiles.gradient_bytes);
      __syncthreads();  // the tile is there, and the one before it was used
      start(places[ahead], free_slot, number + ahead * step);
#pragma unroll
      for (int i = 0; i < ahead; ++i) places[i] = places[i + 1];
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
  cuda::wait_for_copies();
  // The warps with other pixels add their sums, one after the other.
  const int row_columns = tiles.row_columns(), count = tiles.outputs * row_columns;
  float* const own = partials + static_cast<std::int64_t>(blockIdx.y * gridDim.x + blockIdx.x) * count;
  put_partials(own, reinterpret_cast<float*>(memory), count, tiles.pixel_warps, [&](int turn, float* total) {
    if (turn != pixel_warp) return;
    float* const first = total + channel * row_columns + column_warp * columns * tensor_cores::columns;
#pragma unroll
    for (int j = 0; j < columns; ++j) {
#pragma unroll
      for (int i = 0; i < tensor_cores::held; ++i) {
        first[Product::row_of(i, lane) * row_columns + j * tensor_cores::columns + Product::column_of(i, lane)] += sums[j][i];
      }
    }
  });
}

/// Where the sums of multiply_taps go.
struct TapResult {
  int items, columns, group, channels, taps, rows;  ///< columns: with those that mean nothing; taps: along a row; rows: of taps
  WeightSteps steps;

  TapResult(const TapTiles& tiles, const Tensor& weight)
      : items(tiles.outputs * tiles.row_columns()),
        columns(tiles.row_columns()),
        group(tiles.group),
        channels(tiles.channels),
        taps(tiles.kernel[2]),
        rows(tiles.kernel[0] * tiles.kernel[1]),
        steps(weight) {}
  std::int64_t slab_step() const { return steps.tap * rows * taps; }

  /// -1 for sums that mean nothing.
  __device__ std::int64_t operator()(int item) const {
    const int output = item / columns, column = item - output * columns, block = column / tensor_cores::columns, row = block / group;
    const int element = (block - row * group) * tensor_cores::columns + column % tensor_cores::columns, tap = element / channels;
    if (row >= rows || tap >= taps) return -1;
    return output * steps.row + (element - tap * channels) * steps.channel + (row * taps + tap) * steps.tap;
  }
};

/// How a call is computed: its kernel in so many slabs of its depth, one after the other, each in such tiles.
struct Slabs {
  TapTiles tiles;
  int count = 1;

  TapTiles of(int slab) const {
    TapTiles own = tiles;
    if (count > 1) own.padding[0] -= slab;
    return own;
  }
};

/// Of a call that is one for tensor cores with few channels and more than one tap: whole if that fits as it is; stretched, or in slabs,
/// where windows of taps do not take it.
std::optional<Slabs> slabs_of(const ConvolutionCall& call) {
  const auto& [input, weight, output, bias, others] = call.operands;
  const bool fits = call.kind == cudnn::ConvolutionKind::weight_gradient && on_tensor_cores(weight.dtype()) &&
                    product(call.geometry.kernel) > 1 && lies_in_channels(input) && lies_in_channels(output);
  if (!fits) return std::nullopt;
  ConvolutionGeometry geometry = call.geometry;
  const std::size_t bytes = size_of(weight.dtype());
  const auto whole = TapTiles::of_weight_gradient(geometry, bytes);
  if (whole && !whole->stretched) return Slabs{*whole};
  if (window_product(call)) return std::nullopt;
  if (whole) return Slabs{*whole};
  const auto depth = static_cast<int>(std::exchange(geometry.kernel[0], 1));
  const auto slab = depth > 1 ? TapTiles::of_weight_gradient(geometry, bytes) : std::nullopt;
  return slab ? std::optional(Slabs{*slab, depth}) : std::nullopt;
}

/// Blocks that share out tiles: along x those that share a sample, along y samples.
dim3 grid_of(const ConvolutionCall& call, const TapTiles& tiles) {
  const std::int64_t blocks = cuda::properties(call.operands.weight.device().index).multiprocessors * blocks_wanted;
  const std::int64_t rows = std::clamp<std::int64_t>(tiles.samples, 1, blocks);
  return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(blocks / rows, 1, tiles.count)), static_cast<unsigned>(rows));
}

void run(const ConvolutionCall& call, const Slabs& slabs, std::span<std::byte> scratch, CUstream_st* stream) {
  const TapTiles& tiles = slabs.tiles;
  const dim3 grid = grid_of(call, tiles);
  const auto& [input, weight, output, bias, others] = call.operands;
  dispatch_f32_and_halves(weight.dtype(), [&]<class Stored>() {
    auto* const partials = reinterpret_cast<float*>(scratch.data());
    const auto run = [&]<int columns, bool doubled>() {
      const cuda::LaunchShape shape{grid, dim3(TapTiles::threads), static_cast<std::size_t>(tiles.shared_bytes)};
      const TapResult result(tiles, weight);
      for (int slab = 0; slab < slabs.count; ++slab) {
        cuda::launch(multiply_taps<Stored, columns, doubled>, shape, stream, partials, output.data<Stored>(), input.data<Stored>(),
                     slabs.of(slab));
        sum_partials(weight.data<Stored>() + slab * result.slab_step(), partials, static_cast<int>(grid.x * grid.y), result.items, result,
                     stream);
      }
    };
    const auto run_columns = [&]<bool doubled>() {
      constexpr auto& columns = TapTiles::columns_of_a_warp;
      if (tiles.warp_columns == columns[0]) return run.template operator()<columns[0], doubled>();
      if (tiles.warp_columns == columns[1]) return run.template operator()<columns[1], doubled>();
      run.template operator()<columns[2], doubled>();
    };
    if constexpr (is_half_type<Stored>) {
      if (tiles.doubled()) return run_columns.template operator()<true>();
    }
    run_columns.template operator()<false>();
  });
}

}  // namespace

std::optional<OwnKernel> tap_product(const ConvolutionCall& call) {
  const auto slabs = slabs_of(call);
  if (!slabs) return std::nullopt;
  const dim3 grid = grid_of(call, slabs->tiles);
  const auto sums = static_cast<std::size_t>(slabs->tiles.outputs * slabs->tiles.row_columns());
  return OwnKernel{"taps on tensor cores", static_cast<std::size_t>(grid.x) * grid.y * sums * sizeof(float),
                   [&call, slabs = *slabs](std::span<std::byte> scratch, CUstream_st* stream) { run(call, slabs, scratch, stream); }};
}

}  // namespace frit::ops
