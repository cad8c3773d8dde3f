// clamp(max_pool2d(group_norm(convolution) * scale)) in one pass over the image.

#include "frit/ops/chain/instances/packed/packed_group_norm_scale_max_pool_clamp_strict.cuh"
#include "frit/ops/chain/instances/packed/packed_kernel.cuh"
#include "frit/ops/chain/schedules/streamed_gradient.cuh"
#include "frit/ops/chain/stages/slice_moments.cuh"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/operator/run.h"

namespace frit::ops {
namespace {

using OwnAttributes = PackedGroupNormPoolAttributes;

/// Blocks of positions at a time, and blocks of threads to a multiprocessor, as registers allow.
constexpr int position_blocks = 2;
template <class Stored>
inline constexpr int forward_blocks = is_half_type<Stored> ? 4 : 3;

/// Of the windows of a stretch the elements that will be the maxima, less the pivots: of equals the first. Where `live` is not set a
/// window's elements are all the same to it.
template <int blocks, bool numbered>
class StretchMaxima {
 public:
  __device__ StretchMaxima() {
#pragma unroll
    for (int i = 0; i < 4 * blocks; ++i) best_[i / 4][i % 4] = -INFINITY, number_[i / 4][i % 4] = 0;
  }

  /// Row k of the windows, of such a width; the thread has columns 2 t and 2 t + 1 of each block.
  template <class Sums>
  __device__ void take(const Sums (&sums)[blocks], int k, int width, const bool (&live)[4]) {
    const int first = k * width + static_cast<int>(threadIdx.x) * 2 % width;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool open = live[i] || k == 0;
#pragma unroll
      for (int b = 0; b < blocks; ++b) {
        const float left = sums[b][i / 2][i % 2 * 2], right = sums[b][i / 2][i % 2 * 2 + 1], larger = fmaxf(left, right);
        if constexpr (numbered) {
          const bool wins = larger > best_[b][i] && open;
          best_[b][i] = wins ? live[i] ? larger : left : best_[b][i];
          const int index = right > left ? first + 1 : first;
          number_[b][i] = wins ? index : number_[b][i];
        } else {
          best_[b][i] = fmaxf(best_[b][i], larger);
        }
      }
    }
  }
  /// Joins what two neighbouring threads have of the same window. The first of them has the result.
  __device__ void join(const bool (&live)[4]) {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float other = __shfl_xor_sync(~0u, best_[b][i], 1);
        if constexpr (numbered) {
          const int other_number = __shfl_xor_sync(~0u, number_[b][i], 1);
          const bool wins = live[i] && (other > best_[b][i] || (other == best_[b][i] && other_number < number_[b][i]));
          best_[b][i] = wins ? other : best_[b][i];
          number_[b][i] = wins ? other_number : number_[b][i];
        } else {
          best_[b][i] = fmaxf(best_[b][i], other);
        }
      }
    }
  }

  /// The windows' elements, and their numbers; the first where `live` is not set.
  __device__ float element(int b, int i) const { return best_[b][i]; }
  __device__ int index(int b, int i, bool is_live) const { return is_live ? number_[b][i] : 0; }

 private:
  float best_[blocks][4];
  int number_[blocks][4];
};

/// A block some tiles, of which each warp has 32 channels of some stretches. Reads the image and writes of each window one element, and the
/// tiles' sums. Deterministic.
template <class Stored, class Image, int loads, bool numbered>
__global__ void __launch_bounds__(PooledTaps<loads>::threads, forward_blocks<Stored>)
    pool_taps(WindowElements<Stored> results, PivotSums* sums /* (tiles, shares, C) */, const Image* image, const Stored* weight,
              Parameter<Stored> bias, bool biased, GroupParameters<Stored> parameters, const __grid_constant__ PooledTaps<loads> tiles) {
  constexpr int blocks = position_blocks;
  using Warp = ChannelWarp<Stored, loads>;
  extern __shared__ __align__(16) std::byte memory[];
  auto* const staged = reinterpret_cast<Stored*>(memory);
  const int first_channel = tiles.first_channel_of(Warp::warp()) + Warp::lane() / 4 * Warp::thread_channels, own = Warp::own();
  // The pass computes sign * x, so that maxima are what is looked for.
  float signs[4], added[4];
  bool live[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int c = first_channel + i;
    signs[i] = parameters.sign(c);
    live[i] = parameters.weight[c] != 0 && parameters.scale[c] != 0;
    added[i] = biased ? bias[c] * signs[i] : 0;
  }
  const Warp warp(weight, tiles, signs);
  for (int number = static_cast<int>(blockIdx.x); number < tiles.count; number += static_cast<int>(gridDim.x)) {
    const OutputTile tile(tiles, number);
    __syncthreads();  // the tile before was used
    tiles.template stage<PooledTaps<loads>::threads>(staged, image, tile.sample, 0, tile.row, tile.column);
    __syncthreads();
    float pivots[4] = {}, start[4], sum[4] = {}, squares[4] = {};
    int count = 0;
    for_each_stretch<blocks>(tiles, tile, staged, [&](int row, int column, const Stored* first) {
      typename Warp::Sums x[blocks];
      if (count == 0) {
        warp.convolve(x, added, first);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          pivots[i] = __shfl_sync(~0u, x[0][i / 2][i % 2 * 2], Warp::lane() & ~3);
          start[i] = added[i] - pivots[i];
        }
      }
      const int rows = min(tiles.window[0], tiles.output_size[1] - tile.row - row), columns = tiles.output_size[2] - tile.column - column;
      StretchMaxima<blocks, numbered> maxima;
#pragma unroll 1
      for (int k = 0; k < rows; ++k) {
        warp.convolve(x, start, first + k * tiles.row_step);
        maxima.take(x, k, tiles.window[1], live);
        if (columns < blocks * Warp::positions) {
#pragma unroll
          for (int b = 0; b < blocks; ++b) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
              if (b * Warp::positions + 2 * own + i % 2 >= columns) x[b][i / 4][i % 4] = 0;
            }
          }
        }
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const float difference = x[b][i / 4][i % 4];
            sum[i / 2] += difference;
            squares[i / 2] = fmaf(difference, difference, squares[i / 2]);
          }
        }
      }
      count += rows * min(columns, blocks * Warp::positions);
      if (tiles.window[1] > 2) maxima.join(live);
      const int window_row = (tile.row + row) / tiles.window[0];
      if (window_row >= tiles.windows[0] || (tiles.window[1] > 2 && own % 2 == 1)) return;
#pragma unroll
      for (int b = 0; b < blocks; ++b) {
        const int window = (tile.column + column + b * Warp::positions + 2 * own) / tiles.window[1];
        if (window >= tiles.windows[1]) continue;
        const std::int64_t place = tiles.window_place(tile.sample, window_row, window) + first_channel;
        cuda::Vector<Stored, 4> elements;
        cuda::Vector<std::uint8_t, 4> numbers;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          elements[i] = convert<Stored>((maxima.element(b, i) + pivots[i]) * signs[i]);
          if constexpr (numbered) numbers[i] = static_cast<std::uint8_t>(maxima.index(b, i, live[i]));
        }
        cuda::store_vector(results.elements + place, elements);
        if constexpr (numbered) cuda::store_vector(results.numbers + place, numbers);
      }
    });
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int mask = 1; mask <= 2; mask *= 2) {
        sum[i] += __shfl_xor_sync(~0u, sum[i], mask);
        squares[i] += __shfl_xor_sync(~0u, squares[i], mask);
      }
      if (own == i) sums[tiles.entry(number, warp.share, warp.channel) + i] = {pivots[i] * signs[i], sum[i] * signs[i], squares[i], count};
    }
  }
}

/// What the statistics become: those that are kept, and the maps.
template <class Stored>
struct Groups {
  std::int64_t samples, channels, groups, group_channels;
  double eps, share;  ///< 1 over a group's elements
  GroupParameters<Stored> parameters;
  StatisticsOutputs statistics;
  GroupMap<float>* maps;  // (N, C)
};

/// One warp a group of a sample. Deterministic.
template <class Stored>
__global__ void finalize_tiles(Groups<Stored> groups, const PivotSums* sums /* (tiles, shares, C) */, int sample_entries) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size, group_channels = static_cast<int>(groups.group_channels);
  for (std::int64_t slice = cuda::first_item() / cuda::warp_size; slice < groups.samples * groups.groups;
       slice += cuda::item_step() / cuda::warp_size) {
    const std::int64_t n = slice / groups.groups, first = slice % groups.groups * groups.group_channels;
    const PivotSums* const own = sums + n * sample_entries * groups.channels + first;
    const auto pivot = static_cast<double>(own->pivot);
    ShiftedSums total;
    for (int i = lane; i < sample_entries * group_channels; i += cuda::warp_size) {
      const PivotSums entry = own[i / group_channels * groups.channels + i % group_channels];
      const double shift = static_cast<double>(entry.pivot) - pivot, sum = static_cast<double>(entry.sum), count = entry.count;
      total = total + ShiftedSums{sum + count * shift, static_cast<double>(entry.squares) + shift * (2 * sum + count * shift)};
    }
    total = cuda::warp_reduce(total);
    const DeviceMoments moments(total, pivot, groups.share);
    const double rstd = rsqrt(moments.variance + groups.eps);
    if (lane == 0) groups.statistics.write(slice, moments.mean, rstd);
    for (int i = lane; i < group_channels; i += cuda::warp_size) {
      groups.maps[n * groups.channels + first + i] = groups.parameters.map(first + i, moments.mean, rstd);
    }
  }
}

constexpr int turned_channels = 32, turned_windows = 64;

/// A block some windows of 32 channels, which it turns in shared memory. Reads what the pass left and writes the results. Deterministic.
template <class Stored>
__global__ void __launch_bounds__(cuda::default_threads, 6)
    finish_windows(MaximumOutputs<Stored, std::uint8_t> outputs, WindowElements<Stored> from, const GroupMap<float>* maps /* (N, C) */,
                   Clamp<float> clamp, std::int64_t samples, int channels, int windows) {
  __shared__ float elements[turned_channels][turned_windows + 1];  // padded, so that columns have banks of their own
  __shared__ std::uint8_t numbers[turned_channels][turned_windows + 4];
  constexpr int warps = cuda::default_threads / cuda::warp_size;
  const int warp = static_cast<int>(threadIdx.x) / cuda::warp_size, lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const int first_channel = static_cast<int>(blockIdx.y) * turned_channels, first = static_cast<int>(blockIdx.x) * turned_windows;
  for (std::int64_t n = blockIdx.z; n < samples; n += gridDim.z) {
    __syncthreads();
#pragma unroll
    for (int i = warp; i < turned_windows; i += warps) {
      if (first + i >= windows) break;
      const std::int64_t place = (n * windows + first + i) * channels + first_channel + lane;
      elements[lane][i] = convert<float>(from.elements[place]);
      if (from.numbers != nullptr) numbers[lane][i] = from.numbers[place];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < turned_channels / warps; ++k) {
      const int c = warp + k * warps;
      const std::int64_t plane = n * channels + first_channel + c;
      const GroupMap<float> map = maps[plane];
      const auto to = outputs.from(plane * windows + first);
#pragma unroll
      for (int i = lane; i < turned_windows; i += cuda::warp_size) {
        if (first + i >= windows) break;
        const float x = elements[c][i];
        to.write(i, clamp(map(x)), from.numbers != nullptr ? numbers[c][i] : 0, x);
      }
    }
  }
}

/// The parts of the scratch memory, in bytes.
struct ForwardScratch {
  ScratchParts all;
  std::size_t sums, maps, elements, numbers;

  template <class Tiles>
  ForwardScratch(const Tiles& tiles, DType dtype) {
    const std::int64_t windows = tiles.planes.samples * tiles.sample_windows() * tiles.channels;
    sums = all.add(static_cast<std::int64_t>(tiles.count) * tiles.shares() * tiles.channels, sizeof(PivotSums));
    maps = all.add(tiles.planes.samples * tiles.channels, sizeof(GroupMap<float>));
    elements = all.add(windows, size_of(dtype));
    numbers = all.add(windows, 1);
  }
};

/// pool(numbered, blocks of threads, arguments...) starts the pass, with so many blocks to a multiprocessor.
template <class Stored, class Image, class Tiles, class Pool>
void run_passes(const KernelContext& call, const Tiles& tiles, int to_multiprocessor, const Pool& pool) {
  const Tensor &image = call.inputs[0], &weight = call.inputs[1];
  const auto& [im2col, chain] = call.as<OwnAttributes>();
  const GroupNormPoolGeometry geometry(convolved_shape(image.shape(), weight.shape(), im2col), chain);
  const ForwardScratch scratch(tiles, weight.dtype());
  const auto outputs = MaximumOutputs<Stored, std::uint8_t>::of(call);
  const bool numbered = outputs.has_argmax(), biased = call.has(5);
  const WindowElements<Stored> elements{scratch_part<Stored>(call, scratch.elements),
                                        numbered ? scratch_part<std::uint8_t>(call, scratch.numbers) : nullptr};
  auto* const sums = scratch_part<PivotSums>(call, scratch.sums);
  const Groups<Stored> groups{.samples = geometry.samples,
                              .channels = geometry.channels,
                              .groups = geometry.groups,
                              .group_channels = geometry.group_channels(),
                              .eps = chain.eps,
                              .share = share_of_each(geometry.group_pixels()),
                              .parameters = GroupParameters<Stored>(call, 2),
                              .statistics = StatisticsOutputs::of(call),
                              .maps = scratch_part<GroupMap<float>>(call, scratch.maps)};
  pool(numbered, dim3(tile_blocks(tiles.count, to_multiprocessor, image.device().index)), elements, sums, image.data<Image>(),
       weight.data<Stored>(), Parameter<Stored>(biased ? call.inputs[5] : Tensor()), biased, groups.parameters, tiles);
  cuda::launch(finalize_tiles<Stored>, cuda::loop_shape(geometry.slices() * cuda::warp_size), call.stream, groups, sums,
               tiles.sample_tiles() * tiles.shares());
  const dim3 grid(static_cast<unsigned>((tiles.sample_windows() + turned_windows - 1) / turned_windows),
                  static_cast<unsigned>(tiles.channels / turned_channels), sample_blocks(tiles.planes));
  cuda::launch(finish_windows<Stored>, {grid, dim3(cuda::default_threads)}, call.stream, outputs, elements, groups.maps,
               Clamp<float>(chain.clamp()), geometry.samples, tiles.channels, tiles.sample_windows());
}

template <int loads>
void run_tiles(const KernelContext& call, const PooledTaps<loads>& tiles) {
  dispatch_weight_and_image(call.inputs[1].dtype(), call.inputs[0].dtype(), [&]<class Stored, class Image>() {
    run_passes<Stored, Image>(call, tiles, forward_blocks<Stored>, [&](bool numbered, dim3 blocks, const auto&... arguments) {
      cuda::launch(numbered ? pool_taps<Stored, Image, loads, true> : pool_taps<Stored, Image, loads, false>,
                   {blocks, dim3(PooledTaps<loads>::threads), tiles.staged_bytes}, call.stream, arguments...);
    });
  });
}

/// In strict float32.
void run_tiles(const KernelContext& call, const ForwardPatches& tiles) {
  run_passes<float, float>(call, tiles, ForwardPatches::resident_blocks, [&](bool numbered, dim3 blocks, const auto&... arguments) {
    auto* const kernel = tiles.window[1] == 2 ? numbered ? &pool_patches<2, true> : &pool_patches<2, false>
                         : numbered           ? &pool_patches<4, true>
                                              : &pool_patches<4, false>;
    cuda::launch(kernel, {blocks, dim3(ForwardPatches::threads), tiles.shared_bytes()}, call.stream, arguments...);
  });
}

bool takes(const KernelContext& call) { return has_kernels<ForwardPatches>(call, 0); }

/// inputs (image, weight, norm_weight, norm_bias, scale, bias or none), outputs (output, argmax, mean, rstd, argmax_input)
void run_forward(const KernelContext& call) {
  const Tensor& weight = call.inputs[1];
  with_tiles<ForwardPatches>(call.inputs[0], {weight.dtype(), weight.shape()}, call.as<OwnAttributes>(),
                             [&](const auto& tiles) { run_tiles(call, tiles); });
}

std::size_t forward_scratch(const InferContext& call) {
  const Tensor image = Tensor::over(nullptr, call.shape(0), call.inputs[0].dtype, cuda::current_device(), nullptr);
  std::size_t bytes = 0;
  with_tiles<ForwardPatches>(image, call.inputs[1], call.as<OwnAttributes>(),
                             [&](const auto& tiles) { bytes = ForwardScratch(tiles, call.inputs[1].dtype).all.bytes(); });
  return bytes;
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(packed_group_norm_scale_max_pool_clamp) {
  using namespace frit::ops;
  const Kernel own{.run = run_forward, .scratch = forward_scratch, .any_layout_inputs = {0}};
  registry.add_cuda("packed_group_norm_scale_max_pool_clamp", packed_kernel(packed_group_norm_pool_rule, /*computed=*/1, own, takes));
}
