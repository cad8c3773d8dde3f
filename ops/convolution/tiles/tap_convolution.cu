// Convolutions with few channels and taps on tensor cores. A warp keeps its part of the weight in registers; tiles of the input pass
// through shared memory, where each is read by all taps.

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/convolution/tiles/output_tiles.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"

namespace frit::ops {
namespace {

constexpr int threads = 256, warps = threads / cuda::warp_size;

/// To a multiprocessor, as registers allow.
template <class Stored>
constexpr int blocks_wanted(int warp_channels) {
  return is_half_type<Stored> && warp_channels == 16 ? 3 : 2;
}

template <int loads>
struct TapConvolution : OutputTiles<loads> {
  int log_channel_groups;  ///< of the output

  TapConvolution(const StagedTaps& taps, std::int64_t outputs, int warp_channels, std::size_t element_bytes, std::size_t room)
      : OutputTiles<loads>(taps, element_bytes, room),
        log_channel_groups(std::countr_zero(static_cast<unsigned>(outputs / warp_channels))) {}
};

/// A block some tiles, of which each warp has some rows of positions. Reads the input once but for the cache and writes each output once.
/// Deterministic.
template <class Stored, class Image, int loads, int warp_channels>
__global__ void __launch_bounds__(threads, blocks_wanted<Stored>(warp_channels))
    convolve_taps(Stored* output /* (N, pixels, K) */, const Image* input /* (N, C, pixels) or (N, pixels, C) */,
                  KernelWeight<Stored> weight, const Stored* bias /* or null */, const __grid_constant__ TapConvolution<loads> tiles) {
  using Warp = TapWarp<Stored, loads, warp_channels>;
  constexpr int line_blocks = TapConvolution<loads>::line_blocks;
  extern __shared__ __align__(16) std::byte memory[];
  auto* const staged = reinterpret_cast<Stored*>(memory);
  const int number_of_warp = static_cast<int>(threadIdx.x) / cuda::warp_size, share = number_of_warp >> tiles.log_channel_groups;
  const int shares = warps >> tiles.log_channel_groups, outputs = warp_channels << tiles.log_channel_groups;
  const int first_channel = (number_of_warp & ((1 << tiles.log_channel_groups) - 1)) * warp_channels;
  const Warp warp(first_channel, tiles.vectors, tiles,
                  [&](int out_channel, int, int vector) { return tiles.weights(weight, out_channel, vector); });
  const int channel = warp.thread_channel(Warp::lane() / 4);
  float start[Warp::thread_channels];
#pragma unroll
  for (int i = 0; i < Warp::thread_channels; ++i) start[i] = bias == nullptr ? 0.0f : convert<float>(bias[channel + i]);
  for (int number = static_cast<int>(blockIdx.x); number < tiles.count; number += static_cast<int>(gridDim.x)) {
    const OutputTile tile(tiles, number);
    __syncthreads();  // the tile before was used
    tiles.template stage<threads>(staged, input, tile.sample, tile.depth, tile.row, tile.column);
    __syncthreads();
    tiles.for_each_line(tile.depth, tile.row, tile.column, share, shares, [&](int depth, int row, int first, int offset) {
      typename Warp::Sums sums[line_blocks];
      warp.convolve(sums, start, staged + offset);
      const int column = first + 2 * Warp::own();
      const std::int64_t output_line = (static_cast<std::int64_t>(tile.sample) * tiles.output_size[0] + depth) * tiles.output_size[1] + row;
      Stored* const to = output + (output_line * tiles.output_size[2] + column) * outputs + channel;
#pragma unroll
      for (int b = 0; b < line_blocks; ++b) {
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          if (column + b * Warp::positions + v >= tiles.output_size[2]) continue;
          cuda::Vector<Stored, Warp::thread_channels> elements;
#pragma unroll
          for (int i = 0; i < Warp::thread_channels; ++i) elements[i] = convert<Stored>(sums[b][i / 2][i % 2 * 2 + v]);
          cuda::store_vector(to + (b * Warp::positions + v) * outputs, elements);
        }
      }
    });
  }
}

/// Calls body.operator()<loads, warp_channels>() for a convolution that there is a kernel for, or says that there is none: where the weight
/// does not fit the registers, cuDNN is faster.
template <class Body>
bool dispatch_taps(const ConvolutionGeometry& g, DType dtype, const Body& body) {
  const auto is = [&](std::int64_t channels, const ImageAxes& kernel) {
    return round_up(g.in_channels, StagedTaps::width) == channels && g.kernel == kernel;
  };
  const auto in_groups_of = [&](int warp_channels) {
    const auto groups = static_cast<std::uint64_t>(g.out_channels / warp_channels);
    return g.out_channels % warp_channels == 0 && std::has_single_bit(groups) && groups <= warps;
  };
  if (is(4, {3, 3, 3}) && in_groups_of(16)) {
    body.template operator()<7, 16>();
  } else if (is(4, {1, 3, 3}) && in_groups_of(32)) {
    body.template operator()<3, 32>();
  } else if (is_half(dtype) && (is(8, {1, 3, 3}) || is(24, {1, 1, 3})) && in_groups_of(32)) {
    body.template operator()<5, 32>();
  } else {
    return false;
  }
  return true;
}

struct Nothing {
  template <int loads, int warp_channels>
  void operator()() const {}
};

StagedTaps staged_taps(const ConvolutionCall& call) {
  const auto axes = static_cast<std::size_t>(call.operands.input.rank() - 2);
  return StagedTaps::of_convolution(call.operands.input, Dims(std::span(call.geometry.kernel).last(axes)),
                                    Dims(std::span(call.geometry.padding).last(axes)));
}

bool takes(const ConvolutionCall& call) {
  constexpr ImageAxes one = {1, 1, 1};
  const ConvolutionGeometry& g = call.geometry;
  const auto& [input, weight, output, bias, others] = call.operands;
  const bool dtypes = on_tensor_cores(weight.dtype()) && takes_image(input.dtype(), weight.dtype());
  const bool usual = call.kind == cudnn::ConvolutionKind::forward && lies_in_channels(output);
  const bool plain = g.groups == 1 && g.stride == one && g.dilation == one && product(g.output) > 0 && g.batch > 0;
  const bool fits = product(g.input) * g.in_channels <= INT32_MAX && product(g.output) * g.batch <= INT32_MAX;
  bool inside = true;
  for (std::size_t axis = 0; axis < 3; ++axis) inside = inside && g.padding[axis] < g.kernel[axis];
  return dtypes && usual && plain && fits && inside && dispatch_taps(g, weight.dtype(), Nothing());
}

void run(const ConvolutionCall& call, CUstream_st* stream) {
  const auto& [input, weight, output, bias, others] = call.operands;
  const ConvolutionGeometry& g = call.geometry;
  dispatch_weight_and_image(weight.dtype(), input.dtype(), [&]<class Stored, class Image>() {
    dispatch_taps(g, weight.dtype(), [&]<int loads, int warp_channels>() {
      if constexpr (is_half_type<Stored> || loads != 5) {
        constexpr int wanted = blocks_wanted<Stored>(warp_channels);
        const int device = weight.device().index;
        const TapConvolution<loads> tiles(staged_taps(call), g.out_channels, warp_channels, sizeof(Stored), shared_room(wanted, device));
        const unsigned blocks = tile_blocks(tiles.count, wanted, device);
        cuda::launch(convolve_taps<Stored, Image, loads, warp_channels>, {dim3(blocks), dim3(threads), tiles.staged_bytes}, stream,
                     output.data<Stored>(), input.data<Image>(), KernelWeight<Stored>(weight), data_or_null<Stored>(bias), tiles);
      }
    });
  });
}

}  // namespace

std::optional<OwnKernel> tap_convolution(const ConvolutionCall& call) {
  if (!takes(call)) return std::nullopt;
  return OwnKernel{"taps on tensor cores", 0, [&call](std::span<std::byte>, CUstream_st* stream) { run(call, stream); }};
}

}  // namespace frit::ops
