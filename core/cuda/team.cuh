#pragma once

#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/reduce.cuh"

namespace frit::cuda {

/// The threads that work on one item together: a power of 2 of a warp's lanes, or a whole block. Every thread of a block makes the same
/// steps of the loop
///   for (first = team.first_item(); first < items; first += team.item_step()) { item = first + team.place(); ... }
/// and an item beyond the last one has threads that only take part in sum().
struct Team {
  int size;

  __device__ int teams() const { return static_cast<int>(blockDim.x) / size; }
  __device__ std::int64_t first_item() const { return static_cast<std::int64_t>(blockIdx.x) * teams(); }
  __device__ std::int64_t item_step() const { return static_cast<std::int64_t>(gridDim.x) * teams(); }
  __device__ int place() const { return static_cast<int>(threadIdx.x) / size; }
  __device__ int rank() const { return static_cast<int>(threadIdx.x) % size; }

  /// Every thread of the team gets the sum, by +, of all their values. `shared` holds 32 elements, and may be used again at once; `neutral`
  /// does not change what it is added to.
  template <class T>
  __device__ T sum(T value, T* shared, T neutral = T{}) const {
    if (size > warp_size) return block_reduce(value, shared, Plus{}, neutral);
    for (int mask = size / 2; mask > 0; mask /= 2) value = value + shuffle_xor(value, mask);
    return value;
  }
};

/// Teams for items of `accesses` memory accesses each, of which a thread makes up to `at_once` together.
struct TeamShape {
  Team team;
  LaunchShape launch;

  TeamShape(std::int64_t items, std::int64_t accesses, int at_once) : team{1} {
    constexpr std::int64_t most_threads = 1024, looping_threads = 512;
    const std::int64_t threads = (accesses + at_once - 1) / at_once;
    int block = default_threads;
    if (threads <= warp_size) {
      while (team.size < accesses && team.size < warp_size) team.size *= 2;
    } else {
      const std::int64_t whole_warps = (threads + warp_size - 1) / warp_size * warp_size;
      block = team.size = static_cast<int>(whole_warps <= most_threads ? whole_warps : looping_threads);
    }
    launch = loop_shape(items * team.size, block);
  }
};

}  // namespace frit::cuda
