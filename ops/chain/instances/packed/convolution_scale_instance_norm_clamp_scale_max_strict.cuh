#pragma once

#include <optional>

#include "frit/ops/chain/instances/packed/convolution_scale_instance_norm_clamp_scale_max.cuh"
#include "frit/ops/convolution/tiles/output_tiles.cuh"
#include "frit/ops/convolution/tiles/planar_taps.cuh"
#include "frit/ops/cuda/cluster_totals.cuh"
#include "frit/ops/operator/run.h"

// The forward kernel in strict float32: a pass over the image in shared memory, which stores what the convolution gives and sums it up, and
// then one over what was stored, which is still in the cache.

namespace frit::ops {

/// The patches of a sample, dealt out to the blocks of a cluster: each has a box of them.
struct ClusterPatches : PlanarTaps {
  static constexpr int out_channels = ConvolutionMaximumCall<float>::out_channels;
  static constexpr int warps = 12, threads = warps * cuda::warp_size;  ///< to a multiprocessor, as registers allow
  static constexpr int lanes = out_channels / patch_channels;          ///< that share a patch, each with its channels
  static constexpr int at_once = cuda::warp_size / lanes;              ///< patches of a warp
  using Totals = ClusterTotals<ShiftedSums, 16 * cuda::warp_size>;     ///< of warps whose number is a power of 2

  int row_parts, blocks;                      ///< of a cluster
  int size[3];                                ///< positions of a box along each axis
  cuda::Divisor column_patches, row_patches;  ///< of a box: along rows, and across them
  int patch_count;

  /// Nothing if there is no room, or no clusters.
  static std::optional<ClusterPatches> of(const Tensor& image, const TensorType& weight, const Dims& padding) {
    const int device = image.device().index;
    const StagedTaps taps = StagedTaps::of_convolution(image, image_of(weight.shape), padding);
    if (!fit(taps) || cuda::properties(device).capability < 90) return std::nullopt;
    constexpr std::size_t rest = 1024;  // for what the kernel declares
    std::optional<ClusterPatches> best;
    for (int blocks = 1; blocks <= cuda::most_cluster_blocks; blocks *= 2) {
      for (int row_parts = 1; row_parts <= blocks; row_parts *= 2) {
        const ClusterPatches other(taps, blocks / row_parts, row_parts);
        if (other.shared_bytes() + rest > shared_room(1, device)) continue;
        if (!best || other.rounds(device) < best->rounds(device)) best = other;
      }
    }
    return best;
  }

  std::size_t shared_bytes() const { return weight_bytes(out_channels) + staged_bytes + out_channels * Totals::channel_bytes; }
  /// At most, on such a device.
  std::int64_t clusters(int device) const {
    return std::clamp<std::int64_t>(cuda::properties(device).multiprocessors / blocks, 1, std::max<std::int64_t>(1, planes.samples));
  }

 private:
  ClusterPatches(const StagedTaps& taps, int depth_parts, int row_parts_)
      : PlanarTaps(taps),
        row_parts(row_parts_),
        blocks(depth_parts * row_parts_),
        size{parts(taps.output_size[0], depth_parts), parts(parts(taps.output_size[1], row_parts_), patch) * patch, taps.output_size[2]},
        column_patches(patches(size[2])),
        row_patches(patches(size[1])),
        patch_count(size[0] * patches(size[1]) * patches(size[2])) {
    lay_out_planes(size[0], size[1], size[2]);
  }
  static int parts(int count, int of) { return (count + of - 1) / of; }
  /// Patches that a warp takes one after another.
  std::int64_t rounds(int device) const {
    const std::int64_t all = clusters(device);
    return (planes.samples + all - 1) / all * parts(parts(patch_count, at_once), warps);
  }
};

/// What a thread has to do with its patches.
template <bool trains>
class PatchMaxima {
 public:
  using Best = std::conditional_t<trains, Candidate, LargestValue>;
  using Channels = cuda::Vector<float, PlanarTaps::patch_channels>;
  static constexpr int patch = PlanarTaps::patch, thread_channels = PlanarTaps::patch_channels;

  __device__ PatchMaxima(const ConvolutionMaximumCall<float>& call, const ClusterPatches& tiles, int rank)
      : call_(call), tiles_(tiles), depth_(rank / tiles.row_parts * tiles.size[0]), row_(rank % tiles.row_parts * tiles.size[1]) {}

  __device__ int depth() const { return depth_; }
  __device__ int row() const { return row_; }
  __device__ static int first_channel() { return own() * thread_channels; }

  /// Stores what the convolution gives in the box, and adds up what of it is the thread's.
  template <Write way>
  __device__ void convolve(ThreadSums<float> (&sums)[thread_channels], int& count, float* sample, const float* staged, const float* weight,
                           const Channels& bias) const {
    for_each_patch([&](const Patch& place) {
      PlanarTaps::Sums x;
      tiles_.convolve(x, bias, staged + place.offset, weight + first_channel(), ClusterPatches::out_channels);
      if (count == 0 && place.has(0, 0)) {
#pragma unroll
        for (int i = 0; i < thread_channels; ++i) sums[i] = ThreadSums<float>(x[i][0][0]);
      }
#pragma unroll
      for (int r = 0; r < patch; ++r) {
#pragma unroll
        for (int c = 0; c < patch; ++c) {
          const bool exists = place.has(r, c);
          Channels elements;
#pragma unroll
          for (int i = 0; i < thread_channels; ++i) {
            elements[i] = x[i][r][c];
            sums[i].add(exists ? elements[i] : sums[i].pivot());
          }
          if (exists) call_.convolved.write<way>(sample, place.pixel + r * tiles_.output_size[2] + c, first_channel(), elements);
        }
      }
      count += place.count();
    });
  }

  /// The maxima of what `convolve` stored.
  template <Write way>
  __device__ void find(const float* sample, const InstanceMap<float> (&maps)[thread_channels], std::int64_t n) const {
    const int pixels = tiles_.output_size[0] * tiles_.output_size[1] * tiles_.output_size[2];
    for_each_patch([&](const Patch& place) {
      Channels elements[patch][patch];
#pragma unroll
      for (int r = 0; r < patch; ++r) {
#pragma unroll
        for (int c = 0; c < patch; ++c) {
          elements[r][c] = {};
          if (place.has(r, c))
            elements[r][c] = call_.convolved.read<way>(sample, place.pixel + r * tiles_.output_size[2] + c, first_channel());
        }
      }
#pragma unroll
      for (int c = 0; c < patch; ++c) {
        Best best[patch];
#pragma unroll
        for (int r = 0; r < patch; ++r) best[r] = best_of(elements[r][c], maps);
        // Of the four elements that the threads of a patch have in common each keeps its own; the higher threads have the higher channels.
        const bool high = own() / 2 != 0, odd = own() % 2 != 0;
        Best kept[2] = {best[0], best[1]}, given[2] = {best[2], best[3]};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          kept[i].replace(best[2 + i], high);
          given[i].replace(best[i], high);
          kept[i].take(given[i].from(2), high);
        }
        Best result = kept[0], other = kept[1];
        result.replace(kept[1], odd);
        other.replace(kept[0], odd);
        result.take(other.from(1), odd);
        if (place.has(own(), c)) write(result, n * pixels + place.pixel + own() * tiles_.output_size[2] + c);
      }
    });
  }

 private:
  /// Of the lanes of a patch; neighbours.
  __device__ static int own() { return static_cast<int>(threadIdx.x) % ClusterPatches::lanes; }

  struct Patch {
    int offset, pixel;  ///< of its first position: in shared memory, and in the sample
    int rows, columns;  ///< that exist, of the rest of the box

    __device__ bool has(int row, int column) const { return row < rows && column < columns; }
    __device__ int count() const { return min(max(rows, 0), patch) * min(columns, patch); }
  };
  /// Calls body(patch) for the thread's patches; for all threads of a warp, together.
  template <class Body>
  __device__ void for_each_patch(const Body& body) const {
    const int warp = static_cast<int>(threadIdx.x) / cuda::warp_size, lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
#pragma unroll 1
    for (int first = warp * ClusterPatches::at_once; first < tiles_.patch_count; first += ClusterPatches::warps * ClusterPatches::at_once) {
      const int wanted = first + lane / ClusterPatches::lanes;
      const auto number = static_cast<std::uint32_t>(min(wanted, tiles_.patch_count - 1)), line = tiles_.column_patches.quotient(number),
                 depth = tiles_.row_patches.quotient(line);
      const int z = static_cast<int>(depth), y = static_cast<int>(tiles_.row_patches.remainder(line, depth)) * patch,
                x = static_cast<int>(tiles_.column_patches.remainder(number, line)) * patch;
      const bool exists = wanted < tiles_.patch_count && depth_ + z < tiles_.output_size[0];
      body(Patch{z * tiles_.depth_step + y * tiles_.row_step + x,
                 ((depth_ + z) * tiles_.output_size[1] + row_ + y) * tiles_.output_size[2] + x,
                 exists ? tiles_.output_size[1] - row_ - y : 0, tiles_.output_size[2] - x});
    }
  }

  __device__ Best best_of(const Channels& elements, const InstanceMap<float> (&maps)[thread_channels]) const {
    Best best[thread_channels];
#pragma unroll
    for (int i = 0; i < thread_channels; ++i) {
      const float normalized = maps[i].normalized(elements[i]);
      const float value = fmaf(smaller(larger(normalized, call_.clamp.low), call_.clamp.high), maps[i].post_scale, 0.0f);  // not -0
      best[i] = Best::of(value, first_channel() + i, elements[i]);
      if (i > 0) best[0].take(best[i], false);
    }
    return best[0];
  }
  __device__ void write(const Best& best, std::int64_t place) const {
    const auto& outputs = call_.outputs;
    if (outputs.output != nullptr) outputs.output[place] = best.value();
    if constexpr (trains) {
      if (outputs.argmax != nullptr) outputs.argmax[place] = static_cast<std::uint8_t>(best.channel);
      if (outputs.argmax_input != nullptr) outputs.argmax_input[place] = best.element;
    }
  }

  const ConvolutionMaximumCall<float>& call_;
  const ClusterPatches& tiles_;
  int depth_, row_;  ///< the block's first position
};

/// A cluster a sample, as many clusters as run at a time, which loop over the samples with that stride. Reads the image and writes what the
/// convolution gives, of each sample or, where nobody wants it, of a cluster's last one, and the results. Deterministic.
template <Write way, bool trains>
__global__ void __launch_bounds__(ClusterPatches::threads, 1)
    find_maxima_of_patches(const __grid_constant__ ConvolutionMaximumCall<float> call, bool keeps, const float* image,
                           const __grid_constant__ ClusterPatches tiles) {
  constexpr int out_channels = ClusterPatches::out_channels, thread_channels = PlanarTaps::patch_channels;
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier barriers[ClusterPatches::Totals::rounds];
  __shared__ InstanceMap<float> maps[out_channels];
  __shared__ float biases[out_channels];
  auto* const weight = reinterpret_cast<float*>(memory);
  auto* const staged = reinterpret_cast<float*>(memory + tiles.weight_bytes(out_channels));
  const int rank = static_cast<int>(blockIdx.x) % tiles.blocks, lane = static_cast<int>(threadIdx.x) % cuda::warp_size,
            warp = static_cast<int>(threadIdx.x) / cuda::warp_size, first_channel = PatchMaxima<trains>::first_channel();
  ClusterPatches::Totals totals(memory + tiles.weight_bytes(out_channels) + tiles.staged_bytes, barriers, out_channels, rank, tiles.blocks);
  const PatchMaxima<trains> patches(call, tiles, rank);
  tiles.stage_weight(weight, out_channels, [&](int channel, int c, int tap) {
    return call.weight.elements[channel * call.weight.row + c * call.weight.channel + tap * call.weight.tap];
  });
  if (threadIdx.x < out_channels) biases[threadIdx.x] = call.biased ? call.bias[threadIdx.x] : 0;
  const double share = 1 / static_cast<double>(tiles.output_size[0] * tiles.output_size[1] * tiles.output_size[2]);
  const unsigned blocks = static_cast<unsigned>(tiles.blocks), cluster = blockIdx.x / blocks;
  for (std::int64_t n = cluster; n < tiles.planes.samples; n += gridDim.x / blocks) {
    __syncthreads();  // the sample before was used
    tiles.stage_planes<ClusterPatches::threads>(staged, image, n, patches.depth(), patches.row(), 0);
    cuda::wait_for_copies();
    __syncthreads();
    float* const sample = call.convolved.elements + (keeps ? n : cluster) * call.convolved.pixels * out_channels;
    typename PatchMaxima<trains>::Channels bias;
    for (int i = 0; i < thread_channels; ++i) bias[i] = biases[first_channel + i];
    ThreadSums<float> sums[thread_channels];
    int count = 0;
    patches.template convolve<way>(sums, count, sample, staged, weight, bias);
#pragma unroll
    for (int i = 0; i < thread_channels; ++i) {
      ShiftedSums total = sums[i].shifted(count, bias[i]);
#pragma unroll
      for (int mask = ClusterPatches::lanes; mask < cuda::warp_size; mask *= 2) total = total + cuda::shuffle_xor(total, mask);
      if (lane < ClusterPatches::lanes) totals.partials[warp * out_channels + first_channel + i] = total;
    }
    totals.exchange(ClusterPatches::warps);
    if (threadIdx.x < out_channels) {
      const int c = static_cast<int>(threadIdx.x);
      const DeviceMoments moments(totals.total(c), biases[c], share);
      maps[c] = call.finalize.map(n * out_channels + c, moments, call.finalize.scale[c], call.finalize.post_scale[c], rank == 0);
    }
    __syncthreads();
    InstanceMap<float> own[thread_channels];
    for (int i = 0; i < thread_channels; ++i) own[i] = maps[first_channel + i];
    patches.template find<way>(sample, own, n);
  }
}

/// Bytes of scratch memory for what the convolution gives, where nobody wants it.
inline std::size_t scratch_of(const ClusterPatches& tiles, int device) {
  const std::int64_t pixels = static_cast<std::int64_t>(tiles.output_size[0]) * tiles.output_size[1] * tiles.output_size[2];
  return static_cast<std::size_t>(tiles.clusters(device) * pixels * ClusterPatches::out_channels) * sizeof(float);
}

inline void run_patches(const KernelContext& context, const ClusterPatches& tiles) {
  const Tensor& image = context.inputs[0];
  ConvolutionMaximumCall<float> call(context);
  const bool keeps = call.convolved.way != Write::not_at_all, trains = call.trains();
  if (!keeps) {
    call.convolved.way = Write::channels_last;
    call.convolved.elements = reinterpret_cast<float*>(context.scratch.data());
    call.convolved.pixels = static_cast<std::int64_t>(tiles.output_size[0]) * tiles.output_size[1] * tiles.output_size[2];
  }
  auto* const kernel = call.convolved.way == Write::contiguous ? &find_maxima_of_patches<Write::contiguous, true>
                       : trains                                ? &find_maxima_of_patches<Write::channels_last, true>
                                                               : &find_maxima_of_patches<Write::channels_last, false>;
  cuda::LaunchShape shape{dim3(1), dim3(ClusterPatches::threads), tiles.shared_bytes()};
  const std::int64_t clusters =
      std::min<std::int64_t>(cuda::resident_clusters(kernel, shape, tiles.blocks), tiles.clusters(image.device().index));
  FRIT_CHECK(clusters > 0);
  shape.grid = dim3(static_cast<unsigned>(clusters * tiles.blocks));
  cuda::launch_clusters(kernel, shape, tiles.blocks, context.stream, call, keeps, image.data<float>(), tiles);
}

}  // namespace frit::ops
