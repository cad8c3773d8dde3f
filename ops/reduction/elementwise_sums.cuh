#pragma once

#include "frit/core/cuda/divisor.cuh"
#include "frit/ops/cuda/columns.cuh"
#include "frit/ops/cuda/stages.cuh"

namespace frit::ops {

// What a program whose results are summed down columns is written in: see elementwise_sums.cu. NVRTC compiles this header too.

inline constexpr int most_column_sums = 4;

/// Where sums go, divided by a number.
struct SumResults {
  enum class Format : std::uint8_t { f64, f32, f16, bf16 };

  void* data[most_column_sums];  // (matrices, columns) each; null: nobody reads it
  Format format[most_column_sums];
  int count;
  double divisor;

  __device__ void write(int which, std::int64_t place, double sum) const {
    void* const to = data[which];
    if (to == nullptr) return;
    const double value = sum / divisor;
    switch (format[which]) {
      case Format::f64: static_cast<double*>(to)[place] = value; break;
      case Format::f32: static_cast<float*>(to)[place] = static_cast<float>(value); break;
      case Format::f16: static_cast<Half*>(to)[place] = convert<Half>(value); break;
      case Format::bf16: static_cast<BFloat16*>(to)[place] = convert<BFloat16>(value); break;
    }
  }
  /// Of finish_column_sums: a column's sums stand side by side.
  __device__ void finish(std::int64_t place, double sum) const { write(static_cast<int>(place % count), place / count, sum); }
};

/// The terms of sum_columns (see columns.cuh) of what a Program computes, `rows_at_once` of whose operands are under way: see compiled_sums
/// in ops/elementwise/compiled_stage.cuh. Its matrices are samples, or the only one is all of them.
template <class Program, int width_, int rows_at_once>
struct ProgramSums {
  using Computed = typename Program::Computed;
  static constexpr int width = width_, values = Program::sums;
  using Total = ColumnTotals<values>;

  const Program& program;
  const SumResults& results;
  cuda::Divisor sample_rows;

  struct Column {};
  __device__ Column column(int, int) const { return {}; }
  __device__ double base(int, int) const { return 0; }

  __device__ stages::Place place(const ColumnIterator& it, std::int64_t row, std::int64_t offset) const {
    return {offset, it.column, it.matrix + static_cast<int>(sample_rows.quotient(static_cast<std::uint32_t>(row)))};
  }

  __device__ void sum(Computed (&sums)[values][width], const Column (&)[width], ColumnIterator it, const ColumnSplit& split) const {
    const auto channels = program.template channels<width>({0, it.column, it.matrix});
    while (it.row < it.end) {
      typename Program::template Words<width> words[rows_at_once];
      std::int64_t row = it.row, offset = it.offset(split);
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i, row += it.step, offset += it.step * split.columns) {
        if (row < it.end) words[i] = program.template fetch<width>(place(it, row, offset));
      }
      row = it.row, offset = it.offset(split);
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i, row += it.step, offset += it.step * split.columns) {
        if (row < it.end) program.template evaluate<width>(place(it, row, offset), words[i], channels, sums);
      }
      it.row = row;
    }
  }
  __device__ Total total(const Computed (&sums)[values], double, const ColumnIterator&, const ColumnSplit&) const {
    return Total(sums);
  }
  __device__ void finish(std::int64_t place, const Total& total) const {
#pragma unroll
    for (int v = 0; v < values; ++v) results.write(v, place, total.of[v]);
  }
};

}  // namespace frit::ops
