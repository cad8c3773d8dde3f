#pragma once

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/chain/instances/group_norm_scale_max_pool_clamp.cuh"
#include "frit/ops/cuda/cluster.cuh"

namespace frit::ops {

// Channels-last samples that stream through the shared memory of clusters of blocks, one strip of windows after another. Each warp has a
// ring of strips of its own, which the copy engine fills again as soon as the warp has a strip in its registers. So the memory is kept busy
// whatever the block's other warps do, and while it finalizes one sample the first strips of its next one come.

/// The share of each block. Windows lie side by side without gaps; a strip is a row of as many of them as a warp looks at together, and the
/// pixels that windows leave over at the right and at the bottom are windows cut short. A cluster has whole samples, each of its blocks
/// some rows of windows.
struct StripPlan {
  static constexpr int threads = 512;
  static constexpr int warps = threads / cuda::warp_size;
  static constexpr int most_stages = 4;        ///< strips of a warp that are on their way at a time
  static constexpr int declared_bytes = 1024;  ///< at most, of shared memory that a kernel declares for its barriers

  Planes planes;
  WindowAxis height, breadth;
  int channels = 0, width = 1;  ///< channels that a thread looks at together
  int lanes = 1;                ///< threads to a window
  int windows = 1, strips = 0;  ///< windows to a strip; strips to a row of windows, 0 if this is not to be done in strips
  int all_rows = 0;
  int strip_bytes = 0;
  cuda::Divisor divisor;                 ///< by `strips`
  int blocks = 0, rows = 0, stages = 0;  ///< of a cluster; of each block
  std::size_t ring_offset = 0, shared_bytes = 0;

  StripPlan(const Tensor& input, const GroupNormPoolGeometry& geometry)
      : planes(input.shape()),
        height(geometry.pool, 1),
        breadth(geometry.pool, 2),
        channels(static_cast<int>(std::min<std::int64_t>(planes.channels, INT32_MAX))),
        width(copied_bytes / static_cast<int>(size_of(input.dtype()))) {
    if (!Places(input, planes).channels_last() || cuda::properties(input.device().index).capability < 90) return;
    if (!height.side_by_side() || !breadth.side_by_side() || height.kernel != breadth.kernel || height.kernel < 2 || height.kernel > 4)
      return;
    if (planes.samples == 0 || channels == 0 || channels % width != 0 || channels > width * cuda::warp_size) return;
    if (!cuda::aligned_for_vectors(input.raw())) return;
    lanes = lanes_for(channels / width);
    windows = cuda::warp_size / lanes;
    const int kernel = height.kernel, across = (breadth.image + kernel - 1) / kernel;
    strips = (across + windows - 1) / windows;
    divisor = cuda::Divisor(strips);
    all_rows = (height.image + kernel - 1) / kernel;
    strip_bytes = kernel * windows * kernel * channels / width * copied_bytes;
  }

  /// Each block's most windows of which there are results.
  std::int64_t block_windows() const { return static_cast<std::int64_t>(std::min(rows, height.output)) * breadth.output; }
  void split(int blocks_) {
    blocks = blocks_;
    rows = (all_rows + blocks - 1) / blocks;
  }
  /// The ring after so many bytes for the kernel's own use; false if there is no room.
  bool place_ring(std::int64_t own_bytes, std::int64_t room) {
    const std::int64_t begin = (own_bytes + 127) / 128 * 128, stage = static_cast<std::int64_t>(warps) * strip_bytes;
    stages = static_cast<int>(std::clamp<std::int64_t>(std::min(room - begin, most_ring) / stage, 0, most_stages));
    ring_offset = static_cast<std::size_t>(begin);
    shared_bytes = static_cast<std::size_t>(begin + stages * stage);
    return stages > 0;
  }
  /// Lays a block's memory out for clusters of the size that costs least, by way of fit(blocks), which says whether they have room. The
  /// number of clusters of `kernel` that run at a time, at most one a sample; 0 if there is no such size.
  template <class Kernel, class Fit>
  std::int64_t choose_clusters(Kernel kernel, const Fit& fit) {
    std::int64_t clusters = 0, least = 0;
    int best = 0;
    for (int tried = 1; tried <= cuda::most_cluster_blocks; tried *= 2) {
      if (!fit(tried)) continue;
      const std::int64_t resident = std::min<std::int64_t>(cuda::resident_clusters(kernel, shape(1), tried), planes.samples);
      if (resident == 0 || (clusters > 0 && cost(resident) >= least)) continue;
      clusters = resident, least = cost(resident), best = tried;
    }
    return clusters > 0 && fit(best) ? clusters : 0;
  }
  cuda::LaunchShape shape(std::int64_t clusters) const {
    return {dim3(static_cast<unsigned>(clusters * blocks)), dim3(threads), shared_bytes};
  }
  /// Shared memory that a block may lay out.
  static std::int64_t room(const Tensor& input) {
    return static_cast<std::int64_t>(cuda::properties(input.device().index).shared_per_block) - declared_bytes;
  }
  /// What a plan costs whose clusters run so many at a time, in bytes that a block reads meanwhile.
  std::int64_t cost(std::int64_t clusters) const {
    const std::int64_t row = static_cast<std::int64_t>(strips) * strip_bytes;
    return (planes.samples + clusters - 1) / clusters * (rows * row + finalizing_bytes);
  }

 private:
  static constexpr int copied_bytes = 16;  ///< of which the copy engine wants multiples
  static constexpr std::int64_t most_ring = 128 << 10;
  static constexpr std::int64_t finalizing_bytes = 64 << 10;  ///< that it could read while the cluster finalizes a sample
};

/// Some windows of a row of them.
struct Strip {
  int row, first;  ///< of the block's rows of windows; the first of its windows
};

/// A block's view of the samples that its cluster goes through, from the last to the first: the end of what a kernel before has written may
/// still be in the cache. All functions are for whole warps.
template <class Stored, int kernel>
class StripRing {
 public:
  static constexpr int width = cuda::vector_width<Stored>;
  using Elements = cuda::WideVector<Stored>;

  /// `barriers` are in shared memory: (warps, stages). The ring's first strips are asked for.
  __device__ StripRing(const Stored* input, const StripPlan& plan, std::byte* memory, cuda::ByteBarrier* barriers)
      : plan_(plan),
        step_(static_cast<int>(gridDim.x) / plan.blocks),
        first_row_(min(static_cast<int>(blockIdx.x) % plan.blocks * plan.rows, plan.all_rows)),
        items_(min(plan.rows, plan.all_rows - first_row_) * plan.strips),
        block_input_(input + static_cast<std::int64_t>(first_row_) * kernel * plan.breadth.image * plan.channels),
        memory_(memory + warp() * plan.stages * plan.strip_bytes),
        barriers_(barriers + warp() * plan.stages),
        next_sample_(first_sample()),
        next_item_(warp()) {
    if (lane() == 0) {
#pragma unroll 1
      for (int stage = 0; stage < plan.stages; ++stage) barriers_[stage].init();
    }
    __syncthreads();
#pragma unroll 1
    for (int stage = 0; stage < plan.stages; ++stage) request(stage);
  }

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / cuda::warp_size; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % cuda::warp_size; }
  __device__ int first_row() const { return first_row_; }
  /// The cluster's samples are this, this - step, ..., down to 0.
  __device__ std::int64_t first_sample() const { return plan_.planes.samples - 1 - static_cast<int>(blockIdx.x) / plan_.blocks; }
  __device__ int step() const { return step_; }
  /// The block's strips; a warp's begin at its number, with a stride of the warps' number.
  __device__ int items() const { return items_; }
  __device__ Strip strip(int item) const {
    const auto number = static_cast<std::uint32_t>(item), row = plan_.divisor.quotient(number);
    return {static_cast<int>(row), static_cast<int>(plan_.divisor.remainder(number, row)) * plan_.windows};
  }
  /// Image rows and columns of windows that may be cut short.
  __device__ int rows_of(int row) const { return min(kernel, plan_.height.image - (first_row_ + row) * kernel); }
  __device__ int columns_of(int window) const { return min(kernel, plan_.breadth.image - window * kernel); }

  /// The warp's next strip, of which each lane takes some channels of one window. What is beyond the image has no meaning.
  __device__ void take(Elements (&elements)[kernel * kernel], int window, int channel) {
    barriers_[stage_].wait(parity_);
    const auto* const strip = reinterpret_cast<const Stored*>(memory_ + stage_ * plan_.strip_bytes);
    const Stored* const first = strip + window * kernel * plan_.channels + channel;
#pragma unroll
    for (int i = 0; i < kernel * kernel; ++i) {
      const int pixel = i / kernel * plan_.windows * kernel + i % kernel;
      elements[i] = *reinterpret_cast<const Elements*>(first + pixel * plan_.channels);
    }
    __syncwarp();
    request(stage_);
    if (++stage_ == plan_.stages) {
      stage_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  /// Has the next strip brought to a stage, whose last strip has been read. A lane asks for an image row.
  __device__ void request(int stage) {
    if (next_sample_ < 0 || warp() >= items_) return;
    const Strip next = strip(next_item_);
    const int rows = rows_of(next.row), column = next.first * kernel;
    const int row_bytes = plan_.windows * kernel * plan_.channels * static_cast<int>(sizeof(Stored));
    const int bytes = min(plan_.windows * kernel, plan_.breadth.image - column) * plan_.channels * static_cast<int>(sizeof(Stored));
    if (lane() == 0) barriers_[stage].expect(static_cast<unsigned>(rows * bytes));
    if (lane() < rows) {
      const std::int64_t pixel = static_cast<std::int64_t>(next.row * kernel + lane()) * plan_.breadth.image + column;
      const Stored* const from = block_input_ + (next_sample_ * plan_.planes.pixels + pixel) * plan_.channels;
      barriers_[stage].copy(memory_ + stage * plan_.strip_bytes + lane() * row_bytes, from, static_cast<unsigned>(bytes));
    }
    next_item_ += StripPlan::warps;
    if (next_item_ >= items_) {
      next_item_ = warp();
      next_sample_ -= step_;
    }
  }

  const StripPlan& plan_;
  int step_, first_row_, items_;
  const Stored* block_input_;  ///< of sample 0
  std::byte* memory_;          ///< of the warp: (stages, kernel, windows * kernel pixels, channels)
  cuda::ByteBarrier* barriers_;
  std::int64_t next_sample_;
  int next_item_;
  int stage_ = 0;
  unsigned parity_ = 0;
};

}  // namespace frit::ops
