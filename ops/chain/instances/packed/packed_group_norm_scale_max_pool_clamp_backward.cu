// The gradients of clamp(max_pool2d(group_norm(convolution) * scale)): one pass over the image, which recomputes what the convolution gives
// and its gradient, and multiplies that with the taps.

#include "frit/ops/chain/instances/packed/packed_group_norm_scale_max_pool_clamp_strict.cuh"
#include "frit/ops/chain/instances/packed/packed_kernel.cuh"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/operator/run.h"

namespace frit::ops {
namespace {

using OwnAttributes = PackedGroupNormPoolAttributes;
using AtArgmax = ArgmaxGradients<float, std::uint8_t>;

/// Blocks of threads to a multiprocessor, as registers allow either pass.
constexpr int resident_blocks = 2;
static_assert(BackwardPatches::resident_blocks == resident_blocks);

/// A block some tiles, of which each warp has 32 channels of some stretches. Reads the image and what the windows get, and writes, for each
/// block, its part of the weight's gradient; where wanted, `differences` gets the tiles' sums of x - reference. Deterministic.
template <class Stored, class Image, int loads>
__global__ void __launch_bounds__(PooledTaps<loads>::threads, resident_blocks)
    gather_pooled_gradient(float* partials /* (blocks, weight_elements) */, float* differences /* (tiles, shares, C), or null */,
                           const Image* image, const Stored* weight, Parameter<Stored> bias, bool biased, GradientRules<float> rules,
                           AtArgmax at_argmax, const __grid_constant__ PooledTaps<loads> tiles) {
  constexpr int blocks = 2, threads = PooledTaps<loads>::threads;
  using Warp = ChannelWarp<Stored, loads>;
  extern __shared__ __align__(16) std::byte memory[];
  auto* const staged = reinterpret_cast<Stored*>(memory);
  constexpr int thread_channels = Warp::thread_channels;
  float factors[thread_channels];
#pragma unroll
  for (int i = 0; i < thread_channels; ++i) factors[i] = 1;
  const Warp warp(weight, tiles, factors);
  const int own = Warp::own(), first_number = own * 2 % tiles.window[1];
  typename Warp::Products products = {};
  for (int number = static_cast<int>(blockIdx.x); number < tiles.count; number += static_cast<int>(gridDim.x)) {
    const OutputTile tile(tiles, number);
    __syncthreads();  // the tile before was used
    tiles.template stage<threads>(staged, image, tile.sample, 0, tile.row, tile.column);
    __syncthreads();
    RuleVector<float, thread_channels> rule(rules, static_cast<std::int64_t>(tile.sample) * tiles.channels + warp.channel);
    float sums[thread_channels] = {}, start[thread_channels] = {};
#pragma unroll
    for (int i = 0; i < thread_channels; ++i) rule.reference[i] -= biased ? bias[warp.channel + i] : 0;  // of what has no bias yet
    for_each_stretch<blocks>(tiles, tile, staged, [&](int row, int column, const Stored* first) {
      const int rows = min(tiles.window[0], tiles.output_size[1] - tile.row - row), columns = tiles.output_size[2] - tile.column - column;
      const int window_row = (tile.row + row) / tiles.window[0];
      cuda::Vector<float, thread_channels> more[blocks];
      cuda::Vector<std::uint8_t, thread_channels> numbers[blocks];
#pragma unroll
      for (int b = 0; b < blocks; ++b) {
        const int window = (tile.column + column + b * Warp::positions + 2 * own) / tiles.window[1];
        const bool inside = window_row < tiles.windows[0] && window < tiles.windows[1];
        const std::int64_t place = tiles.window_place(tile.sample, window_row, window) + warp.channel;
#pragma unroll
        for (int i = 0; i < thread_channels; ++i) numbers[b][i] = UINT8_MAX;
        if (!inside) continue;
        more[b] = *reinterpret_cast<const cuda::Vector<float, thread_channels>*>(at_argmax.more + place);
        numbers[b] = *reinterpret_cast<const cuda::Vector<std::uint8_t, thread_channels>*>(at_argmax.argmax + place);
      }
#pragma unroll 1
      for (int k = 0; k < rows; ++k) {
        typename Warp::Sums x[blocks];
        const Stored* const pixels = first + k * tiles.row_step;
        warp.convolve(x, start, pixels);
        const int first_of_row = k * tiles.window[1] + first_number;
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
#pragma unroll
          for (int v = 0; v < 2; ++v) {
            const bool inside = b * Warp::positions + 2 * own + v < columns;
#pragma unroll
            for (int i = 0; i < thread_channels; ++i) {
              float& element = x[b][i / 2][i % 2 * 2 + v];
              const float difference = rule.difference(i, element), spread = rule.spread(i, difference);
              sums[i] += inside ? difference : 0;
              element = inside ? (numbers[b][i] == first_of_row + v ? spread + more[b][i] : spread) : 0;
            }
          }
        }
        warp.multiply(products, x, pixels);
      }
    });
    if (differences == nullptr) continue;
#pragma unroll
    for (int i = 0; i < thread_channels; ++i) {
#pragma unroll
      for (int mask = 1; mask <= 2; mask *= 2) sums[i] += __shfl_xor_sync(~0u, sums[i], mask);
      if (own == i) differences[tiles.entry(number, warp.share, warp.channel) + i] = sums[i];
    }
  }
  // The warps with other positions add their products, one after the other.
  const int count = tiles.weight_elements();
  put_partials(partials + static_cast<std::int64_t>(blockIdx.x) * count, reinterpret_cast<float*>(memory), count, tiles.shares(),
               [&](int turn, float* total) {
                 if (turn == warp.share) warp.add(products, total);
               });
}

/// The parts of the scratch memory, in bytes.
struct Scratch {
  ScratchParts all;
  unsigned blocks;
  std::size_t sums, parts, rules, more, argmax, differences, partials;

  template <class Tiles>
  Scratch(const Tiles& tiles, int device) : blocks(tile_blocks(tiles.count, resident_blocks, device)) {
    Planes planes = tiles.planes;
    planes.channels = tiles.channels;
    const std::int64_t slices = planes.samples * planes.channels, windows = slices * tiles.sample_windows();
    sums = all.add(slices * WindowSplit::most_chunks(tiles.sample_windows()), sizeof(ChannelSums<double>));
    parts = all.add(slices, sizeof(ChannelParts<4>));
    rules = all.add(1, GradientRules<float>::bytes(slices));
    more = all.add(windows, sizeof(float));
    argmax = all.add(windows, 1);
    differences = all.add(static_cast<std::int64_t>(tiles.count) * tiles.shares() * tiles.channels, sizeof(float));
    partials = all.add(static_cast<std::int64_t>(blocks) * tiles.weight_elements(), sizeof(float));
  }
};

/// gather(blocks of threads, arguments...) starts the pass; `place` says where a block's sums belong.
template <class Stored, class Image, class Tiles, class Place, class Gather>
void run_passes(const KernelContext& call, const Tiles& tiles, const Place& place, const Gather& gather) {
  const Tensor &image = call.inputs[1], &weight = call.inputs[2];
  const auto& [im2col, chain] = call.as<OwnAttributes>();
  const Shape convolved = convolved_shape(image.shape(), weight.shape(), im2col);
  const Scratch scratch(tiles, image.device().index);
  const Planes planes(convolved);
  auto* const parts = scratch_part<ChannelParts<4>>(call, scratch.parts);
  auto* const differences = call.outputs[4].defined() ? scratch_part<float>(call, scratch.differences) : nullptr;
  auto* const partials = scratch_part<float>(call, scratch.partials);
  const GradientRules<float> rules(scratch_part<std::byte>(call, scratch.rules), planes.samples * planes.channels);
  const AtArgmax at_argmax{scratch_part<float>(call, scratch.more), scratch_part<std::uint8_t>(call, scratch.argmax)};
  launch_window_sums({parts, rules}, at_argmax, scratch_part<ChannelSums<double>>(call, scratch.sums),
                     pool_gradient_call<Stored, std::uint8_t>(call, planes, GroupNormPoolGeometry(convolved, chain), chain.clamp(), 3),
                     image.device().index, call.stream);
  if (call.outputs[0].defined() || differences != nullptr) {
    const bool biased = call.has(10);
    const Parameter<Stored> bias(biased ? call.inputs[10] : Tensor());
    gather(dim3(scratch.blocks), partials, differences, image.data<Image>(), weight.data<Stored>(), bias, biased, rules, at_argmax, tiles);
  }
  if (call.outputs[0].defined()) {
    sum_partials(call.outputs[0].data<Stored>(), partials, static_cast<int>(scratch.blocks), tiles.weight_elements(), place, call.stream);
  }
  ChannelDifferences<float> sums_of_differences;
  if (differences != nullptr) sums_of_differences = {differences, rules.by_difference, tiles.sample_tiles() * tiles.shares()};
  launch_sum_over_batch<Stored>(call, parts, sums_of_differences, planes);
}

template <int loads>
void run_tiles(const KernelContext& call, const PooledTaps<loads>& tiles) {
  const WeightPlace place{tiles.weight_elements() / tiles.channels, tiles.used_columns};
  const std::size_t sum_bytes = static_cast<std::size_t>(tiles.weight_elements()) * sizeof(float);
  dispatch_weight_and_image(call.inputs[2].dtype(), call.inputs[1].dtype(), [&]<class Stored, class Image>() {
    run_passes<Stored, Image>(call, tiles, place, [&](dim3 blocks, const auto&... arguments) {
      cuda::launch(gather_pooled_gradient<Stored, Image, loads>,
                   {blocks, dim3(PooledTaps<loads>::threads), std::max(tiles.staged_bytes, sum_bytes)}, call.stream, arguments...);
    });
  });
}

/// In strict float32.
void run_tiles(const KernelContext& call, const BackwardPatches& tiles) {
  constexpr int few = BackwardPatches::few, some = BackwardPatches::some;
  const Im2colTapRowPlace place{tiles.weight_elements() / tiles.channels, tiles.image_channels};
  run_passes<float, float>(call, tiles, place, [&](dim3 blocks, const auto&... arguments) {
    const bool is_few = tiles.tap_rows_to_thread() == few;
    auto* const kernel = tiles.window[1] == 2 ? is_few ? &gather_patches_gradient<2, few> : &gather_patches_gradient<2, some>
                         : is_few             ? &gather_patches_gradient<4, few>
                                              : &gather_patches_gradient<4, some>;
    cuda::launch(kernel, {blocks, dim3(BackwardPatches::threads), tiles.shared_bytes()}, call.stream, arguments...);
  });
}

bool takes(const KernelContext& call) { return has_kernels<BackwardPatches>(call, 1); }

/// inputs (gradient, image, weight, norm_weight, norm_bias, scale, argmax, mean, rstd, argmax_input, bias or none)
/// outputs (weight_gradient, norm_weight_gradient, norm_bias_gradient, scale_gradient, bias_gradient)
void run_backward(const KernelContext& call) {
  const Tensor& weight = call.inputs[2];
  with_tiles<BackwardPatches>(call.inputs[1], {weight.dtype(), weight.shape()}, call.as<OwnAttributes>(),
                              [&](const auto& tiles) { run_tiles(call, tiles); });
}

std::size_t backward_scratch(const InferContext& call) {
  const Device device = cuda::current_device();
  const Tensor image = Tensor::over(nullptr, call.shape(1), call.inputs[1].dtype, device, nullptr);
  std::size_t bytes = 0;
  with_tiles<BackwardPatches>(image, call.inputs[2], call.as<OwnAttributes>(),
                              [&](const auto& tiles) { bytes = Scratch(tiles, device.index).all.bytes(); });
  return bytes;
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(packed_group_norm_scale_max_pool_clamp_backward) {
  using namespace frit::ops;
  const Kernel own{.run = run_backward, .scratch = backward_scratch, .any_layout_inputs = {1}};
  registry.add_cuda("packed_group_norm_scale_max_pool_clamp_backward",
                    packed_kernel(packed_group_norm_pool_backward_rule, /*computed=*/2, own, takes));
}
