#pragma once

#include "frit/ops/norm/moments.cuh"

namespace frit::ops {

// The norms of slices that are runs of memory, in teams: a slice each, or a part of one.

/// Results over a thread's part of a slice. `held`: its elements are in the tile.
template <class T, int width>
__device__ void normalize(T* y, const T* x, const T* weight, const T* bias, const Normalizer<Computed<T>>& xhat, Tile<T, width>& tile,
                          bool held, const DeviceGeometry& g, std::int64_t slice, SliceIterator it, Alignment aligned) {
  using C = Computed<T>;
  const SliceWeights weights(g, slice, weight != nullptr);
  const bool common = weight != nullptr && !weights.per_element;
  C w = common ? convert<C>(weight[weights.first]) : C{1}, b = common ? convert<C>(bias[weights.first]) : C{0};
  while (it.inside()) {
    SliceIterator ahead = it;
    if (!held) tile.load(x, g, ahead, aligned.data);
#pragma unroll
    for (int v = 0; v < Tile<T, width>::vectors; ++v, it.advance()) {
      if (!it.inside()) continue;
      cuda::Vector<T, width> results;
      if (weights.per_element) {
        const std::int64_t place = (weights.first + it.index) * width;
        const auto ws = load_vector<width>(weight + place, aligned.weights), bs = load_vector<width>(bias + place, aligned.weights);
#pragma unroll
        for (int k = 0; k < width; ++k) results[k] = convert<T>(xhat(tile(v, k)) * convert<C>(ws[k]) + convert<C>(bs[k]));
      } else {
        if (weights.per_run) {
          const std::int64_t channel = weights.first + g.run(it.index);
          w = convert<C>(weight[channel]);
          b = convert<C>(bias[channel]);
        }
#pragma unroll
        for (int k = 0; k < width; ++k) results[k] = convert<T>(xhat(tile(v, k)) * w + b);
      }
      store_vector(y + g.offset(it.index) * width, results, aligned.data);
    }
  }
}

/// One team a slice, for as many slices as fill the device: it sums the slice and writes the results, from registers where they hold the
/// slice, or else by a second read of what mostly lies in a cache. The output may lie on the input. Deterministic.
template <class T, int width>
__global__ void __launch_bounds__(1024) normalize_slices(T* output, StatisticsRule<T> rule, const T* input, const T* weight, const T* bias,
                                                         DeviceGeometry g, Alignment aligned, cuda::Team team) {
  __shared__ SumPair shared[cuda::warp_size];
  for (std::int64_t first = team.first_item(); first < g.slices; first += team.item_step()) {
    const std::int64_t slice = first + team.place(), offset = slice * g.slice_stride * width;
    const SliceIterator it(g, team, 0, 1, slice < g.slices);
    const double pivot = it.end > 0 ? convert<double>(input[offset]) : 0;
    Tile<T, width> tile;
    const SumPair sums = team.sum(sum_moments(tile, input + offset, g, it, pivot, aligned.data), shared);
    if (slice >= g.slices) continue;
    const SliceStatistics statistics = rule(slice, sums, pivot, team.rank() == 0);
    rule.write_coefficients(slice, statistics, team);
    if (output == nullptr || it.end == 0) continue;
    const bool held = Tile<T, width>::holds(it.end, team.size);
    normalize(output + offset, input + offset, weight, bias, Normalizer<Computed<T>>(statistics.mean, statistics.rstd), tile, held, g,
              slice, it, aligned);
  }
}

/// One team a part of a slice. Reads the input once. Deterministic.
template <class T, int width>
__global__ void __launch_bounds__(1024)
    sum_parts(SumPair* partial /* (slices, parts) */, const T* input, DeviceGeometry g, std::int64_t parts, bool aligned, cuda::Team team) {
  __shared__ SumPair shared[cuda::warp_size];
  for (std::int64_t first = team.first_item(); first < g.slices * parts; first += team.item_step()) {
    const std::int64_t item = first + team.place(), slice = item / parts;
    const T* const x = input + slice * g.slice_stride * width;
    const SliceIterator it(g, team, item - slice * parts, parts, slice < g.slices);
    Tile<T, width> tile;
    const SumPair sums = team.sum(sum_moments(tile, x, g, it, it.end > 0 ? convert<double>(*x) : 0, aligned), shared);
    if (slice < g.slices && team.rank() == 0) partial[item] = sums;
  }
}

/// One team a part of a row, with statistics that are known. Reads and writes each element once; the output may lie on the input.
template <class T, int width>
__global__ void __launch_bounds__(1024)
    normalize_rows(T* output, const T* input, const T* weight, const T* bias, const double* means, const double* rstds, DeviceGeometry rows,
                   SliceOfRow slice_of, std::int64_t parts, Alignment aligned, cuda::Team team) {
  for (std::int64_t first = team.first_item(); first < rows.slices * parts; first += team.item_step()) {
    const std::int64_t item = first + team.place(), row = item / parts, offset = row * rows.slice_stride * width;
    if (row >= rows.slices) continue;
    const std::int64_t slice = slice_of(row);
    const SliceIterator it(rows, team, item - row * parts, parts, true);
    Tile<T, width> tile;
    normalize(output + offset, input + offset, weight, bias, Normalizer<Computed<T>>(means[slice], rstds[slice]), tile, /*held=*/false,
              rows, row, it, aligned);
  }
}

}  // namespace frit::ops
