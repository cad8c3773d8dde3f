#pragma once

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/cuda/cluster_totals.cuh"
#include "frit/ops/cuda/planes.cuh"

namespace frit::ops {

// Samples (C, pixels) that a cluster of blocks holds in shared memory, so that they are read once however often they are passed over. A
// block holds all channels of some pixels. Two clusters share their multiprocessors where there is room: one computes while the copy engine
// brings the other's next sample.

/// The share of each block, which comes and goes in chunks: half of `chunks`, and a few more for the rest.
template <int threads_, int chunks_>
struct SampleShares {
  static constexpr int threads = threads_;
  static constexpr int warps = threads / cuda::warp_size;
  static constexpr int chunks = chunks_;
  static constexpr int most_resident = 2;  ///< blocks of a multiprocessor
  static constexpr int width = 4;          ///< channels that a thread looks at together, channels-last

  Planes planes;
  int blocks = 0;  ///< of a cluster; 0: the samples do not fit
  int share = 0, chunk_pixels = 0;
  int lanes = 1;  ///< threads that share a pixel
  std::size_t rest_offset = 0, shared_bytes = 0;

  /// `channel_bytes` is what the kernel wants for itself, a channel.
  template <class Stored>
  static SampleShares plan(const Tensor& input, std::size_t channel_bytes) {
    SampleShares held(Planes(input.shape()));
    const bool channels_last = Places(input, held.planes).channels_last();
    const cuda::DeviceProperties& device = cuda::properties(input.device().index);
    const std::int64_t vector = cuda::vector_width<Stored>, channels = held.planes.channels, pixels = held.planes.pixels;
    if (device.capability < 90 || !cuda::aligned_for_vectors(input.raw()) || pixels == 0 || channels > threads) return held;
    if ((channels_last ? channels : pixels) % vector != 0 || (channels_last && channels > width * cuda::warp_size)) return held;
    if (channels_last) held.lanes = lanes_for(channels / width);
    for (std::size_t resident = most_resident; resident >= 1; --resident) {
      const auto room = static_cast<std::int64_t>((device.shared_per_block + 1024) / resident) - 1536;  // less what a kernel declares
      for (int blocks = 1; blocks <= cuda::most_cluster_blocks; blocks *= 2) {
        const bool few = held.planes.samples * blocks < 2 * device.multiprocessors && blocks < cuda::most_cluster_blocks;
        const std::int64_t share = (pixels + blocks * vector - 1) / (blocks * vector) * vector;
        const std::int64_t elements = share * channels * static_cast<std::int64_t>(sizeof(Stored));
        if (few || elements + channels * static_cast<std::int64_t>(channel_bytes) > room) continue;
        held.blocks = blocks;
        held.share = static_cast<int>(share);
        held.chunk_pixels = std::max(cuda::warp_size, held.share / (chunks / 2) / cuda::warp_size * cuda::warp_size);
        held.rest_offset = static_cast<std::size_t>(elements);
        held.shared_bytes = static_cast<std::size_t>(elements) + static_cast<std::size_t>(channels) * channel_bytes;
        return held;
      }
    }
    return held;
  }

  explicit SampleShares(const Planes& planes_) : planes(planes_) {}

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

/// All threads of a block go from chunk to chunk together.
using HeldSamples = SampleShares<512, 8>;
/// Each warp has chunks of its own.
using WarpHeldSamples = SampleShares<256, 32>;

/// Sums of each channel over the blocks that hold a sample.
template <class Sums, class Held = HeldSamples>
using HeldTotals = ClusterTotals<Sums, Held::threads>;

/// A block's view of the samples that its cluster goes through: turn 0, 1, ... `known_channels` are theirs, or 0 where that is not known
/// when this is compiled.
template <class Stored, bool channels_last, class Held = HeldSamples, int known_channels = 0>
class SampleHolder {
 public:
  static constexpr int width = channels_last ? Held::width : 1;
  using Elements = cuda::Vector<Stored, width>;

  /// `barriers` are in shared memory, as many as chunks.
  __device__ SampleHolder(const Stored* input, const Held& held, std::byte* memory, cuda::ByteBarrier* barriers, int rank)
      : held_(held),
        input_(input),
        elements_(reinterpret_cast<Stored*>(memory)),
        barriers_(barriers),
        begin_(min(static_cast<std::int64_t>(rank) * held.share, held.planes.pixels)),
        pixels_(static_cast<int>(min(static_cast<std::int64_t>(held.share), held.planes.pixels - begin_))) {
    if (threadIdx.x < Held::chunks) barriers[threadIdx.x].init();
    __syncthreads();
  }

  /// The block's first pixel, and how many it has.
  __device__ std::int64_t begin() const { return begin_; }
  __device__ int pixels() const { return pixels_; }
  /// Those of them that a chunk begins with and ends before.
  __device__ int chunk_begin(int chunk) const { return chunk * held_.chunk_pixels; }
  __device__ int chunk_end(int chunk) const { return min((chunk + 1) * held_.chunk_pixels, pixels_); }

  /// By a warp: has a chunk of sample n brought. What was there has been read, by that warp or before the block's last barrier.
  __device__ void request(int chunk, std::int64_t n) const {
    const int first = chunk_begin(chunk), count = max(0, chunk_end(chunk) - first);
    __syncwarp();
    if (threadIdx.x % cuda::warp_size == 0) barriers_[chunk].expect(static_cast<unsigned>(count * channels()) * sizeof(Stored));
    for_each_run(first, count, n,
                 [&](int place, const Stored* from, unsigned bytes) { barriers_[chunk].copy(elements_ + place, from, bytes); });
  }
  /// By a warp: has the share of sample n brought nearer.
  __device__ void prefetch(std::int64_t n) const {
    for_each_run(0, pixels_, n, [](int, const Stored* from, unsigned bytes) { cuda::prefetch_bytes_to_l2(from, bytes); });
  }
  __device__ void wait(unsigned turn, int chunk) const { barriers_[chunk].wait(turn & 1); }

  /// `width` channels of the block's pixel p, from channel c on.
  __device__ Elements at(int c, int p) const { return *reinterpret_cast<const Elements*>(elements_ + offset(c, p)); }
  /// As many in either layout.
  __device__ cuda::Vector<Stored, Held::width> vector(int c, int p) const {
    if constexpr (channels_last) {
      return at(c, p);
    } else {
      cuda::Vector<Stored, Held::width> elements;
#pragma unroll
      for (int j = 0; j < Held::width; ++j) elements[j] = one(c + j, p);
      return elements;
    }
  }
  __device__ Stored one(int c, int p) const { return elements_[offset(c, p)]; }

 private:
  __device__ int channels() const { return known_channels > 0 ? known_channels : static_cast<int>(held_.planes.channels); }
  __device__ int offset(int c, int p) const { return channels_last ? p * channels() + c : c * held_.share + p; }
  /// Calls run(place among the elements, address, bytes) for each run of `count` pixels' elements that lie together, by a warp.
  template <class Run>
  __device__ void for_each_run(int first, int count, std::int64_t n, const Run& run) const {
    if (count == 0) return;
    const std::int64_t pixels = held_.planes.pixels;
    const auto bytes = static_cast<unsigned>(count * (channels_last ? channels() : 1)) * static_cast<unsigned>(sizeof(Stored));
    const auto lane = static_cast<int>(threadIdx.x % cuda::warp_size);
    if constexpr (channels_last) {
      if (lane == 0) run(first * channels(), input_ + (n * pixels + begin_ + first) * channels(), bytes);
    } else {
      for (int c = lane; c < channels(); c += cuda::warp_size) {
        run(c * held_.share + first, input_ + (n * channels() + c) * pixels + begin_ + first, bytes);
      }
    }
  }

  const Held& held_;
  const Stored* input_;
  Stored* elements_;
  cuda::ByteBarrier* barriers_;
  std::int64_t begin_;
  int pixels_;
};

}  // namespace frit::ops
