#pragma once

#include "frit/ops/norm/columns.cuh"
#include "frit/ops/norm/moments.cuh"

namespace frit::ops {

// The passes over columns that are normalised: one for their moments, one for the results.

/// The moments of columns around their slice's first element. A thread takes them around the first element that it sees itself: however far
/// that lies from the others, what its sums lose is small next to what it adds to them.
template <class T, int width_, int rows_at_once = 4>
struct ColumnMoments {
  using Computed = ops::Computed<T>;
  using Total = SumPair;
  /// Squares of differences may be more than float holds; the largest difference tells.
  static constexpr bool may_overflow = sizeof(Computed) == sizeof(float) && !std::is_same_v<T, Half>;
  static constexpr int width = width_, values = may_overflow ? 4 : 3;

  const T* input;
  ColumnGeometry g;
  bool aligned;

  struct Column {};
  __device__ Column column(int, int) const { return {}; }
  /// What the moments are around.
  __device__ double base(int matrix, int column) const { return convert<double>(input[g.first_of(matrix, column)]); }

  __device__ void sum(Computed (&sums)[values][width], const Column (&)[width], ColumnIterator it, const ColumnSplit& split) const {
    auto &origin = sums[0], &sum = sums[1], &squares = sums[2], &largest = sums[values - 1];
    const std::int64_t begin = it.row;
    while (it.row < it.end) {
      Rows<T, width, rows_at_once> rows;
      rows.load(input, it, split, aligned);
      if (it.row == begin) {
#pragma unroll
        for (int k = 0; k < width; ++k) origin[k] = rows(0, k);
      }
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i, it.row += it.step) {
        if (it.row >= it.end) continue;
#pragma unroll
        for (int k = 0; k < width; ++k) {
          const Computed difference = rows(i, k) - origin[k];
          sum[k] += difference;
          squares[k] += difference * difference;
          if (may_overflow) largest[k] = fmax(largest[k], fabs(difference));
        }
      }
    }
  }

  __device__ SumPair total(const Computed (&sums)[values], double around, const ColumnIterator& strip, const ColumnSplit& split) const {
    const Computed largest = sums[values - 1];
    if (may_overflow && largest > 0 && !(largest > Computed(1e-15) && largest < Computed(1e15))) return read_again(around, strip, split);
    const int count = (static_cast<int>(strip.end - strip.row) + strip.step - 1) / strip.step;
    const double shift = static_cast<double>(sums[0]) - around, total = static_cast<double>(sums[1]), moved = count * shift;
    return {total + moved, static_cast<double>(sums[2]) + shift * (2 * total + moved)};
  }

 private:
  __device__ SumPair read_again(double around, ColumnIterator strip, const ColumnSplit& split) const {
    SumPair sums{0, 0};
#pragma unroll 1
    for (; strip.row < strip.end; strip.row += strip.step) {
      const double difference = convert<double>(input[strip.offset(split)]) - around;
      sums = sums + SumPair{difference, difference * difference};
    }
    return sums;
  }
};

/// Results of a thread's rows of columns.
template <class T, int width>
__device__ void write_columns(T* output, const T* input, const NormCoefficients<Computed<T>> (&own)[width], ColumnIterator it,
                              const ColumnSplit& split, bool aligned) {
  constexpr int rows_at_once = 4;
  while (it.row < it.end) {
    Rows<T, width, rows_at_once> rows;
    rows.load(input, it, split, aligned);
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i, it.row += it.step) {
      if (it.row >= it.end) continue;
      cuda::Vector<T, width> results;
#pragma unroll
      for (int k = 0; k < width; ++k) results[k] = convert<T>((rows(i, k) - own[k].reference) * own[k].scale + own[k].shift);
      store_vector(output + it.offset(split), results, aligned);
    }
  }
}

}  // namespace frit::ops
