// Convolutions with few channels and taps on tensor cores. A warp keeps its part of the weight in registers; tiles of the input pass
// through shared memory, where each is read by all taps.

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/taps/tap_convolution.h"
#include "frit/ops/convolution/taps/tap_tiles_cuda.h"
#include "frit/ops/fused/chain_cuda.h"

namespace frit::ops {
namespace {

constexpr int blocks_wanted = 2;  // to a multiprocessor

/// The taps of a convolution: `rows` rows of `length` taps of `channels` channels.
template <int channel_count, int tap_length, int tap_rows>
struct Taps {
  static constexpr int channels = channel_count, length = tap_length, rows = tap_rows, row_products = channels * length;
};

/// How the products of a row of taps are dealt out to instructions of `depth` products, of which the last may have half.
template <class Stored, class T>
struct Steps {
  static constexpr bool halves = is_half_type<Stored>;
  /// Two pixels' channels lie side by side twice, so that they are 16 bytes.
  static constexpr bool doubled = halves && T::channels == 4;
  static constexpr int depth = tensor_cores::Product<Stored>::depth, half = depth / 2;
  static constexpr int whole = T::row_products / depth, rest = T::row_products - whole * depth, count = whole + (rest > 0);

  /// Of the elements of the j-th half of a step, from the pixel's first; a padded pixel is `step` elements long.
  __device__ static constexpr int offset(int j, int step) {
    if (doubled) return j * 2 * step;
    const int product = j * half;
    return product / T::channels * step + product % T::channels;
  }
};

struct TapWeight {
  std::int64_t row_step, channel_step, tap_step;
};

/// A thread's elements of 16 pixels in a step, whose first half is at `address` and whose second is `further` bytes behind.
template <class Stored>
__device__ void load_pixels(std::uint32_t (&a)[4], std::uint32_t address, std::uint32_t eight_pixels, std::uint32_t further, int lane) {
  if constexpr (is_half_type<Stored>) {
    const std::uint32_t own = address + (lane >= 16 ? further : 0);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(own)
                 : "memory");
  } else {
    const auto load = [](std::uint32_t from) {
      std::uint32_t word;
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
      return word;
    };
    a[0] = load(address);
    a[1] = load(address + eight_pixels);
    a[2] = load(address + further);
    a[3] = load(address + eight_pixels + further);
  }
}

/// One block some tiles of some samples, a warp 8 n outputs of some of a tile's pixels. Reads the input once but for the cache and writes
/// each output once. Deterministic.
template <class Stored, class T, int n>
__global__ void __launch_bounds__(TapTiles::threads, blocks_wanted)
    convolve_taps(Stored* output /* (N, pixels, K) */, const Stored* input /* (N, pixels, C) */, const Stored* weight /* (K, C, taps) */,
                  TapWeight steps_of_weight, const Stored* bias /* or null */, const __grid_constant__ TapTiles tiles) {
  using S = Steps<Stored, T>;
  constexpr int ahead = TapTiles::ahead, bytes = sizeof(Stored);
  extern __shared__ __align__(16) std::byte memory[];
  for (int i = static_cast<int>(threadIdx.x); i < (ahead + 1) * tiles.tile_bytes / 16; i += TapTiles::threads) {
    reinterpret_cast<uint4*>(memory)[i] = uint4{};
  }
  const int warp = static_cast<int>(threadIdx.x) / cuda::warp_size, lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const int first_output = warp % tiles.channel_warps * 8 * n, pixel_warp = warp / tiles.channel_warps;

  // The weight, rounded: of a step's products, a thread has those of number lane % 4 and so on for the output lane / 4.
  std::uint32_t right[T::rows][S::count][n][2];
  const auto weight_at = [&](int row, int j, int product, int out) {
    const int place = j * S::half + product, tap = place / T::channels;
    if (tap >= T::length) return Stored(0.0f);
    return weight[(first_output + out) * steps_of_weight.row_step + (place - tap * T::channels) * steps_of_weight.channel_step +
                  (row * T::length + tap) * steps_of_weight.tap_step];
  };
#pragma unroll
  for (int row = 0; row < T::rows; ++row) {
#pragma unroll
    for (int step = 0; step < S::count; ++step) {
#pragma unroll
      for (int o = 0; o < n; ++o) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int out = o * 8 + lane / 4;
          if constexpr (S::halves) {
            const Stored pair[2] = {weight_at(row, 2 * step + j, lane % 4 * 2, out), weight_at(row, 2 * step + j, lane % 4 * 2 + 1, out)};
            memcpy(&right[row][step][o][j], pair, sizeof(pair));
          } else {
            const cuda::Vector<float, 1> one = {{weight_at(row, 2 * step + j, lane % 4, out)}};
            right[row][step][o][j] = __float_as_uint(tensor_cores::Product<float>::rounded(one)[0]);
          }
        }
      }
    }
  }
  float added[n][2];
#pragma unroll
  for (int o = 0; o < n; ++o) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      added[o][i] = bias == nullptr ? 0.0f : convert<float>(bias[first_output + o * 8 + lane % 4 * 2 + i]);
    }
  }
  __syncthreads();

  const StagedInput<Stored, S::doubled, TapTiles::held> staged_input(input, tiles);
  const std::uint32_t first_slot = cuda::shared_address(memory), pixel_bytes = tiles.input_step * bytes;
  // What a thread reads of 16 pixels: ldmatrix takes a row's address from each lane.
  const std::uint32_t own = S::halves ? lane % 16 * pixel_bytes : lane / 4 * pixel_bytes + lane % 4 * bytes;
  const int groups = tiles.pixels() / 16, pixel_warps = TapTiles::warps / tiles.channel_warps;
  const int step = static_cast<int>(gridDim.x), first = static_cast<int>(blockIdx.x);
  for (std::int64_t sample = blockIdx.y; sample < tiles.samples; sample += gridDim.y) {
    const auto start = [&](std::uint32_t slot, int number) {
      if (number < tiles.count) staged_input.start(slot, tiles.place(sample, number));
      cuda::end_copy_group();
    };
#pragma unroll
    for (int i = 0; i < ahead; ++i) start(first_slot + i * tiles.tile_bytes, first + i * step);
    std::uint32_t slot = first_slot, free_slot = first_slot + ahead * tiles.tile_bytes;
    for (int number = first; number < tiles.count; number += step) {
      cuda::wait_for_copy_groups<ahead - 1>();
      staged_input.transform(slot);
      __syncthreads();
      start(free_slot, number + ahead * step);
      const TilePlace tile = tiles.place(sample, number);
      Stored* const plane = output + ((sample * tiles.size[0] + tile.depth) * tiles.size[1] * tiles.size[2]) * tiles.outputs + first_output;
#pragma unroll 1
      for (int group = pixel_warp; group < groups; group += pixel_warps) {
        const int pixel = group * 16, row = pixel >> tiles.log_width, column = pixel & ((1 << tiles.log_width) - 1);
        if (tile.row + row >= tiles.size[1]) break;
        float sums[n][4];
#pragma unroll
        for (int o = 0; o < n; ++o) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[o][i] = added[o][i % 2];
        }
        const std::uint32_t from = slot + own + (row * tiles.input_width + column) * pixel_bytes;
#pragma unroll
        for (int tap_row = 0; tap_row < T::rows; ++tap_row) {
          const int depth = tap_row / tiles.kernel[1];
          const std::uint32_t line =
              from +
              static_cast<std::uint32_t>((depth * tiles.input_rows + tap_row - depth * tiles.kernel[1]) * tiles.input_width) * pixel_bytes;
#pragma unroll
          for (int s = 0; s < S::count; ++s) {
            const std::uint32_t begin = S::offset(2 * s, tiles.input_step) * bytes;
            std::uint32_t further = S::offset(2 * s + 1, tiles.input_step) * bytes - begin;
            const bool short_step = s == S::whole && S::rest <= S::half;
            if (short_step) further = 0;
            std::uint32_t a[4];
            load_pixels<Stored>(a, line + begin, 8 * pixel_bytes, further, lane);
            // Of a tap beyond the last nothing may come, not even NaN.
            if (s == S::whole && S::rest > S::half) {
              const bool given = lane % 4 * 2 < S::rest - S::half;
              a[2] = given ? a[2] : 0;
              a[3] = given ? a[3] : 0;
            }
#pragma unroll
            for (int o = 0; o < n; ++o) {
              if (short_step) {
                tensor_cores::Instruction<Stored>::half(sums[o], a, right[tap_row][s][o][0]);
              } else {
                tensor_cores::Instruction<Stored>::whole(sums[o], a, right[tap_row][s][o][0], right[tap_row][s][o][1]);
              }
            }
          }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int w = tile.column + column + lane / 4 + i * 8;
          if (w >= tiles.size[2]) continue;
          Stored* const to = plane + (static_cast<std::int64_t>(tile.row + row) * tiles.size[2] + w) * tiles.outputs + lane % 4 * 2;
#pragma unroll
          for (int o = 0; o < n; ++o) {
            *reinterpret_cast<cuda::Vector<Stored, 2>*>(to +
                                                        o * 8) = {{convert<Stored>(sums[o][2 * i]), convert<Stored>(sums[o][2 * i + 1])}};
          }
        }
      }
      free_slot = slot;
      slot = slot == first_slot + ahead * tiles.tile_bytes ? first_slot : slot + tiles.tile_bytes;
    }
    __syncthreads();
  }
  cuda::wait_for_copies();
}

/// Blocks of 8 outputs to a warp.
template <class T>
constexpr int output_blocks = T::rows* T::row_products > 72 ? 2 : 4;

/// Whether a warp's part of the weight fits its registers. Where it does not, cuDNN is faster.
template <class Stored, class T>
constexpr bool fits_registers = is_half_type<Stored> || T::channels == 4;

/// Calls body.operator()<Taps<...>>() for the taps that there are kernels for. Says whether there is one.
template <class Body>
bool dispatch_taps(const ConvolutionGeometry& g, DType dtype, const Body& body) {
  const auto try_taps = [&]<class T>() {
    const bool fits = (is_half(dtype) ? fits_registers<Half, T> : fits_registers<float, T>)&&g.in_channels == T::channels &&
                      g.kernel[2] == T::length && g.kernel[0] * g.kernel[1] == T::rows && g.out_channels % (8 * output_blocks<T>) == 0 &&
                      g.out_channels <= 64 * output_blocks<T>;
    if (fits) body.template operator()<T>();
    return fits;
  };
  return try_taps.template operator()<Taps<4, 3, 9>>() || try_taps.template operator()<Taps<4, 3, 3>>() ||
         try_taps.template operator()<Taps<8, 3, 3>>() || try_taps.template operator()<Taps<24, 3, 1>>();
}

std::optional<TapTiles> tiles_of(const ConvolutionCall& call) {
  const auto& [input, weight, output, bias] = call.operands;
  const bool usual = call.kind == cudnn::ConvolutionKind::forward && on_tensor_cores(weight.dtype()) &&
                     input.is_contiguous(Layout::channels_last) && output.is_contiguous(Layout::channels_last) &&
                     cuda::aligned_for_vectors(input.raw()) && cuda::aligned_for_vectors(output.raw());
  if (!usual) return std::nullopt;
  std::optional<TapTiles> tiles;
  dispatch_taps(call.geometry, weight.dtype(), [&]<class T>() {
    tiles = TapTiles::of_convolution(call.geometry, size_of(weight.dtype()),
                                     static_cast<int>(call.geometry.out_channels) / (8 * output_blocks<T>));
  });
  return tiles;
}

}  // namespace

bool is_tap_convolution(const ConvolutionCall& call) { return tiles_of(call).has_value(); }

void tap_convolution(const ConvolutionCall& call, CUstream_st* stream) {
  const TapTiles tiles = *tiles_of(call);
  const auto& [input, weight, output, bias] = call.operands;
  const std::int64_t taps = product(call.geometry.kernel);
  const bool channels_last = !weight.is_contiguous();
  const TapWeight steps{tiles.channels * taps, channels_last ? 1 : taps, channels_last ? tiles.channels : 1};
  dispatch_stored(weight.dtype(), [&]<class Stored>() {
    if constexpr (!std::is_same_v<Stored, double>) {
      dispatch_taps(call.geometry, weight.dtype(), [&]<class T>() {
        if constexpr (fits_registers<Stored, T>) {
          cuda::launch(convolve_taps<Stored, T, output_blocks<T>>,
                       {tap_grid(tiles, blocks_wanted, weight.device().index), dim3(TapTiles::threads), static_cast<std::size_t>(tiles.shared_bytes)},
                       stream, output.data<Stored>(), input.data<Stored>(), weight.data<Stored>(), steps, data_or_null<Stored>(bias),
                       tiles);
        }
      });
    }
  });
}

}  // namespace frit::ops
