#pragma once

#include "frit/ops/norm/gradients.cuh"
#include "frit/ops/norm/moments.cuh"

namespace frit::ops {

// The passes over long rows that are no whole vectors, as 3,999 halves: their vectors are those of memory, and the first and the last one
// of a row lie in it in part. Which thread has which elements depends on shapes alone.

/// Whether these rows, which follow each other, are such.
template <class T>
bool are_odd(const NormGeometry& rows) {
  constexpr std::int64_t width = cuda::vector_width<T>, least_vectors = 16;
  return rows.runs == 1 && rows.weight_axis == WeightAxis::run && rows.slice_stride == rows.run_length && rows.run_length % width != 0 &&
         rows.run_length >= least_vectors * width;
}

struct OddRows {
  static constexpr int at_once = 2;  ///< vectors that a thread loads together

  std::int64_t rows, length, channels, parts;
  SliceOfRow slice_of;

  /// Teams for the parts of rows.
  template <class T>
  cuda::TeamShape shape() const {
    return {rows * parts, length / parts / cuda::vector_width<T> + 1, at_once};
  }
  __device__ std::int64_t channel(std::int64_t row) const { return channels == 0 ? row : row % channels; }
};

/// A thread's vectors of a part of a row: from `next` on, in elements from the tensor's beginning.
template <class T>
struct OddRowIterator {
  static constexpr int width = cuda::vector_width<T>;

  std::int64_t begin, end;  ///< of the row
  std::int64_t next, last;
  std::int64_t step;

  __device__ OddRowIterator(const OddRows& rows, std::int64_t row, std::int64_t part, const cuda::Team& team)
      : begin(row * rows.length), end(begin + rows.length), step(static_cast<std::int64_t>(team.size) * width) {
    const std::int64_t first = begin / width, count = (end + width - 1) / width - first, share = (count + rows.parts - 1) / rows.parts;
    next = (first + part * share + team.rank()) * width;
    last = (first + min(count, (part + 1) * share)) * width;
  }

  __device__ bool inside(int v = 0) const { return place(v) < last; }
  __device__ std::int64_t place(int v) const { return next + v * step; }
  __device__ bool whole(int v) const { return place(v) >= begin && place(v) + width <= end; }
  __device__ bool has(int v, int k) const { return place(v) + k >= begin && place(v) + k < end; }
  __device__ void advance() { next += OddRows::at_once * step; }

  /// In the place of elements of other rows are those of this row that are next to them.
  __device__ cuda::Vector<T, width> load(const T* tensor, int v, bool aligned) const {
    if (whole(v)) return load_vector<width>(tensor + place(v), aligned);
    cuda::Vector<T, width> result;
#pragma unroll
    for (int k = 0; k < width; ++k) result[k] = tensor[min(max(place(v) + k, begin), end - 1)];
    return result;
  }
  __device__ void store(T* tensor, int v, const cuda::Vector<T, width>& values, bool aligned) const {
    if (whole(v)) return store_vector(tensor + place(v), values, aligned);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      if (has(v, k)) tensor[place(v) + k] = values[k];
    }
  }
};

/// One team a part of a row, with statistics that are known. Reads and writes each element once; the output may lie on the input.
template <class T>
__global__ void __launch_bounds__(1024) normalize_odd_rows(T* output, const T* input, ChannelWeights<T> weights, const double* means,
                                                           const double* rstds, OddRows rows, bool aligned, cuda::Team team) {
  using C = Computed<T>;
  constexpr int width = cuda::vector_width<T>;
  for (std::int64_t first = team.first_item(); first < rows.rows * rows.parts; first += team.item_step()) {
    const std::int64_t item = first + team.place(), row = item / rows.parts;
    if (row >= rows.rows) continue;
    const std::int64_t slice = rows.slice_of(row), channel = rows.channel(row);
    const Normalizer<C> xhat(means[slice], rstds[slice]);
    const C w = weights.weight != nullptr ? convert<C>(weights.weight[channel]) : C{1};
    const C b = weights.weight != nullptr ? convert<C>(weights.bias[channel]) : C{0};
    for (OddRowIterator<T> it(rows, row, item - row * rows.parts, team); it.inside(); it.advance()) {
      cuda::Vector<T, width> x[OddRows::at_once];
#pragma unroll
      for (int v = 0; v < OddRows::at_once; ++v) {
        if (it.inside(v)) x[v] = it.load(input, v, aligned);
      }
#pragma unroll
      for (int v = 0; v < OddRows::at_once; ++v) {
        if (!it.inside(v)) continue;
#pragma unroll
        for (int k = 0; k < width; ++k) x[v][k] = convert<T>(xhat(convert<C>(x[v][k])) * w + b);
        it.store(output, v, x[v], aligned);
      }
    }
  }
}

/// One team a part of a row, as sums that are not multiplied by weights. Reads g and x once. Deterministic.
template <class T>
__global__ void __launch_bounds__(1024)
    sum_gradients_of_odd_rows(SumPair* partial /* (rows, parts) */, GradientInputs<T> from, OddRows rows, bool aligned, cuda::Team team) {
  using C = Computed<T>;
  constexpr int width = cuda::vector_width<T>;
  __shared__ SumPair shared[cuda::warp_size];
  for (std::int64_t first = team.first_item(); first < rows.rows * rows.parts; first += team.item_step()) {
    const std::int64_t item = first + team.place();
    const bool active = item < rows.rows * rows.parts;
    const std::int64_t row = active ? item / rows.parts : 0, slice = rows.slice_of(row);
    const Normalizer<C> xhat(from.means[slice], from.rstds[slice]);
    SumPair sums{0, 0};
    for (OddRowIterator<T> it(rows, row, item - row * rows.parts, team); active && it.inside(); it.advance()) {
      cuda::Vector<T, width> g[OddRows::at_once], x[OddRows::at_once];
#pragma unroll
      for (int v = 0; v < OddRows::at_once; ++v) {
        if (!it.inside(v)) continue;
        g[v] = it.load(from.gradient, v, aligned);
        x[v] = it.load(from.input, v, aligned);
      }
      C sum = 0, product = 0;
#pragma unroll
      for (int v = 0; v < OddRows::at_once; ++v) {
#pragma unroll
        for (int k = 0; k < width; ++k) {
          if (!it.inside(v) || !it.has(v, k)) continue;
          const C term = convert<C>(g[v][k]);
          sum += term;
          product += term * xhat(convert<C>(x[v][k]));
        }
      }
      sums = sums + SumPair{static_cast<double>(sum), static_cast<double>(product)};
    }
    sums = team.sum(sums, shared);
    if (active && team.rank() == 0) partial[item] = sums;
  }
}

/// One team a part of a row. Reads g, and x unless the statistics are fixed, and writes dx once; dx may lie on g.
template <class T>
__global__ void __launch_bounds__(1024)
    backward_odd_rows(T* input_gradient, GradientInputs<T> from, const SumPair* means /* (slices), null if fixed */, OddRows rows,
                      bool aligned, cuda::Team team) {
  using C = Computed<T>;
  constexpr int width = cuda::vector_width<T>;
  for (std::int64_t first = team.first_item(); first < rows.rows * rows.parts; first += team.item_step()) {
    const std::int64_t item = first + team.place(), row = item / rows.parts;
    if (row >= rows.rows) continue;
    const std::int64_t slice = rows.slice_of(row);
    const double rstd = from.rstds[slice], w = from.weight == nullptr ? 1 : convert<double>(from.weight[rows.channel(row)]);
    const InputGradientRule<C> rule = means == nullptr ? InputGradientRule<C>(w, rstd) : InputGradientRule<C>(w, rstd, means[slice]);
    const Normalizer<C> xhat(from.means[slice], rstd);
    for (OddRowIterator<T> it(rows, row, item - row * rows.parts, team); it.inside(); it.advance()) {
      cuda::Vector<T, width> g[OddRows::at_once], x[OddRows::at_once];
#pragma unroll
      for (int v = 0; v < OddRows::at_once; ++v) {
        if (!it.inside(v)) continue;
        g[v] = it.load(from.gradient, v, aligned);
        if (!rule.fixed) x[v] = it.load(from.input, v, aligned);
      }
#pragma unroll
      for (int v = 0; v < OddRows::at_once; ++v) {
        if (!it.inside(v)) continue;
#pragma unroll
        for (int k = 0; k < width; ++k) {
          g[v][k] = convert<T>(rule(convert<C>(g[v][k]), [&] { return xhat(convert<C>(x[v][k])); }));
        }
        it.store(input_gradient, v, g[v], aligned);
      }
    }
  }
}

}  // namespace frit::ops
