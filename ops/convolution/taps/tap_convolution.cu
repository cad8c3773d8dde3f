// Convolutions with few channels and taps on tensor cores. A warp keeps its part of the weight in registers; tiles of the input pass
// through shared memory, where each is read by all taps.

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/taps/tap_convolution.h"
#include "frit/ops/convolution/taps/tap_warp_cuda.h"

namespace frit::ops {
namespace {

constexpr int threads = 256, warps = threads / cuda::warp_size;
/// Blocks of cells at a time.
constexpr int cell_blocks = 4;

/// To a multiprocessor, as registers allow.
template <class Stored>
constexpr int blocks_wanted(int warp_rows) {
  return is_half_type<Stored> && warp_rows == 16 ? 3 : 2;
}
/// Bytes that so many blocks to a multiprocessor leave each; the device takes 1024 of them.
std::size_t shared_room(int blocks, int device) {
  return (cuda::properties(device).shared_per_block + 1024) / static_cast<std::size_t>(blocks) - 1024;
}

/// How the work is cut into tiles of the output.
template <int loads>
struct TapConvolution : StagedTaps {
  int log_row_groups;                                  ///< of the weight
  int tile[3];                                         ///< cells of a tile
  cuda::Divisor column_tiles, row_tiles, depth_tiles;  ///< along each axis
  cuda::Divisor tile_rows;
  int count;  ///< of tiles
  TapVectors<loads> vectors;

  /// `room`: bytes of shared memory.
  TapConvolution(const StagedTaps& staged_taps, std::int64_t outputs, int warp_rows, std::size_t element_bytes, std::size_t room)
      : StagedTaps(staged_taps),
        log_row_groups(std::countr_zero(static_cast<unsigned>(outputs / warp_rows))),
        vectors(lay_out_tiles(element_bytes, room)) {
    column_tiles = tiles_along(2), row_tiles = tiles_along(1), depth_tiles = tiles_along(0);
    tile_rows = cuda::Divisor(tile[1]);
    count = static_cast<int>(planes.samples) * column_tiles.value<int>() * row_tiles.value<int>() * depth_tiles.value<int>();
  }

 private:
  cuda::Divisor tiles_along(int axis) const { return cuda::Divisor((cells[axis] + tile[axis] - 1) / tile[axis]); }
  /// As deep and high as there is room.
  const StagedTaps& lay_out_tiles(std::size_t element_bytes, std::size_t room) {
    constexpr int most_depths = 5, most_rows = 32, columns = cell_blocks * TapWarp<float, loads, 16>::cells;
    int depths = std::min(cells[0], most_depths), rows = std::min(cells[1], most_rows);
    const auto even = [](int size, int most) { return (size + (size + most - 1) / most - 1) / ((size + most - 1) / most); };
    do {
      tile[0] = even(cells[0], depths), tile[1] = even(cells[1], rows), tile[2] = columns;
      lay_out(tile[0], tile[1], tile[2], element_bytes, TapVectors<loads>::row_bank(*this), TapVectors<loads>::depth_bank(*this));
    } while (staged_bytes > room && (depths > 1 ? --depths : --rows) > 0);
    return *this;
  }
};

struct TapWeight {
  std::int64_t row_step, channel_step, tap_step;
};

/// A block some tiles, of which each warp has some rows of cells. Reads the input once but for the cache and writes each output once.
/// Deterministic.
template <class Stored, class Image, int loads, int warp_rows>
__global__ void __launch_bounds__(threads, blocks_wanted<Stored>(warp_rows))
    convolve_taps(Stored* output /* (N, pixels, K) */, const Image* input /* (N, C, pixels) or (N, pixels, C) */,
                  const Stored* weight /* (K, C, taps) */, TapWeight steps, const Stored* bias /* or null */,
                  const __grid_constant__ TapConvolution<loads> tiles) {
  using Warp = TapWarp<Stored, loads, warp_rows>;
  constexpr int width = StagedTaps::width;
  extern __shared__ __align__(16) std::byte memory[];
  auto* const staged = reinterpret_cast<Stored*>(memory);
  const int number_of_warp = static_cast<int>(threadIdx.x) / cuda::warp_size, share = number_of_warp >> tiles.log_row_groups;
  const int shares = warps >> tiles.log_row_groups, outputs = warp_rows << tiles.log_row_groups;
  const int last_tap = tiles.taps[0] * tiles.taps[1] * tiles.taps[2] - 1;
  const int first_row = (number_of_warp & ((1 << tiles.log_row_groups) - 1)) * warp_rows;
  const Warp warp(first_row, tiles.vectors, tiles, [&](int row, int, int vector) {
    const int tap = vector / tiles.tap_vectors, first = (vector - tap * tiles.tap_vectors) * width;
    cuda::Vector<float, width> elements;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const std::int64_t place = row * steps.row_step + (first + j) * steps.channel_step + (last_tap - tap) * steps.tap_step;
      elements[j] = vector >= 0 && first + j < tiles.planes.channels ? convert<float>(weight[place]) : 0;
    }
    return StagedTaps::words<Stored>(elements);
  });
  const int channel = warp.thread_row(Warp::lane() / 4);
  float start[Warp::thread_rows];
#pragma unroll
  for (int i = 0; i < Warp::thread_rows; ++i) start[i] = bias == nullptr ? 0.0f : convert<float>(bias[channel + i]);
  for (int number = static_cast<int>(blockIdx.x); number < tiles.count; number += static_cast<int>(gridDim.x)) {
    const auto tile = static_cast<std::uint32_t>(number), line = tiles.column_tiles.quotient(tile), plane = tiles.row_tiles.quotient(line),
               sample = tiles.depth_tiles.quotient(plane);
    const int column = static_cast<int>(tiles.column_tiles.remainder(tile, line)) * tiles.tile[2] + 2 * Warp::own(),
              row = static_cast<int>(tiles.row_tiles.remainder(line, plane)) * tiles.tile[1],
              depth = static_cast<int>(tiles.depth_tiles.remainder(plane, sample)) * tiles.tile[0];
    __syncthreads();  // the tile before was used
    tiles.template stage<threads>(staged, input, sample, depth, row, column - 2 * Warp::own());
    __syncthreads();
#pragma unroll 1
    for (int item = share; item < tiles.tile[0] * tiles.tile[1]; item += shares) {
      const auto d = static_cast<int>(tiles.tile_rows.quotient(static_cast<std::uint32_t>(item))), h = item - d * tiles.tile[1];
      if (depth + d >= tiles.cells[0] || row + h >= tiles.cells[1]) continue;
      typename Warp::Sums sums[cell_blocks];
      warp.convolve(sums, start, staged + d * tiles.depth_step + h * tiles.row_step);
      const std::int64_t line_of_cells = (static_cast<std::int64_t>(sample) * tiles.cells[0] + depth + d) * tiles.cells[1] + row + h;
      Stored* const to = output + (line_of_cells * tiles.cells[2] + column) * outputs + channel;
#pragma unroll
      for (int b = 0; b < cell_blocks; ++b) {
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          if (column + b * Warp::cells + v >= tiles.cells[2]) continue;
          cuda::Vector<Stored, Warp::thread_rows> elements;
#pragma unroll
          for (int i = 0; i < Warp::thread_rows; ++i) elements[i] = convert<Stored>(sums[b][i / 2][i % 2 * 2 + v]);
          cuda::store_vector(to + (b * Warp::cells + v) * outputs, elements);
        }
      }
    }
  }
}

/// Calls body.operator()<loads, warp_rows>() for a convolution that there is a kernel for, or says that there is none: where the weight
/// does not fit the registers, cuDNN is faster.
template <class Body>
bool dispatch_taps(const ConvolutionGeometry& g, DType dtype, const Body& body) {
  const auto is = [&](std::int64_t channels, const ImageAxes& kernel) {
    return round_up(g.in_channels, StagedTaps::width) == channels && g.kernel == kernel;
  };
  const auto rows = [&](int warp_rows) {
    const auto groups = static_cast<std::uint64_t>(g.out_channels / warp_rows);
    return g.out_channels % warp_rows == 0 && std::has_single_bit(groups) && groups <= warps;
  };
  if (is(4, {3, 3, 3}) && rows(16)) {
    body.template operator()<7, 16>();
  } else if (is(4, {1, 3, 3}) && rows(32)) {
    body.template operator()<3, 32>();
  } else if (is_half(dtype) && (is(8, {1, 3, 3}) || is(24, {1, 1, 3})) && rows(32)) {
    body.template operator()<5, 32>();
  } else {
    return false;
  }
  return true;
}

struct Nothing {
  template <int loads, int warp_rows>
  void operator()() const {}
};

bool all_one(const ImageAxes& axes) { return axes == ImageAxes{1, 1, 1}; }

/// As the taps that packed channels would have.
StagedTaps staged_taps(const ConvolutionCall& call) {
  const ConvolutionGeometry& g = call.geometry;
  const auto axes = static_cast<std::size_t>(call.operands.input.rank() - 2);
  PackTapsAttributes pack{.channels = round_up(g.in_channels, StagedTaps::width)};
  for (std::size_t axis = 3 - axes; axis < 3; ++axis) {
    pack.taps.push_back(g.kernel[axis]);
    pack.shift.push_back(g.kernel[axis] - 1 - g.padding[axis]);
    pack.cells.push_back(g.output[axis]);
  }
  return {call.operands.input, product(g.kernel) * pack.channels, pack};
}

}  // namespace

bool is_tap_convolution(const ConvolutionCall& call) {
  const ConvolutionGeometry& g = call.geometry;
  const auto& [input, weight, output, bias] = call.operands;
  const bool dtypes = on_tensor_cores(weight.dtype()) && takes_image(input.dtype(), weight.dtype());
  const bool usual = call.kind == cudnn::ConvolutionKind::forward && output.is_contiguous(Layout::channels_last) &&
                     cuda::aligned_for_vectors(output.raw());
  const bool plain = g.groups == 1 && all_one(g.stride) && all_one(g.dilation) && product(g.output) > 0 && g.batch > 0;
  const bool fits = product(g.input) * g.in_channels <= INT32_MAX && product(g.output) * g.batch <= INT32_MAX;
  bool inside = true;
  for (std::size_t axis = 0; axis < 3; ++axis) inside = inside && g.padding[axis] < g.kernel[axis];
  return dtypes && usual && plain && fits && inside && dispatch_taps(g, weight.dtype(), Nothing());
}

void tap_convolution(const ConvolutionCall& call, CUstream_st* stream) {
  const auto& [input, weight, output, bias] = call.operands;
  const ConvolutionGeometry& g = call.geometry;
  const std::int64_t taps = product(g.kernel);
  const bool channels_last = !weight.is_contiguous();
  const TapWeight steps{g.in_channels * taps, channels_last ? 1 : taps, channels_last ? g.in_channels : 1};
  dispatch_weight_and_image(weight.dtype(), input.dtype(), [&]<class Stored, class Image>() {
    dispatch_taps(g, weight.dtype(), [&]<int loads, int warp_rows>() {
      if constexpr (is_half_type<Stored> || loads != 5) {
        constexpr int wanted = blocks_wanted<Stored>(warp_rows);
        const int device = weight.device().index;
        const TapConvolution<loads> tiles(staged_taps(call), g.out_channels, warp_rows, sizeof(Stored), shared_room(wanted, device));
        const unsigned blocks = tile_blocks(tiles.count, wanted, device);
        cuda::launch(convolve_taps<Stored, Image, loads, warp_rows>, {dim3(blocks), dim3(threads), tiles.staged_bytes}, stream,
                     output.data<Stored>(), input.data<Image>(), weight.data<Stored>(), steps, data_or_null<Stored>(bias), tiles);
      }
    });
  });
}

}  // namespace frit::ops
