// max over channels of clamp(instance_norm(convolution * scale)) * post_scale, in two passes over an image in shared memory.

#include "frit/ops/chain/instances/packed/convolution_scale_instance_norm_clamp_scale_max_strict.cuh"
#include "frit/ops/chain/instances/packed/packed_kernel.cuh"
#include "frit/ops/convolution/tiles/output_tiles.cuh"
#include "frit/ops/convolution/tiles/tap_rows.cuh"
#include "frit/ops/cuda/cluster_totals.cuh"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/operator/unplaced_call.h"

namespace frit::ops {
namespace {

using OwnAttributes = ConvolutionInstanceNormMaxAttributes;
constexpr int out_channels = ConvolutionMaximumCall<float>::out_channels;
static_assert(out_channels == TapRows::out_channels);

/// The positions of a sample, dealt out to the blocks of a cluster: each has a box of them, whose pixels stay in its shared memory.
struct ClusterTaps : TapRows {
  static constexpr int threads = 512, warps = threads / cuda::warp_size, warpgroups = threads / warpgroup::threads;

  int row_parts, blocks;  ///< of a cluster

  /// `rest_bytes` of shared memory are for the kernel's own use. Nothing if there is no room, or no such instructions.
  static std::optional<ClusterTaps> of(const Tensor& image, const TensorType& weight, const Dims& padding, std::size_t rest_bytes) {
    const int device = image.device().index;
    const StagedTaps taps = StagedTaps::of_convolution(image, image_of(weight.shape), padding);
    if (!warpgroup::available(device) || !fit(taps)) return std::nullopt;
    const std::size_t room = shared_room(1, device) - rest_bytes;
    std::optional<ClusterTaps> best;
    for (int blocks = 1; blocks <= cuda::most_cluster_blocks; blocks *= 2) {
      for (int rows_of_blocks = 1; rows_of_blocks <= blocks; rows_of_blocks *= 2) {
        const ClusterTaps other(taps, blocks / rows_of_blocks, rows_of_blocks, size_of(weight.dtype));
        if (other.bytes + other.weight_bytes() > room) continue;
        if (!best || other.rows_in_turn(device) < best->rows_in_turn(device)) best = other;
      }
    }
    return best;
  }

 private:
  ClusterTaps(const StagedTaps& taps, int depth_parts, int row_parts_, std::size_t element_bytes)
      : TapRows(taps, parts(taps.output_size[0], depth_parts), parts(taps.output_size[1], row_parts_), taps.output_size[2], element_bytes),
        row_parts(row_parts_),
        blocks(depth_parts * row_parts_) {}

  /// Rows of pixels that a warpgroup takes one after another, where each multiprocessor has a block.
  std::int64_t rows_in_turn(int device) const {
    const std::int64_t clusters = cuda::properties(device).multiprocessors / blocks, rounds = (planes.samples + clusters - 1) / clusters;
    return rounds * parts(strips(), warpgroups) * (size[1] + slots - 1);
  }
};

/// What a block knows of its channels: the norm of a product, less the bias, is product * slope + shift.
struct ChannelMaps {
  float bias[out_channels], slope[out_channels], shift[out_channels], post_scale[out_channels];
};

template <class Stored, bool deep>
class TapMaxima {
 public:
  using Totals = ClusterTotals<ShiftedSums, ClusterTaps::threads>;
  using Outputs = MaximumOutputs<Stored, std::uint8_t>;
  static constexpr int thread_channels = 4, thread_positions = 2;

  __device__ TapMaxima(const ClusterTaps& tiles, const KernelWeight<Stored>& weight, const Parameter<Stored>& bias, bool biased,
                       std::byte* memory, cuda::ByteBarrier* barriers, ChannelMaps& maps)
      : tiles_(tiles),
        weight_(reinterpret_cast<Stored*>(memory)),
        staged_(reinterpret_cast<Stored*>(memory + tiles.weight_bytes())),
        maps_(maps),
        rank_(static_cast<int>(blockIdx.x) % tiles.blocks),
        totals_(memory + tiles.weight_bytes() + tiles.bytes, barriers, out_channels, rank_, tiles.blocks),
        depth_(rank_ / tiles.row_parts * tiles.size[0]),
        row_(rank_ % tiles.row_parts * tiles.size[1]) {
    tiles.stage_weight<ClusterTaps::threads>(weight_, weight);
    if (threadIdx.x < out_channels) maps.bias[threadIdx.x] = biased ? bias[threadIdx.x] : 0;
  }

  template <class Image>
  __device__ void stage(const Image* image, std::int64_t n) const {
    __syncthreads();  // the sample before was used
    tiles_.stage_chunks<ClusterTaps::threads>(staged_, image, n, depth_, row_, 0);
    __syncthreads();
  }

  /// Makes the maps of sample n, and writes what the convolution gives where that is wanted.
  template <Write write>
  __device__ void find_statistics(const Convolved<Stored>& convolved, const FinalizeInstances<Stored>& finalize, std::int64_t n) {
    sum<write>(convolved, n);
    totals_.exchange(ClusterTaps::warps);
    if (threadIdx.x < out_channels) {
      const int c = static_cast<int>(threadIdx.x);
      const float bias = maps_.bias[c];
      const DeviceMoments moments(totals_.total(c), bias, 1 / static_cast<double>(pixels()));
      const InstanceMap<float> map = finalize.map(n * out_channels + c, moments, finalize.scale[c], finalize.post_scale[c], rank_ == 0);
      maps_.slope[c] = map.slope;
      maps_.shift[c] = fmaf(bias - map.reference, map.slope, map.shift);
      maps_.post_scale[c] = map.post_scale;
    }
    __syncthreads();
  }

  template <bool has_argmax>
  __device__ void find_maxima(const Outputs& outputs, const Clamp<float>& clamp, std::int64_t n) const {
    using Best = std::conditional_t<has_argmax, Candidate, LargestValue>;
    using Channels = cuda::Vector<float, thread_channels>;
    const auto slope = *reinterpret_cast<const Channels*>(maps_.slope + first_channel()),
               shift = *reinterpret_cast<const Channels*>(maps_.shift + first_channel()),
               post_scale = *reinterpret_cast<const Channels*>(maps_.post_scale + first_channel());
    for_each_row([&](const Positions& positions, int row, const float(&products)[8]) {
      Best best_of[thread_positions];
#pragma unroll
      for (int h = 0; h < thread_positions; ++h) {
        Best best[thread_channels];
#pragma unroll
        for (int i = 0; i < thread_channels; ++i) {
          const float product = products[i / 2 * 4 + 2 * h + i % 2], normalized = fmaf(product, slope[i], shift[i]);
          const float value = fmaf(smaller(larger(normalized, clamp.low), clamp.high), post_scale[i], 0.0f);  // not -0
          best[i] = Best::of(value, first_channel() + i, product);
          if (i % 2 == 1) best[i - 1].take(best[i], false);
        }
        best[0].take(best[2], false);
        best_of[h] = best[0];
      }
      // Of the two positions that four threads have in common two keep the one and two the other; the higher have the higher channels.
      const bool odd = lane() % 2 != 0, high = lane() / 2 % 2 != 0;
      Best best = best_of[0], given = best_of[1];
      best.replace(best_of[1], odd);
      given.replace(best_of[0], odd);
      best.take(given.from(1), odd);
      best.take(best.from(2), high);
      const int pixel = odd ? positions.pixel[1] : positions.pixel[0];
      if (high || pixel < 0) return;
      const std::int64_t place = n * pixels() + pixel + row * tiles_.output_size[2];
      if (outputs.output != nullptr) outputs.output[place] = convert<Stored>(best.value());
      if constexpr (has_argmax) {
        if (outputs.argmax != nullptr) outputs.argmax[place] = static_cast<std::uint8_t>(best.channel);
        if (outputs.argmax_input != nullptr) outputs.argmax_input[place] = convert<Stored>(best.element + maps_.bias[best.channel]);
      }
    });
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / cuda::warp_size; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % cuda::warp_size; }
  __device__ static int first_channel() { return lane() % 4 * thread_channels; }
  __device__ int pixels() const { return static_cast<int>(tiles_.output_size[0] * tiles_.output_size[1] * tiles_.output_size[2]); }

  /// The thread's positions in a strip: their pixels in the sample's first row, or -1 where there is none.
  struct Positions {
    int pixel[thread_positions];
  };

  /// Calls body(positions, row, products) for each row of the warpgroup's strips; see TapRows::for_each_row.
  template <class Body>
  __device__ void for_each_row(const Body& body) const {
    const int group = __shfl_sync(~0u, warp() / 4, 0);  // known to be the same for the warp
    const int count = min(tiles_.size[1], tiles_.output_size[1] - row_), depths = min(tiles_.size[0], tiles_.output_size[0] - depth_);
    const std::uint32_t staged = cuda::shared_address(staged_), weight = cuda::shared_address(weight_);
    if (count <= 0) return;
#pragma unroll 1
    for (int strip = group; strip < tiles_.strips(); strip += ClusterTaps::warpgroups) {
      const auto number = static_cast<std::uint32_t>(strip), strip_depth = tiles_.column_strips.quotient(number);
      const int strip_column = static_cast<int>(tiles_.column_strips.remainder(number, strip_depth));
      const int z = static_cast<int>(strip_depth) * (tiles_.wide ? 1 : TapRows::groups);
      const int x = strip_column * TapRows::side * (tiles_.wide ? TapRows::groups : 1);
      if (z >= depths) continue;
      Positions positions;
#pragma unroll
      for (int h = 0; h < thread_positions; ++h) {
        const int number_of_group = warp() % 4 * thread_positions + h;
        const int depth = z + (tiles_.wide ? 0 : number_of_group),
                  column = x + lane() / 4 + (tiles_.wide ? number_of_group * TapRows::side : 0);
        const int first = ((depth_ + depth) * tiles_.output_size[1] + row_) * tiles_.output_size[2] + column;
        positions.pixel[h] = depth < depths && column < tiles_.output_size[2] ? first : -1;
      }
      const int offset = z * tiles_.depth_step + x * tiles_.pixel_step;
      tiles_.template for_each_row<Stored, deep>(count, staged + static_cast<std::uint32_t>(offset) * sizeof(Stored), weight,
                                                 [&](int row, const float(&products)[8]) { body(positions, row, products); });
    }
  }

  /// Puts the sums of what the warp has of the channels.
  template <Write write>
  __device__ void sum(const Convolved<Stored>& convolved, std::int64_t n) const {
    Stored* const sample = convolved.elements + n * convolved.pixels * out_channels;
    float sums[thread_channels] = {}, squares[thread_channels] = {};
    const auto bias = *reinterpret_cast<const cuda::Vector<float, thread_channels>*>(maps_.bias + first_channel());
    for_each_row([&](const Positions& positions, int row, const float(&products)[8]) {
#pragma unroll
      for (int h = 0; h < thread_positions; ++h) {
        const bool exists = positions.pixel[h] >= 0;
#pragma unroll
        for (int i = 0; i < thread_channels; ++i) {
          const float product = exists ? products[i / 2 * 4 + 2 * h + i % 2] : 0;
          sums[i] += product;
          squares[i] = fmaf(product, product, squares[i]);
        }
        if constexpr (write != Write::not_at_all) {
          if (!exists) continue;
          cuda::Vector<Stored, thread_channels> elements;
#pragma unroll
          for (int i = 0; i < thread_channels; ++i) elements[i] = convert<Stored>(products[i / 2 * 4 + 2 * h + i % 2] + bias[i]);
          const int pixel = positions.pixel[h] + row * tiles_.output_size[2];
          convolved.template write<write>(sample, pixel, first_channel(), elements);
        }
      }
    });
#pragma unroll
    for (int i = 0; i < thread_channels; ++i) {
#pragma unroll
      for (int mask = 4; mask < cuda::warp_size; mask *= 2) {
        sums[i] += __shfl_xor_sync(~0u, sums[i], mask);
        squares[i] += __shfl_xor_sync(~0u, squares[i], mask);
      }
      if (lane() < 4) totals_.partials[warp() * out_channels + first_channel() + i] = {sums[i], squares[i]};
    }
  }

  const ClusterTaps& tiles_;
  Stored *weight_, *staged_;
  ChannelMaps& maps_;
  int rank_;
  Totals totals_;
  int depth_, row_;  ///< the block's first position
};

/// A cluster a sample, as many clusters as run at a time, which loop over the samples with that stride. Reads the image and writes the
/// results. Deterministic.
template <class Stored, class Image, bool deep, bool trains>
__global__ void __launch_bounds__(ClusterTaps::threads, 1)
    find_maxima_of_taps(const __grid_constant__ ConvolutionMaximumCall<Stored> call, const Image* image,
                        const __grid_constant__ ClusterTaps tiles) {
  using Maxima = TapMaxima<Stored, deep>;
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier barriers[Maxima::Totals::rounds];
  __shared__ __align__(16) ChannelMaps maps;
  Maxima maxima(tiles, call.weight, call.bias, call.biased, memory, barriers, maps);
  const unsigned blocks = static_cast<unsigned>(tiles.blocks);
  for (std::int64_t n = blockIdx.x / blocks; n < tiles.planes.samples; n += gridDim.x / blocks) {
    maxima.stage(image, n);
    if (!trains || call.convolved.way == Write::not_at_all) {
      maxima.template find_statistics<Write::not_at_all>(call.convolved, call.finalize, n);
    } else if (call.convolved.way == Write::channels_last) {
      maxima.template find_statistics<Write::channels_last>(call.convolved, call.finalize, n);
    } else {
      maxima.template find_statistics<Write::contiguous>(call.convolved, call.finalize, n);
    }
    maxima.template find_maxima<trains>(call.outputs, call.clamp, n);
  }
}

using Totals = ClusterTotals<ShiftedSums, ClusterTaps::threads>;

/// Neither where the calls must run in turn.
struct Tiles {
  std::optional<ClusterTaps> taps;        ///< for tensor cores
  std::optional<ClusterPatches> patches;  ///< in strict float32

  explicit Tiles(const KernelContext& call) : Tiles(call.inputs[0], types_of(call.inputs.first(2))[1], call.as<OwnAttributes>().padding) {}
  Tiles(const Tensor& image, const TensorType& weight, const Dims& padding) {
    constexpr std::size_t rest = out_channels * Totals::channel_bytes + sizeof(ChannelMaps) + 512;  // and what else the kernel declares
    if (!has_convolution_instance_norm_max_kernels({image.dtype(), image.shape()}, weight, padding)) return;
    if (on_tensor_cores(weight.dtype)) {
      taps = ClusterTaps::of(image, weight, padding, rest);
    } else {
      patches = ClusterPatches::of(image, weight, padding);
    }
  }
};

bool takes(const KernelContext& call) {
  const Tiles tiles(call);
  return tiles.taps || tiles.patches;
}

template <class Stored, class Image, bool deep>
void run_clusters(const KernelContext& call, const ClusterTaps& tiles) {
  const Tensor& image = call.inputs[0];
  const ConvolutionMaximumCall<Stored> given(call);
  auto* const kernel = given.trains() ? &find_maxima_of_taps<Stored, Image, deep, true> : &find_maxima_of_taps<Stored, Image, deep, false>;
  cuda::LaunchShape shape{dim3(1), dim3(ClusterTaps::threads), tiles.weight_bytes() + tiles.bytes + out_channels * Totals::channel_bytes};
  const std::int64_t clusters = std::min<std::int64_t>(cuda::resident_clusters(kernel, shape, tiles.blocks), tiles.planes.samples);
  FRIT_CHECK(clusters > 0);
  shape.grid = dim3(static_cast<unsigned>(clusters * tiles.blocks));
  cuda::launch_clusters(kernel, shape, tiles.blocks, call.stream, given, image.data<Image>(), tiles);
}

/// inputs (image, weight, scale, post_scale, bias or none), outputs (output, argmax, mean, rstd, argmax_input, convolved)
void run_forward(const KernelContext& call) {
  const Tiles tiles(call);
  if (tiles.patches) return run_patches(call, *tiles.patches);
  dispatch_weight_and_image(call.inputs[1].dtype(), call.inputs[0].dtype(), [&]<class Stored, class Image>() {
    auto* const run = tiles.taps->taps[0] > 1 ? &run_clusters<Stored, Image, true> : &run_clusters<Stored, Image, false>;
    run(call, *tiles.taps);
  });
}

std::size_t forward_scratch(const InferContext& call) {
  const Device device = cuda::current_device();
  const Tiles tiles(UnplacedCall(call, device).context());
  return tiles.patches ? scratch_of(*tiles.patches, device.index) : 0;
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(convolution_scale_instance_norm_clamp_scale_max) {
  using namespace frit::ops;
  const Kernel own{.run = run_forward, .scratch = forward_scratch, .any_layout_inputs = {0}, .any_layout_outputs = {5}};
  registry.add_cuda("convolution_scale_instance_norm_clamp_scale_max",
                    packed_kernel(convolution_instance_norm_max_rule, /*computed=*/1, own, takes));
}
