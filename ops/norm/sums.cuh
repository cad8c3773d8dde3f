#pragma once

#include "frit/core/cuda/team.cuh"
#include "frit/ops/norm/norm_core.h"
#include "frit/ops/norm/normalizer.cuh"

namespace frit::ops {

// The sums that the CUDA kernels of the norms are made of, where they pass through scratch memory. A thread sums a few elements in their
// own type; from there on sums are double, in an order that depends on shapes alone.

/// Blocks that fill any device twice over.
inline constexpr std::int64_t enough_blocks = 2112;

/// Parts in which blocks share each of `items` stretches of memory.
inline std::int64_t parts_of(std::int64_t items, std::int64_t elements) {
  constexpr std::int64_t least_elements = 8192;
  if (items == 0 || items >= enough_blocks / 2) return 1;
  return std::max<std::int64_t>(1, std::min((enough_blocks + items - 1) / items, elements / least_elements));
}

/// Partial sums of items: element (o, item, p) is the p-th of `inner` neighbours in the o-th of `outer` rounds.
struct PartialSums {
  SumPair* sums;  // (outer, items, inner)
  std::int64_t outer, items, inner;
};

/// One team an item: adds its partial sums, each multiplied by finish.weight(item, p), and hands them to finish(item, sums) in one thread,
/// or to finish(item, sums, team) in all. Reads each sum once. Deterministic.
template <class Finish>
__global__ void finish_sums(Finish finish, PartialSums partial, cuda::Team team) {
  __shared__ SumPair shared[cuda::warp_size];
  for (std::int64_t first = team.first_item(); first < partial.items; first += team.item_step()) {
    const std::int64_t item = first + team.place();
    const int inner = static_cast<int>(partial.inner), count = item < partial.items ? static_cast<int>(partial.outer) * inner : 0;
    SumPair sums{0, 0};
    const auto add = [&](int o, int p) {
      const SumPair found = partial.sums[(o * partial.items + item) * inner + p];
      const double weight = finish.weight(item, p);
      sums = sums + SumPair{weight * found.first, weight * found.second};
    };
    if (inner == 1) {  // a division for each sum would take longer than the sums
#pragma unroll 4
      for (int o = team.rank(); o < count; o += team.size) add(o, 0);
    } else {
#pragma unroll 4
      for (int i = team.rank(); i < count; i += team.size) add(i / inner, i % inner);
    }
    sums = team.sum(sums, shared);
    if (item >= partial.items) continue;
    if constexpr (requires { finish(item, sums, team); }) {
      finish(item, sums, team);
    } else if (team.rank() == 0) {
      finish(item, sums);
    }
  }
}

template <class Finish>
void launch_finish(const Finish& finish, const PartialSums& partial, cudaStream_t stream) {
  if (partial.items == 0) return;
  FRIT_CHECK(partial.outer * partial.inner <= INT32_MAX);
  const cuda::TeamShape shape(partial.items, partial.outer * partial.inner, 4);
  cuda::launch(finish_sums<Finish>, shape.launch, stream, finish, partial, shape.team);
}

}  // namespace frit::ops
