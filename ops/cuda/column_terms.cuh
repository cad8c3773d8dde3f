#pragma once

#include "frit/core/cuda/divisor.cuh"
#include "frit/ops/cuda/columns.cuh"
#include "frit/ops/cuda/stages.cuh"

namespace frit::ops {

// What column_sums.cuh sums down columns. NVRTC compiles this header too.

/// y = sum / divisor down the columns of x. A thread sums its rows in their own type; from there on sums are double.
template <class T, int width_>
struct DividedColumnSums {
  using Computed = ops::Computed<T>;
  using Total = double;
  static constexpr int width = width_, values = 1;
  static constexpr int rows_at_once = 8;

  T* y;        // (matrices, columns)
  const T* x;  // (matrices, rows, columns)
  double divisor;
  bool aligned;

  struct Column {};
  __device__ Column column(int, int) const { return {}; }
  __device__ double base(int, int) const { return 0; }

  __device__ void sum(Computed (&sums)[values][width], const Column (&)[width], ColumnIterator it, const ColumnSplit& split) const {
    while (it.row < it.end) {
      Rows<T, width, rows_at_once> rows;
      rows.load(x, it, split, aligned);
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i, it.row += it.step) {
        if (it.row >= it.end) continue;
#pragma unroll
        for (int k = 0; k < width; ++k) sums[0][k] += rows(i, k);
      }
    }
  }
  __device__ double total(const Computed (&sums)[values], double, const ColumnIterator&, const ColumnSplit&) const {
    return static_cast<double>(sums[0]);
  }
  __device__ void finish(std::int64_t place, double sum) const { y[place] = convert<T>(sum / divisor); }
};

/// The same of what a Source gives, an image whose matrices are samples, or whose only one is all samples.
template <class T, int width, class Source>
struct SourceColumnSums : DividedColumnSums<T, width> {
  using Computed = typename Source::Computed;
  static constexpr int rows_at_once = 4;

  Source source;
  cuda::Divisor sample_rows;

  __device__ stages::Place place(const ColumnIterator& it, std::int64_t row, std::int64_t offset) const {
    return {offset, it.column, it.matrix + static_cast<int>(sample_rows.quotient(static_cast<std::uint32_t>(row)))};
  }

  template <class Column>
  __device__ void sum(Computed (&sums)[1][width], const Column&, ColumnIterator it, const ColumnSplit& split) const {
    const auto channels = source.template channels<width>({0, it.column, it.matrix});
    while (it.row < it.end) {
      typename Source::template Words<width> words[rows_at_once];
      std::int64_t row = it.row, offset = it.offset(split);
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i, row += it.step, offset += it.step * split.columns) {
        if (row < it.end) words[i] = source.template fetch<width>(place(it, row, offset));
      }
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i, it.row += it.step) {
        if (it.row >= it.end) continue;
        const auto terms = source.template values<width>(words[i], channels, stages::Nothing{});
#pragma unroll
        for (int k = 0; k < width; ++k) sums[0][k] += terms[k];
      }
    }
  }
};

/// A kernel for them; `terms` reads nothing.
template <class T, int width>
struct ColumnSumKernel {
  double* partial;  // (chunks, matrices, columns), or null
  DividedColumnSums<T, width> terms;
  cuda::Divisor sample_rows;
  ColumnSplit split;

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink&) const {
    write_column_sums(partial, SourceColumnSums<T, width, Source>{terms, source, sample_rows}, split);
  }
};

}  // namespace frit::ops
