// The gradients of max over channels of clamp(instance_norm(convolution * scale)) * post_scale: one pass over what the convolution gave and
// the image, which computes the gradient of the one and multiplies it with the taps of the other.

#include "frit/ops/chain/instances/packed/convolution_scale_instance_norm_clamp_scale_max_backward_strict.cuh"
#include "frit/ops/chain/instances/packed/packed_kernel.cuh"
#include "frit/ops/convolution/tiles/output_tiles.cuh"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/cuda/sum_partials.cuh"
#include "frit/ops/operator/run.h"

namespace frit::ops {
namespace {

using OwnAttributes = ConvolutionInstanceNormMaxAttributes;
constexpr int out_channels = static_cast<int>(ConvolutionInstanceNormMaxKernels::out_channels);
/// And blocks of a multiprocessor, as registers allow.
constexpr int threads = 128, warps = threads / cuda::warp_size, resident_blocks = 4;

/// A stretch of 16 positions: of the thread's 4 what is given, brought while another stretch is worked on. Of the warps every other has the
/// first half of some lines of positions, and the others the second.
template <class Stored, int loads>
struct Stretch {
  static constexpr int blocks = 2, positions = 8, channels = 2, halves = 2, line_step = warps / halves;
  static_assert(halves * blocks * positions == OutputTiles<loads>::line);

  cuda::Vector<Stored, channels> convolved[blocks][2];
  float more[blocks][2];
  int index[blocks][2];  ///< -1 where there is no position
  int offset;            ///< of the pixels; -1 where the stretch has no position

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / cuda::warp_size; }
  __device__ static int first_line() { return warp() / halves; }
  __device__ static int first_column() { return warp() % halves * blocks * positions; }

  /// Of a line of a tile. `given` is the sample's, `channel` and `own` are the thread's first ones.
  __device__ Stretch(const GradientSource<Stored>& given, const OutputTiles<loads>& tiles, const OutputTile& tile, int line, int channel,
                     int own) {
    const std::uint32_t d = tiles.rows.quotient(static_cast<std::uint32_t>(line));
    const int z = static_cast<int>(d), y = static_cast<int>(tiles.rows.remainder(static_cast<std::uint32_t>(line), d));
    const int column = tile.column + first_column(), depth = tile.depth + z, row = tile.row + y;
    const bool exists = z < tiles.size[0] && depth < tiles.output_size[0] && row < tiles.output_size[1] && column < tiles.output_size[2];
    offset = exists ? z * tiles.depth_step + y * tiles.row_step + first_column() * tiles.pixel_step : -1;
    const int place = (depth * tiles.output_size[1] + row) * tiles.output_size[2] + column + own,
              count = exists ? tiles.output_size[2] - column - own : 0;
    const Stored* const elements = given.convolved + (place * out_channels + channel);
    const float* const more_from = given.more + place;
    const std::uint8_t* const argmax = given.argmax + place;
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const int position = b * positions + v;
        index[b][v] = -1;
        if (position >= count) continue;
        convolved[b][v] = *reinterpret_cast<const cuda::Vector<Stored, channels>*>(elements + position * out_channels);
        more[b][v] = more_from[position];
        index[b][v] = argmax[position];
      }
    }
  }
};

/// A block some tiles, of which each warp has some stretches. Reads the image, what the convolution gave and what the maxima get, and
/// writes the block's part of the weight's gradient. Deterministic.
template <class Stored, class Image, int loads>
__global__ void __launch_bounds__(threads, resident_blocks)
    gather_weight_gradient(float* partials /* (blocks, K, columns) */, const Image* image, GradientSource<Stored> given,
                           const __grid_constant__ OutputTiles<loads> tiles) {
  using Warp = TapWarp<Stored, loads, out_channels, StagedTaps::width>;
  using Part = Stretch<Stored, loads>;
  static_assert(Part::channels == Warp::thread_channels && Part::positions == Warp::positions);
  extern __shared__ __align__(16) std::byte memory[];
  auto* const staged = reinterpret_cast<Stored*>(memory);
  const Warp warp(0, tiles.vectors, tiles, [](int, int, int) { return typename Warp::Words{}; });  // the weight plays no part
  const int channel = warp.thread_channel(Warp::lane() / 4), pixels = tiles.output_size[0] * tiles.output_size[1] * tiles.output_size[2];
  typename Warp::Products products = {};
  for (int number = static_cast<int>(blockIdx.x); number < tiles.count; number += static_cast<int>(gridDim.x)) {
    const OutputTile tile(tiles, number);
    const GradientSource<Stored> own = given.from(tile.sample, pixels);
    Part next(own, tiles, tile, Part::first_line(), channel, 2 * Warp::own());
    __syncthreads();  // the tile before was used
    tiles.template stage<threads>(staged, image, tile.sample, tile.depth, tile.row, tile.column);
    __syncthreads();
    const RuleVector<float, Part::channels> rule(given.rules, static_cast<std::int64_t>(tile.sample) * out_channels + channel);
#pragma unroll 1
    for (int line = Part::first_line(); line < tiles.size[0] * tiles.size[1]; line += Part::line_step) {
      const Part part = next;
      next = Part(own, tiles, tile, line + Part::line_step, channel, 2 * Warp::own());
      if (part.offset < 0) continue;
      typename Warp::Sums gradient[Part::blocks];
#pragma unroll
      for (int b = 0; b < Part::blocks; ++b) {
#pragma unroll
        for (int v = 0; v < 2; ++v) {
#pragma unroll
          for (int i = 0; i < Part::channels; ++i) {
            const float spread = rule.spread(i, rule.difference(i, convert<float>(part.convolved[b][v][i])));
            const float element = part.index[b][v] == channel + i ? spread + part.more[b][v] : spread;
            gradient[b][0][2 * i + v] = part.index[b][v] < 0 ? 0 : element;
          }
        }
      }
      warp.multiply(products, gradient, staged + part.offset);
    }
  }
  // The warps add their products, one after the other.
  constexpr int count = out_channels * Warp::columns;
  put_partials(partials + static_cast<std::int64_t>(blockIdx.x) * count, reinterpret_cast<float*>(memory), count, warps,
               [&](int turn, float* sums) {
                 if (turn == Part::warp()) warp.add(products, sums);
               });
}

/// Calls body(tiles) with those for a call: for tensor cores, or in strict float32.
template <class Body>
void with_tiles(const Tensor& image, const TensorType& convolved, const Dims& padding, const Body& body) {
  using Kernels = ConvolutionInstanceNormMaxKernels;
  const StagedTaps taps = StagedTaps::of_convolution(image, kernel_between(image.shape(), convolved.shape, padding), padding);
  if (!on_tensor_cores(convolved.dtype)) return body(GradientTiles(taps));
  constexpr int fewer = 3, most = 7;
  static_assert(TapVectors<most>::most == Kernels::taps && StagedTaps::width == Kernels::channels);
  dispatch_loads<fewer, most>(taps.used_columns, [&]<int loads>() {
    body(OutputTiles<loads>(taps, size_of(convolved.dtype), shared_room(resident_blocks, image.device().index)));
  });
}

/// Of an item of a block's sums, whose columns are vectors of channels for each tap, in the weight's gradient (K, C, kernel...); -1 where
/// that has none.
struct KernelPlace {
  int columns, channels, taps;

  FRIT_HOST_DEVICE std::int64_t operator()(int item) const {
    const int row = item / columns, column = item % columns, tap = column / StagedTaps::width, channel = column % StagedTaps::width;
    return tap < taps && channel < channels ? (row * channels + channel) * taps + taps - 1 - tap : -1;
  }
};

/// Blocks, and the parts of the scratch memory in bytes.
struct Scratch {
  InstanceGradientScratch sums;
  unsigned blocks;
  std::size_t partials;

  /// `items` of a block's sums.
  Scratch(const Planes& planes, int tiles, int to_multiprocessor, int items, int device)
      : sums(planes, float()),
        blocks(tile_blocks(tiles, to_multiprocessor, device)),
        partials(sums.all.add(static_cast<std::int64_t>(blocks) * items, sizeof(float))) {}
};

/// gather(partials, given) finds the weight's gradient.
template <class Stored, class Gather>
void run_kernels(const KernelContext& call, const Scratch& scratch, const Gather& gather) {
  const InstanceGradientCall<Stored, std::uint8_t> own(call, call.as<OwnAttributes>().chain, 2);
  const InstanceGradients<float> gradients(call, scratch.sums, own.planes);
  launch_argmax_sums(gradients, own, call, scratch.sums);
  if (call.outputs[0].defined()) {
    const GradientSource<Stored> given{own.elements, gradients.finalize.rules, own.argmax, gradients.more};
    gather(scratch_part<float>(call, scratch.partials), given);
  }
  launch_sum_over_batch<Stored>(call, gradients.finalize.parts, {}, own.planes);
}

template <int loads>
constexpr int columns_of = TapVectors<loads>::most* StagedTaps::width;  ///< of a row of a block's sums

template <int loads>
Scratch scratch_for(const OutputTiles<loads>& tiles, const Planes& planes, int device) {
  return {planes, tiles.count, resident_blocks, out_channels * columns_of<loads>, device};
}

template <int loads>
void run_tiles(const KernelContext& call, const OutputTiles<loads>& tiles) {
  const Tensor &image = call.inputs[1], &convolved = call.inputs[2];
  constexpr int columns = columns_of<loads>;
  const Scratch scratch = scratch_for(tiles, Planes(convolved.shape()), image.device().index);
  const KernelPlace place{columns, static_cast<int>(tiles.planes.channels), tiles.taps[0] * tiles.taps[1] * tiles.taps[2]};
  dispatch_weight_and_image(convolved.dtype(), image.dtype(), [&]<class Stored, class Image>() {
    run_kernels<Stored>(call, scratch, [&](float* partials, const GradientSource<Stored>& given) {
      const cuda::LaunchShape shape{dim3(scratch.blocks), dim3(threads),
                                    std::max(tiles.staged_bytes, out_channels * columns * sizeof(float))};
      cuda::launch(gather_weight_gradient<Stored, Image, loads>, shape, call.stream, partials, image.data<Image>(), given, tiles);
      sum_partials(call.outputs[0].data<Stored>(), partials, static_cast<int>(scratch.blocks), out_channels * columns, place, call.stream);
    });
  });
}

Scratch scratch_for(const GradientTiles& tiles, const Planes& planes, int device) {
  return {planes, tiles.count, GradientTiles::resident_blocks, out_channels * GradientTiles::columns(tiles.tap_rows_to_thread()), device};
}

/// In strict float32.
void run_tiles(const KernelContext& call, const GradientTiles& tiles) {
  const Scratch scratch = scratch_for(tiles, Planes(call.inputs[2].shape()), call.inputs[2].device().index);
  run_kernels<float>(call, scratch, [&](float* partials, const GradientSource<float>& given) {
    const int tap_rows = tiles.tap_rows_to_thread(), columns = GradientTiles::columns(tap_rows);
    auto* const kernel = tap_rows == GradientTiles::few    ? &multiply_gradient<GradientTiles::few>
                         : tap_rows == GradientTiles::some ? &multiply_gradient<GradientTiles::some>
                                                           : &multiply_gradient<GradientTiles::most>;
    const std::size_t sum_bytes = static_cast<std::size_t>(out_channels * columns) * sizeof(float);
    const cuda::LaunchShape shape{dim3(scratch.blocks), dim3(GradientTiles::threads), std::max(tiles.shared_bytes(), sum_bytes)};
    cuda::launch(kernel, shape, call.stream, partials, call.inputs[1].data<float>(), given, tiles);
    sum_partials(call.outputs[0].data<float>(), partials, static_cast<int>(scratch.blocks), out_channels * columns,
                 TapRowPlace{columns, tiles.image_channels, tiles.taps[0]}, call.stream);
  });
}

bool takes(const KernelContext& call) {
  const Tensor &image = call.inputs[1], &convolved = call.inputs[2];
  const Dims& padding = call.as<OwnAttributes>().padding;
  Shape weight{convolved.dim(1), image.dim(1)};
  for (const std::int64_t size : kernel_between(image.shape(), convolved.shape(), padding)) weight.push_back(size);
  return convolved.elements() > 0 && !convolved.is_contiguous() &&
         has_convolution_instance_norm_max_kernels({image.dtype(), image.shape()}, {convolved.dtype(), weight}, padding);
}

/// inputs (gradient, image, convolved, scale, post_scale, argmax, mean, rstd, argmax_input)
/// outputs (weight_gradient, scale_gradient, post_scale_gradient, bias_gradient)
void run_backward(const KernelContext& call) {
  const Tensor& convolved = call.inputs[2];
  with_tiles(call.inputs[1], {convolved.dtype(), convolved.shape()}, call.as<OwnAttributes>().padding,
             [&](const auto& tiles) { run_tiles(call, tiles); });
}

std::size_t backward_scratch(const InferContext& call) {
  const Device device = cuda::current_device();
  const Tensor image = Tensor::over(nullptr, call.shape(1), call.inputs[1].dtype, device, nullptr);
  std::size_t bytes = 0;
  with_tiles(image, call.inputs[2], call.as<OwnAttributes>().padding,
             [&](const auto& tiles) { bytes = scratch_for(tiles, Planes(call.shape(2)), device.index).sums.all.bytes(); });
  return bytes;
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(convolution_scale_instance_norm_clamp_scale_max_backward) {
  using namespace frit::ops;
  const Kernel own{.run = run_backward, .scratch = backward_scratch, .any_layout_inputs = {1, 2}};
  registry.add_cuda("convolution_scale_instance_norm_clamp_scale_max_backward",
                    packed_kernel(convolution_instance_norm_max_backward_rule, /*computed=*/2, own, takes));
}
