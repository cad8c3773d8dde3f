#pragma once

#include <cstddef>

#include "frit/core/cuda/reduce.cuh"
#include "frit/ops/cuda/cluster.cuh"

namespace frit::ops {

/// Where the blocks of a cluster, each of so many threads, add up `Sums`, one for each channel.
template <class Sums, int threads>
class ClusterTotals {
 public:
  static constexpr int warps = threads / cuda::warp_size;
  static constexpr int rounds = 2;  ///< that are told apart: a block may be a round ahead of what another still reads
  static constexpr std::size_t channel_bytes = (warps + rounds * cuda::most_cluster_blocks) * sizeof(Sums);

  Sums* partials;  ///< (warps, C), in each block

  /// `barriers` are `rounds`, in shared memory. For all threads, which then exchange at least once.
  __device__ ClusterTotals(std::byte* memory, cuda::ByteBarrier* barriers, int channels, int rank, int blocks)
      : partials(reinterpret_cast<Sums*>(memory)),
        received_(partials + warps * channels),
        barriers_(barriers),
        channels_(channels),
        rank_(rank),
        blocks_(blocks) {
    if (threadIdx.x < rounds) barriers[threadIdx.x].init();
    cuda::cluster_arrive();
  }

  __device__ int channels() const { return channels_; }
  __device__ std::byte* end() const { return reinterpret_cast<std::byte*>(partials) + channels_ * channel_bytes; }

  /// Adds the first `parts` of each channel's parts and sends the sums to all blocks. After a barrier of the block, `part(i, c)` gives part
  /// i of channel c.
  template <class Part>
  __device__ void send(int parts, const Part& part) {
    constexpr int lanes = warps > cuda::most_cluster_blocks ? warps : cuda::most_cluster_blocks;  // that share a channel
    constexpr int at_once = cuda::warp_size / lanes;
    static_assert(cuda::warp_size % lanes == 0 && sizeof(Sums) % sizeof(double) == 0, "sent as doubles");
    const int warp = static_cast<int>(threadIdx.x) / cuda::warp_size, lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
    if (round_++ == 0) cuda::cluster_wait();  // the others' barriers are there
    cuda::ByteBarrier& barrier = barriers_[round_ & 1];
    if (blocks_ > 1 && threadIdx.x == 0) {
      barrier.expect(static_cast<unsigned>(blocks_ * channels_) * static_cast<unsigned>(sizeof(Sums)));
    }
    __syncthreads();
#pragma unroll 1
    for (int first = warp * at_once; first < channels_; first += warps * at_once) {
      const int c = first + lane / lanes, i = lane % lanes;
      Sums sums;
      if (i < parts && c < channels_) sums = part(i, c);
#pragma unroll
      for (int mask = lanes / 2; mask > 0; mask /= 2) sums = sums + cuda::shuffle_xor(sums, mask);
      if (i >= blocks_ || c >= channels_) continue;
#pragma unroll
      for (int number = 0; number < static_cast<int>(sizeof(Sums) / sizeof(double)); ++number) {
        double* const to = reinterpret_cast<double*>(place(rank_, c)) + number;
        const double sum = reinterpret_cast<const double*>(&sums)[number];
        if (blocks_ == 1) {
          *to = sum;
        } else {
          barrier.send(to, i, sum);
        }
      }
    }
    if (blocks_ == 1) __syncthreads();
  }
  /// By any thread: until the sums of all blocks are here.
  __device__ void wait() const {
    if (blocks_ > 1) barriers_[round_ & 1].wait((round_ - 1) >> 1 & 1);
  }

  /// Sends the sums of the parts that lie in `partials`, and waits for those of all blocks.
  __device__ void exchange(int parts) {
    send(parts, [this](int part, int c) { return partials[part * channels_ + c]; });
    wait();
  }
  /// After an exchange: the sum over the cluster.
  __device__ Sums total(int c) const {
    Sums sums = *place(0, c);
    for (int block = 1; block < blocks_; ++block) sums = sums + *place(block, c);
    return sums;
  }

 private:
  __device__ Sums* place(int block, int c) const { return received_ + (static_cast<int>(round_ & 1) * blocks_ + block) * channels_ + c; }

  Sums* received_;  ///< (2, blocks, C)
  cuda::ByteBarrier* barriers_;
  int channels_, rank_, blocks_;
  unsigned round_ = 0;
};

}  // namespace frit::ops
