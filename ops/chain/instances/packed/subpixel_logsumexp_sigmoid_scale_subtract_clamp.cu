// clamp(ScaledSigmoid(logsumexp(transposed convolution)) - bias) in one pass, and the gradients of the weight and the bias in another.

#include <algorithm>

#include "frit/ops/chain/instances/packed/packed_kernel.cuh"
#include "frit/ops/chain/instances/packed/subpixel_logsumexp_sigmoid_scale_subtract_clamp.cuh"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/cuda/sum_partials.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/operator/unplaced_call.h"

namespace frit::ops {

std::optional<SubpixelTiles> SubpixelTiles::of(const Tensor& image, const TensorType& weight, const SubpixelLogsumexpAttributes& a) {
  if (!has_subpixel_logsumexp_kernels({image.dtype(), image.shape()}, weight, a) || image.elements() == 0) return std::nullopt;
  const StagedTaps staged(image, weight.shape[1], a.im2col);
  constexpr int tile_blocks = 32;
  const int blocks = staged.output_size[2] > 2 * positions_at_once ? 4 : 2;  // side by side
  StripTiles strips(staged, a.chain.block() / group_places, std::clamp(staged.output_size[1], 1, tile_blocks / blocks), /*strip_rows=*/1,
                    blocks * positions_at_once);
  // Vectors that threads read at the same time lie in different banks: the neighbours' across rows, then those across depths.
  strips.lay_out(1, strips.size[1], strips.size[2], size_of(weight.dtype), 64, 32);
  SubpixelTiles tiles(strips);
  const int axes = image.rank() - 2;
  for (int axis = 0; axis < 3; ++axis) {
    const int given = axis - (3 - axes);
    const auto of_axis = [&](const Dims& dims, int otherwise) { return given < 0 ? otherwise : static_cast<int>(dims[given]); };
    tiles.block[axis] = of_axis(a.chain.blocks.block, 1);
    tiles.offset[axis] = of_axis(a.chain.blocks.offset, 0);
    tiles.output[axis] = of_axis(a.chain.blocks.size, 1);
  }
  constexpr std::size_t room = 40 << 10;
  const bool fits = tiles.staged_bytes <= room && tiles.count < INT32_MAX / 2 && product(a.chain.blocks.size) <= INT32_MAX;
  return fits ? std::optional(tiles) : std::nullopt;
}

namespace {

using OwnAttributes = SubpixelLogsumexpAttributes;

/// Reads the image and writes the output. Deterministic.
template <class Stored, class Image>
__global__ void __launch_bounds__(SubpixelTiles::threads, SubpixelTiles::forward_blocks(is_half_type<Stored>))
    reduce_positions(Stored* output, const Image* image, const Stored* weight, Parameter<Stored> bias, Clamp<float> clamp,
                     const __grid_constant__ SubpixelTiles tiles) {
  extern __shared__ __align__(16) std::byte memory[];
  auto* const staged = reinterpret_cast<Stored*>(memory);
  const SubpixelWarp<Stored> warp(weight, tiles);
  const float subtracted = bias[0];
  for (int number = static_cast<int>(blockIdx.x); number < tiles.count; number += static_cast<int>(gridDim.x)) {
    const OutputTile tile(tiles, number);
    __syncthreads();  // the tile before was used
    tiles.stage<SubpixelTiles::threads>(staged, image, tile.sample, tile.depth, tile.row, tile.column);
    __syncthreads();
    Stored* const sample = output + tile.sample * tiles.sample_size();
    for_each_stretch<2>(tiles, tile, staged, [&](int row, int column, const Stored* first) {
      typename SubpixelWarp<Stored>::Sums sums[2];
      int places[2];
      PixelSum<Half> totals[2];
      warp.places(places, tile, row, column);
      warp.exponentiate(sums, totals, first);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const float y = totals[b].value();
        const float result = clamp(ScaledSigmoid<float>::value(y, sigmoid_of_shifted(y)) - subtracted);
        if (places[b] >= 0) sample[places[b]] = convert<Stored>(result);
      }
    });
  }
}

/// Reads the image and the output's gradient and writes, for each block, its part of the weight's gradient and its part of the sum of what
/// the clamp lets through. Deterministic.
template <class Stored, class Image>
__global__ void __launch_bounds__(SubpixelTiles::threads, SubpixelTiles::backward_blocks(is_half_type<Stored>))
    gather_weight_gradient(float* partials /* (blocks, weight_elements) */, double* block_sums, const Stored* gradient, const Image* image,
                           const Stored* weight, Parameter<Stored> bias, Clamp<float> clamp, const __grid_constant__ SubpixelTiles tiles) {
  using Warp = SubpixelWarp<Stored>;
  extern __shared__ __align__(16) std::byte memory[];
  auto* const staged = reinterpret_cast<Stored*>(memory);
  const Warp warp(weight, tiles);
  GradientFactor<float> factors(bias[0], clamp);
  typename Warp::Products products = {};
  for (int number = static_cast<int>(blockIdx.x); number < tiles.count; number += static_cast<int>(gridDim.x)) {
    const OutputTile tile(tiles, number);
    __syncthreads();  // the tile before was used
    tiles.stage<SubpixelTiles::threads>(staged, image, tile.sample, tile.depth, tile.row, tile.column);
    __syncthreads();
    const Stored* const sample = gradient + tile.sample * tiles.sample_size();
    for_each_stretch<2>(tiles, tile, staged, [&](int row, int column, const Stored* first) {
      typename Warp::Sums sums[2];
      int places[2];
      PixelGradient<float> incoming[2];
      warp.places(places, tile, row, column);
#pragma unroll
      for (int b = 0; b < 2; ++b) incoming[b] = {places[b] >= 0, places[b] >= 0 ? convert<float>(sample[places[b]]) : 0};
      PixelSum<Half> totals[2];
      warp.exponentiate(sums, totals, first);
#pragma unroll
      for (int b = 0; b < 2; ++b) warp.scale(sums[b], factors.finalize(incoming[b], totals[b]));
      warp.multiply(products, sums, first);
    });
  }
  __shared__ double shared[cuda::warp_size];
  const double total = cuda::block_reduce(factors.total(), shared);
  if (threadIdx.x == 0) block_sums[blockIdx.x] = total;
  // The warps with other positions add their products, one after the other.
  const int count = tiles.weight_elements();
  put_partials(partials + static_cast<std::int64_t>(blockIdx.x) * count, reinterpret_cast<float*>(memory), count, tiles.shares(),
               [&](int turn, float* sums) {
                 if (turn == tiles.share_of(Warp::warp())) warp.add(products, sums);
               });
}

/// `image`: the number of that input, after which the weight comes.
std::optional<SubpixelTiles> tiles_of(const KernelContext& call, std::size_t image) {
  const Tensor& weight = call.inputs[image + 1];
  return SubpixelTiles::of(call.inputs[image], {weight.dtype(), weight.shape()}, call.as<OwnAttributes>());
}

template <std::size_t image>
bool takes(const KernelContext& call) {
  return tiles_of(call, image).has_value();
}

/// inputs (image, weight, bias)
void run_forward(const KernelContext& call) {
  const Tensor &image = call.inputs[0], &weight = call.inputs[1], &output = call.outputs[0];
  if (!output.defined() || output.elements() == 0) return;
  const std::optional<SubpixelTiles> tiles = tiles_of(call, 0);
  dispatch_weight_and_image(weight.dtype(), image.dtype(), [&]<class Stored, class Image>() {
    const int to_multiprocessor = SubpixelTiles::forward_blocks(is_half(weight.dtype()));
    const unsigned blocks = tile_blocks(tiles->count, to_multiprocessor, image.device().index);
    const cuda::LaunchShape shape{dim3(blocks), dim3(SubpixelTiles::threads), tiles->staged_bytes};
    cuda::launch(reduce_positions<Stored, Image>, shape, call.stream, output.data<Stored>(), image.data<Image>(), weight.data<Stored>(),
                 Parameter<Stored>(call.inputs[2]), Clamp<float>(call.as<OwnAttributes>().chain.clamp()), *tiles);
  });
}

struct BackwardScratch {
  static std::size_t block_bytes(const SubpixelTiles& tiles) { return static_cast<std::size_t>(tiles.weight_elements()) * sizeof(float); }

  unsigned blocks;
  std::size_t partials, bytes;

  BackwardScratch(const SubpixelTiles& tiles, DType dtype, int device)
      : blocks(tile_blocks(tiles.count, SubpixelTiles::backward_blocks(is_half(dtype)), device)),
        partials(blocks * block_bytes(tiles)),
        bytes(partials + blocks * sizeof(double)) {}
};

/// inputs (gradient, image, weight, bias), outputs (weight_gradient, bias_gradient)
void run_backward(const KernelContext& call) {
  const Tensor &image = call.inputs[1], &weight = call.inputs[2], &weight_gradient = call.outputs[0], &bias_gradient = call.outputs[1];
  const std::optional<SubpixelTiles> tiles = tiles_of(call, 1);
  const BackwardScratch scratch(*tiles, weight.dtype(), image.device().index);
  auto* const partials = reinterpret_cast<float*>(call.scratch.data());
  auto* const block_sums = reinterpret_cast<double*>(call.scratch.data() + scratch.partials);
  dispatch_weight_and_image(weight.dtype(), image.dtype(), [&]<class Stored, class Image>() {
    const cuda::LaunchShape shape{dim3(scratch.blocks), dim3(SubpixelTiles::threads),
                                  std::max(tiles->staged_bytes, BackwardScratch::block_bytes(*tiles))};
    cuda::launch(gather_weight_gradient<Stored, Image>, shape, call.stream, partials, block_sums, call.inputs[0].data<Stored>(),
                 image.data<Image>(), weight.data<Stored>(), Parameter<Stored>(call.inputs[3]),
                 Clamp<float>(call.as<OwnAttributes>().chain.clamp()), *tiles);
    if (weight_gradient.defined()) {
      sum_partials(weight_gradient.data<Stored>(), partials, static_cast<int>(scratch.blocks), tiles->weight_elements(),
                   WeightPlace{SubpixelTiles::columns, tiles->used_columns}, call.stream);
    }
    if (bias_gradient.defined()) {
      cuda::launch(negate_sum<Stored>, {dim3(1), dim3(sum_threads)}, call.stream, Parameter<Stored>(bias_gradient), block_sums,
                   static_cast<int>(scratch.blocks));
    }
  });
}

std::size_t backward_scratch(const InferContext& call) {
  const Device device = cuda::current_device();
  return BackwardScratch(*tiles_of(UnplacedCall(call, device).context(), 1), call.inputs[2].dtype, device.index).bytes;
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(subpixel_logsumexp_sigmoid_scale_subtract_clamp) {
  using namespace frit::ops;
  const Kernel forward{.run = run_forward, .any_layout_inputs = {0}};
  const Kernel backward{.run = run_backward, .scratch = backward_scratch, .any_layout_inputs = {1}};
  registry.add_cuda("subpixel_logsumexp_sigmoid_scale_subtract_clamp",
                    packed_kernel(subpixel_logsumexp_rule, /*computed=*/1, forward, takes<0>));
  registry.add_cuda("subpixel_logsumexp_sigmoid_scale_subtract_clamp_backward",
                    packed_kernel(subpixel_logsumexp_backward_rule, /*computed=*/2, backward, takes<1>));
}
