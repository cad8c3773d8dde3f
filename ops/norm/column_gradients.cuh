#pragma once

#include "frit/ops/norm/columns.cuh"
#include "frit/ops/norm/gradients.cuh"

namespace frit::ops {

// The passes over columns for their gradients: one for the sums of g and g * xhat, one for the input gradient.

/// The sums of g and g * xhat down columns. `by_row`: statistics belong to stretches of `group` elements, wherever a row ends; else to
/// groups of columns.
template <class T, class C, int width_, bool by_row, int rows_at_once = 2>
struct ColumnGradients {
  using Computed = C;
  using Total = SumPair;
  static constexpr int width = width_, values = 2;

  GradientInputs<T> from;
  ColumnGeometry g;
  bool aligned;

  /// xhat but for the rounding of the mean, which total() takes out of the sums.
  struct Column {
    C mean, rstd;
  };
  __device__ Column column(int matrix, int column) const {
    if (by_row) return {};
    const std::int64_t slice = g.slice(matrix, column);
    return {static_cast<C>(from.means[slice]), static_cast<C>(from.rstds[slice])};
  }
  /// What xhat is too much.
  __device__ double base(int matrix, int column) const {
    if (by_row) return 0;
    const std::int64_t slice = g.slice(matrix, column);
    return (from.means[slice] - static_cast<double>(static_cast<C>(from.means[slice]))) * from.rstds[slice];
  }

  __device__ void sum(C (&sums)[values][width], const Column (&own)[width], ColumnIterator it, const ColumnSplit& split) const {
    while (it.row < it.end) add_rows(sums[0], sums[1], own, it, split);
  }
  __device__ SumPair total(const C (&sums)[values], double rest, const ColumnIterator&, const ColumnSplit&) const {
    const auto sum = static_cast<double>(sums[0]), product = static_cast<double>(sums[1]);
    return {sum, by_row ? product : product - rest * sum};
  }

 private:
  __device__ void add_rows(C (&sum)[width], C (&product)[width], const Column (&own)[width], ColumnIterator& it,
                           const ColumnSplit& split) const {
    Rows<T, width, rows_at_once> gradients, inputs;
    gradients.load(from.gradient, it, split, aligned);
    inputs.load(from.input, it, split, aligned);
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i, it.row += it.step) {
      if (it.row >= it.end) continue;
      Normalizer<C> of_row;
      if (by_row && g.group == g.columns) of_row = {from.means[it.row], from.rstds[it.row]};
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const auto term = static_cast<C>(gradients(i, k)), x = static_cast<C>(inputs(i, k));
        if (by_row && g.group != g.columns) {
          const std::int64_t slice = (it.row * g.columns + it.column + k) / g.group;
          of_row = {from.means[slice], from.rstds[slice]};
        }
        sum[k] += term;
        product[k] += term * (by_row ? of_row(x) : (x - own[k].mean) * own[k].rstd);
      }
    }
  }
};

/// The input gradient of a column's elements, g * factor + (x - reference) * rstd * slope + offset; see InputGradientRule.
template <class C>
struct ColumnRule {
  C factor, reference, rstd, slope = 0, offset = 0;

  ColumnRule() = default;
  __device__ ColumnRule(double weight, double mean, double rstd_, const SumPair* means /* null: fixed */)
      : factor(static_cast<C>(weight * rstd_)), reference(static_cast<C>(mean)), rstd(static_cast<C>(rstd_)) {
    if (means == nullptr) return;
    const double exact_slope = -rstd_ * means->second, rest = mean - static_cast<double>(reference);
    slope = static_cast<C>(exact_slope);
    offset = static_cast<C>(-rstd_ * means->first - rest * rstd_ * exact_slope);
  }
};

/// The input gradient of a thread's rows of columns.
template <class T, class C, int width>
__device__ void write_columns(T* input_gradient, const GradientInputs<T>& from, const ColumnRule<C> (&own)[width], bool with_input,
                              ColumnIterator it, const ColumnSplit& split, bool aligned) {
  constexpr int rows_at_once = 4;
  while (it.row < it.end) {
    Rows<T, width, rows_at_once> gradients, inputs;
    gradients.load(from.gradient, it, split, aligned);
    if (with_input) inputs.load(from.input, it, split, aligned);
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i, it.row += it.step) {
      if (it.row >= it.end) continue;
      cuda::Vector<T, width> results;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        C result = static_cast<C>(gradients(i, k)) * own[k].factor;
        if (with_input) result += (static_cast<C>(inputs(i, k)) - own[k].reference) * own[k].rstd * own[k].slope + own[k].offset;
        results[k] = convert<T>(result);
      }
      store_vector(input_gradient + it.offset(split), results, aligned);
    }
  }
}

template <class T>
__device__ double channel_weight(const GradientInputs<T>& from, const ColumnGeometry& g, int column) {
  return from.weight != nullptr ? convert<double>(from.weight[g.channel(column)]) : 1;
}

}  // namespace frit::ops
