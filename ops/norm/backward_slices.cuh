#pragma once

#include "frit/ops/norm/gradients.cuh"

namespace frit::ops {

// The gradients of norms whose slices are runs of memory, in teams: a slice each, or a part of a row of one weight.

/// One team a slice of one weight, or of one an element: it sums the slice and writes the input gradient, from registers where they hold
/// the slice, or else by a second read. The input gradient may lie on the gradient. Deterministic.
template <class T, class C, int width>
__global__ void __launch_bounds__(1024)
    backward_slices(T* input_gradient, SumPair* parameter_sums /* (slices), or null */, GradientInputs<T> from, DeviceGeometry g,
                    double inverse_count, Alignment aligned, cuda::Team team) {
  __shared__ SumPair shared[cuda::warp_size];
  for (std::int64_t item = team.first_item(); item < g.slices; item += team.item_step()) {
    const bool active = item + team.place() < g.slices;
    const std::int64_t slice = active ? item + team.place() : 0, first = slice * g.slice_stride * width;
    const SliceIterator it(g, team, 0, 1, active);
    const double rstd = from.rstds[slice];
    const Normalizer<C> xhat(from.means[slice], rstd);
    const SliceWeights weights(g, slice, from.weight != nullptr);
    GradientTiles<T, width> tiles;
    SumPair sums = team.sum(sum_gradients(tiles, from, xhat, weights, first, g, it, aligned), shared);
    if (!active) continue;
    if (parameter_sums != nullptr && team.rank() == 0) parameter_sums[slice] = sums;
    if (input_gradient == nullptr) continue;
    const double w = slice_weight(from.weight, weights), scale = w * inverse_count;
    const InputGradientRule<C> rule(w, rstd, {scale * sums.first, scale * sums.second});
    write_gradient(input_gradient, tiles, Tile<T, width>::holds(it.end, team.size), from, xhat, rule, weights, first, g, it, aligned);
  }
}

/// One team a part of a row: as sums that are not multiplied by weights but for those of elements. Reads g and x once. Deterministic.
template <class T, class C, int width>
__global__ void __launch_bounds__(1024)
    sum_gradient_parts(SumPair* partial /* (rows, parts) */, GradientInputs<T> from, DeviceGeometry rows, SliceOfRow slice_of,
                       std::int64_t parts, Alignment aligned, cuda::Team team) {
  __shared__ SumPair shared[cuda::warp_size];
  for (std::int64_t first = team.first_item(); first < rows.slices * parts; first += team.item_step()) {
    const std::int64_t item = first + team.place();
    const bool active = item < rows.slices * parts;
    const std::int64_t row = active ? item / parts : 0, slice = slice_of(row);
    const SliceIterator it(rows, team, item - row * parts, parts, active);
    const Normalizer<C> xhat(from.means[slice], from.rstds[slice]);
    GradientTiles<T, width> tiles;
    const SumPair sums = team.sum(sum_gradients(tiles, from, xhat, SliceWeights(rows, row, from.weight != nullptr),
                                                row * rows.slice_stride * width, rows, it, aligned),
                                  shared);
    if (active && team.rank() == 0) partial[item] = sums;
  }
}

/// One team a part of a row. Reads g, and x unless the statistics are fixed, and writes dx once; dx may lie on g.
template <class T, class C, int width>
__global__ void __launch_bounds__(1024)
    backward_rows(T* input_gradient, GradientInputs<T> from, const SumPair* means /* (slices), null if fixed */, DeviceGeometry rows,
                  SliceOfRow slice_of, std::int64_t parts, Alignment aligned, cuda::Team team) {
  for (std::int64_t first = team.first_item(); first < rows.slices * parts; first += team.item_step()) {
    const std::int64_t item = first + team.place(), row = item / parts;
    if (row >= rows.slices) continue;
    const std::int64_t slice = slice_of(row);
    const SliceWeights weights(rows, row, from.weight != nullptr);
    const double rstd = from.rstds[slice], w = slice_weight(from.weight, weights);
    const InputGradientRule<C> rule = means == nullptr ? InputGradientRule<C>(w, rstd) : InputGradientRule<C>(w, rstd, means[slice]);
    GradientTiles<T, width> tiles;
    write_gradient(input_gradient, tiles, /*held=*/false, from, Normalizer<C>(from.means[slice], rstd), rule, weights,
                   row * rows.slice_stride * width, rows, SliceIterator(rows, team, item - row * parts, parts, true), aligned);
  }
}

}  // namespace frit::ops
