#pragma once

#include "frit/core/cuda/vector.h"
#include "frit/ops/fused/chain_cuda.h"
#include "frit/ops/cuda/cluster_totals.h"

namespace frit::ops {

// Samples (C, pixels) that a cluster of blocks holds in shared memory, so that they are read once however often they are walked over. A
// block holds all channels of a few chunks of pixels, and while it works on one sample the copy engine brings the next.

/// The layout of shared memory and the share of each block.
struct HeldSamples {
  static constexpr int chunks = 4;  ///< of a block
  static constexpr int threads = 1024;
  static constexpr int most_buffers = 2;
  static constexpr int width = 4;  ///< channels that a thread looks at together, channels-last

  Planes planes;
  int blocks = 0;  ///< of a cluster; 0: the samples do not fit
  int buffers = 0, chunk_pixels = 0, lanes = 1;
  std::size_t chunk_bytes = 0, rest_offset = 0, shared_bytes = 0;

  /// `channel_bytes` and `pixel_bytes` are what the kernel wants besides for each channel and each of a block's pixels.
  template <class Stored>
  static HeldSamples plan(const Tensor& input, std::size_t channel_bytes, std::size_t pixel_bytes) {
    HeldSamples held(Planes(input.shape()));
    const Places places(input, held.planes);
    const cuda::DeviceProperties& device = cuda::properties(input.device().index);
    const std::int64_t vector = cuda::vector_width<Stored>, inner = places.channels_last() ? held.planes.channels : held.planes.pixels;
    if (device.capability < 90 || !cuda::aligned_for_vectors(input.raw()) || inner % vector != 0 || held.planes.pixels == 0) return held;
    if (places.channels_last() && held.planes.channels > width * cuda::warp_size) return held;
    if (places.channels_last()) held.lanes = lanes_for(held.planes.channels / width);
    const std::int64_t room = static_cast<std::int64_t>(device.shared_per_block) - 1024;  // less what a kernel declares
    for (int buffers = most_buffers; buffers >= 1; --buffers) {
      for (int blocks = 1; blocks <= cuda::most_cluster_blocks; blocks *= 2) {
        const bool few = held.planes.samples * blocks < device.multiprocessors && blocks < cuda::most_cluster_blocks;
        const std::int64_t parts = blocks * chunks * vector;
        const std::int64_t pixels = (held.planes.pixels + parts - 1) / parts * vector;
        const std::int64_t chunk = pixels * held.planes.channels * static_cast<std::int64_t>(sizeof(Stored));
        const std::int64_t rest =
            held.planes.channels * static_cast<std::int64_t>(channel_bytes) + chunks * pixels * static_cast<std::int64_t>(pixel_bytes);
        if (few || buffers * chunks * chunk + rest > room) continue;
        held.blocks = blocks;
        held.buffers = buffers;
        held.chunk_pixels = static_cast<int>(pixels);
        held.chunk_bytes = static_cast<std::size_t>(chunk);
        held.rest_offset = static_cast<std::size_t>(buffers * chunks * chunk);
        held.shared_bytes = held.rest_offset + static_cast<std::size_t>(rest);
        return held;
      }
    }
    return held;
  }

  explicit HeldSamples(const Planes& planes_) : planes(planes_) {}

  /// Starts as many clusters as run at a time, at most one a sample; false if the device runs none.
  template <class... Parameters, class... Arguments>
  bool launch(void (*kernel)(Parameters...), cudaStream_t stream, const Arguments&... arguments) const {
    cuda::LaunchShape shape{dim3(1), dim3(threads), shared_bytes};
    const std::int64_t clusters = std::min<std::int64_t>(cuda::resident_clusters(kernel, shape, blocks), planes.samples);
    if (clusters == 0) return false;
    shape.grid = dim3(static_cast<unsigned>(clusters * blocks));
    cuda::launch_clusters(kernel, shape, blocks, stream, arguments...);
    return true;
  }
};

/// Sums of each channel over the blocks that hold a sample.
template <class Sums>
using HeldTotals = ClusterTotals<Sums, HeldSamples::threads>;

/// A block's view of the samples that its cluster goes through: turn 0, 1, ... All memory is walked over in chunks.
template <class Stored, bool channels_last>
class SampleHolder {
 public:
  static constexpr int width = channels_last ? HeldSamples::width : 1;
  using Elements = cuda::Vector<Stored, width>;

  /// `barriers` are in shared memory, HeldSamples::most_buffers times `chunks` of them.
  __device__ SampleHolder(const Stored* input, const HeldSamples& held, std::byte* memory, cuda::ByteBarrier* barriers, int rank)
      : held_(held), input_(input), memory_(memory), barriers_(barriers), first_(rank * HeldSamples::chunks) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < held.buffers * HeldSamples::chunks; ++i) barriers[i].init();
    }
    __syncthreads();
  }

  /// By the first warp: has a chunk of sample n brought for a turn. What was there has been read before the block's last barrier.
  __device__ void request(unsigned turn, int chunk, std::int64_t n) const {
    const int lane = static_cast<int>(threadIdx.x), pixels = pixels_of(chunk);
    const std::int64_t channels = held_.planes.channels, row_bytes = pixels * static_cast<std::int64_t>(sizeof(Stored));
    cuda::ByteBarrier& barrier = barriers_[place(turn, chunk)];
    if (lane == 0) barrier.expect(static_cast<unsigned>(row_bytes * channels));
    __syncwarp();
    if (pixels == 0) return;
    auto* const to = reinterpret_cast<Stored*>(memory_ + place(turn, chunk) * held_.chunk_bytes);
    const Stored* const sample = input_ + n * channels * held_.planes.pixels;
    if constexpr (channels_last) {
      if (lane == 0) barrier.copy(to, sample + begin_of(chunk) * channels, static_cast<unsigned>(row_bytes * channels));
    } else {
      for (std::int64_t c = lane; c < channels; c += cuda::warp_size) {
        const Stored* const row = sample + c * held_.planes.pixels + begin_of(chunk);
        barrier.copy(to + c * held_.chunk_pixels, row, static_cast<unsigned>(row_bytes));
      }
    }
  }
  /// A chunk's elements, once they are there.
  __device__ const Stored* wait(unsigned turn, int chunk) const {
    barriers_[place(turn, chunk)].wait(turn >> (held_.buffers - 1) & 1);
    return elements(turn, chunk);
  }
  __device__ const Stored* elements(unsigned turn, int chunk) const {
    return reinterpret_cast<const Stored*>(memory_ + place(turn, chunk) * held_.chunk_bytes);
  }
  /// `width` channels of a chunk's pixel, from channel c on.
  __device__ Elements at(const Stored* elements, int c, int pixel) const {
    return *reinterpret_cast<const Elements*>(elements + offset(c, pixel));
  }
  __device__ Stored one(const Stored* elements, int c, int pixel) const { return elements[offset(c, pixel)]; }

  /// The pixel that a chunk begins with, and how many it has.
  __device__ std::int64_t begin_of(int chunk) const { return static_cast<std::int64_t>(first_ + chunk) * held_.chunk_pixels; }
  __device__ int pixels_of(int chunk) const {
    const std::int64_t left = held_.planes.pixels - begin_of(chunk);
    return static_cast<int>(left < 0 ? 0 : left < held_.chunk_pixels ? left : held_.chunk_pixels);
  }

 private:
  __device__ unsigned place(unsigned turn, int chunk) const {
    return (turn & static_cast<unsigned>(held_.buffers - 1)) * HeldSamples::chunks + static_cast<unsigned>(chunk);
  }

  __device__ int offset(int c, int pixel) const {
    return channels_last ? pixel * static_cast<int>(held_.planes.channels) + c : c * held_.chunk_pixels + pixel;
  }

  const HeldSamples& held_;
  const Stored* input_;
  std::byte* memory_;
  cuda::ByteBarrier* barriers_;
  int first_;
};

}  // namespace frit::ops
