#pragma once

#include "frit/core/cuda/divisor.cuh"
#include "frit/ops/cuda/stages.cuh"
#include "frit/ops/norm/columns.cuh"

namespace frit::ops {

// The passes over columns for the norms' gradients: one for the sums of g and g * xhat, one for the input gradient. The gradient comes from
// a Source and the input gradient goes to a Sink (see stages.cuh).

/// What is read besides the gradient.
template <class T>
struct NormOfColumns {
  stages::Stored<T> input;
  const T* weight;              // (channels), or null
  const double *means, *rstds;  // (slices)
  ColumnGeometry g;
  cuda::Divisor sample_rows;  ///< rows of a sample, where they are below 2^31

  __device__ double channel_weight(int column) const { return weight != nullptr ? convert<double>(weight[g.channel(column)]) : 1; }
  __device__ stages::Place place(const ColumnIterator& it, std::int64_t row, std::int64_t offset) const {
    return {offset, it.column, it.matrix + static_cast<int>(sample_rows.quotient(static_cast<std::uint32_t>(row)))};
  }
  __device__ stages::Place place(const ColumnIterator& it, const ColumnSplit& split) const { return place(it, it.row, it.offset(split)); }
};

/// Whether a source needs the norm's input in any case.
template <class Source>
inline constexpr bool reads_beside = requires {
  Source::reads_beside;
};

/// A source's neighbouring rows of a thread's columns, fetched together.
template <class Source, int width, int count>
struct FetchedRows {
  typename Source::template Words<width> words[count];

  /// Those of row it.row and the next ones of the thread that are below it.end.
  template <class Norm>
  __device__ void fetch(const Source& source, const Norm& norm, const ColumnIterator& it, const ColumnSplit& split) {
    std::int64_t row = it.row, offset = it.offset(split);
    const std::int64_t stride = it.step * split.columns;
#pragma unroll
    for (int i = 0; i < count; ++i, row += it.step, offset += stride) {
      if (row < it.end) words[i] = source.template fetch<width>(norm.place(it, row, offset));
    }
  }
};

/// The sums of g and g * xhat down columns. `by_row`: statistics belong to stretches of `group` elements, wherever a row ends; else to
/// groups of columns.
template <class T, class C, int width_, bool by_row, int rows_at_once = 2, class Source = stages::Stored<T>>
struct ColumnGradients {
  using Computed = C;
  using Total = SumPair;
  static constexpr int width = width_, values = 2;

  Source gradient;
  NormOfColumns<T> norm;

  /// xhat but for the rounding of the mean, which total() takes out of the sums.
  struct Column {
    C mean, rstd;
  };
  __device__ Column column(int matrix, int column) const {
    if (by_row) return {};
    const std::int64_t slice = norm.g.slice(matrix, column);
    return {static_cast<C>(norm.means[slice]), static_cast<C>(norm.rstds[slice])};
  }
  /// What xhat is too much.
  __device__ double base(int matrix, int column) const {
    if (by_row) return 0;
    const std::int64_t slice = norm.g.slice(matrix, column);
    return (norm.means[slice] - static_cast<double>(static_cast<C>(norm.means[slice]))) * norm.rstds[slice];
  }

  __device__ void sum(C (&sums)[values][width], const Column (&own)[width], ColumnIterator it, const ColumnSplit& split) const {
    const auto channels = gradient.template channels<width>(norm.place(it, split));
    while (it.row < it.end) add_rows(sums[0], sums[1], channels, own, it, split);
  }
  __device__ SumPair total(const C (&sums)[values], double rest, const ColumnIterator&, const ColumnSplit&) const {
    const auto sum = static_cast<double>(sums[0]), product = static_cast<double>(sums[1]);
    return {sum, by_row ? product : product - rest * sum};
  }

 private:
  template <class Channels>
  __device__ void add_rows(C (&sum)[width], C (&product)[width], const Channels& channels, const Column (&own)[width], ColumnIterator& it,
                           const ColumnSplit& split) const {
    const ColumnGeometry& g = norm.g;
    FetchedRows<Source, width, rows_at_once> gradients;
    FetchedRows<stages::Stored<T>, width, rows_at_once> inputs;
    gradients.fetch(gradient, norm, it, split);
    inputs.fetch(norm.input, norm, it, split);
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i, it.row += it.step) {
      if (it.row >= it.end) continue;
      Normalizer<C> of_row;
      if (by_row && g.group == g.columns) of_row = {norm.means[it.row], norm.rstds[it.row]};
      const auto terms = gradient.template values<width>(gradients.words[i], channels, inputs.words[i]);
      const auto elements = norm.input.template values<width>(inputs.words[i], {});
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const auto term = static_cast<C>(terms[k]), x = static_cast<C>(elements[k]);
        if (by_row && g.group != g.columns) {
          const std::int64_t slice = (it.row * g.columns + it.column + k) / g.group;
          of_row = {norm.means[slice], norm.rstds[slice]};
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
template <class C, int width, class Sink, class Source, class T>
__device__ void write_columns(const Sink& sink, const Source& gradient, const NormOfColumns<T>& norm, const ColumnRule<C> (&own)[width],
                              bool with_input, ColumnIterator it, const ColumnSplit& split) {
  constexpr int rows_at_once = 4;
  const stages::Place first = norm.place(it, split);
  const auto channels = gradient.template channels<width>(first);
  const auto sink_channels = sink.template channels<width>(first);
  while (it.row < it.end) {
    FetchedRows<Source, width, rows_at_once> gradients;
    FetchedRows<stages::Stored<T>, width, rows_at_once> inputs;
    FetchedRows<Sink, width, rows_at_once> operands;
    gradients.fetch(gradient, norm, it, split);
    if (with_input || reads_beside<Source>) inputs.fetch(norm.input, norm, it, split);
    operands.fetch(sink, norm, it, split);
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i, it.row += it.step) {
      if (it.row >= it.end) continue;
      const auto terms = gradient.template values<width>(gradients.words[i], channels, inputs.words[i]);
      const auto elements = norm.input.template values<width>(inputs.words[i], {});
      cuda::Vector<C, width> results;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        results[k] = static_cast<C>(terms[k]) * own[k].factor;
        if (with_input) results[k] += (static_cast<C>(elements[k]) - own[k].reference) * own[k].rstd * own[k].slope + own[k].offset;
      }
      sink.template store<width>(norm.place(it, split), results, operands.words[i], sink_channels);
    }
  }
}

/// A thread for a few rows of a vector of columns. Reads g, and x unless the statistics are fixed, and writes dx once; dx may lie on g.
template <class C, int width, class Sink, class Source, class T>
__device__ void write_column_gradients(const Sink& sink, const Source& gradient, const NormOfColumns<T>& norm,
                                       const SumPair* means /* (slices), null if fixed */, const ColumnSplit& split) {
  const ColumnIterator it(split);
  ColumnRule<C> own[width];
  make_once(own, it, split, [&](int column) {
    const std::int64_t slice = norm.g.slice(it.matrix, column);
    return ColumnRule<C>(norm.channel_weight(column), norm.means[slice], norm.rstds[slice], means == nullptr ? nullptr : means + slice);
  });
  if (it.inside) write_columns(sink, gradient, norm, own, means != nullptr, it, split);
}

/// Few blocks have a multiprocessor to themselves: more is under way in each.
template <class T, class C, int width, class Source = stages::Stored<T>>
using WholeColumnGradients = ColumnGradients<T, C, width, /*by_row=*/false, /*rows_at_once=*/4, Source>;

/// A block, or a cluster that shares the rows, for all columns of some slices: reads g and x twice, the second time from a cache, and
/// writes dx once and the sums of columns, not weighted: as they are, or as the parameters' gradients where a column is a channel. dx may
/// lie on g. Deterministic.
template <class C, int width, class Sink, class Source, class T>
__device__ void write_whole_column_gradients(const Sink& sink, SumPair* partial /* (matrices, columns), or null */,
                                             const FinishParameters<T>& parameters, const WholeColumnGradients<T, C, width, Source>& terms,
                                             double inverse_count, const ColumnSplit& split) {
  constexpr int most = ColumnSplit::most_lanes * width;
  __shared__ SumPair column_sums[most], means[most];  // weighted; (slices of the block)
  const NormOfColumns<T>& norm = terms.norm;
  const ColumnIterator it(split);
  {
    const ColumnTotal<WholeColumnGradients<T, C, width, Source>> found(terms, it, split);
    const SumPair total = total_of_cluster(found, split);
    if (found.valid) {
      const double w = norm.channel_weight(found.column);
      column_sums[threadIdx.x] = {w * total.first, w * total.second};
      if (it.chunk == 0 && partial != nullptr) {
        partial[it.matrix * split.columns + found.column] = total;
      } else if (it.chunk == 0) {
        parameters(found.column, total);
      }
    }
  }
  __syncthreads();
  for_slices(column_sums, norm.g, it, split, [&](int place, int, const SumPair& sums) {
    means[place] = {sums.first * inverse_count, sums.second * inverse_count};
  });
  __syncthreads();
  ColumnRule<C> own[width];
  const int first = it.column - it.lane * width;
  make_once(own, it, split, [&](int column) {
    const std::int64_t slice = norm.g.slice(it.matrix, column);
    return ColumnRule<C>(norm.channel_weight(column), norm.means[slice], norm.rstds[slice],
                         means + (column - first) / static_cast<int>(norm.g.group));
  });
  if (it.inside) write_columns(sink, terms.gradient, norm, own, true, it, split);
  leave_cluster(split);
}

}  // namespace frit::ops
