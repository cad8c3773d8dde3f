#include "frit/ops/norm/norm_rows.h"

#include <array>
#include <cmath>
#include <optional>

#include "frit/ops/norm/norm_units.h"

namespace frit::ops {
namespace {

using detail::DenseOperand, detail::RepeatedOperand;

/// Rows that a task goes through at a time, while they are in its cache.
EvenBlocks row_blocks(const NormGeometry& geometry) {
  constexpr std::int64_t elements = 16384;
  return EvenBlocks(geometry.slices, std::max<std::int64_t>(1, elements / std::max<std::int64_t>(1, geometry.run_length)));
}

/// The sum of a vector's lanes.
double total(simd::Vector<double> x) {
  constexpr int lanes = simd::lanes<double>;
#pragma GCC unroll 3
  for (int half = lanes / 2; half > 0; half /= 2) {
    simd::Vector<simd::LaneNumber<double>> others;
    for (int i = 0; i < lanes; ++i) others[i] = (i + half) % lanes;
    x += simd::shuffle<double>(x, others);
  }
  return x[0];
}

/// Sums of terms(load, element, row, lane) over one row.
template <class Terms>
ColumnSums sum_row(std::int64_t length, const Terms& terms) {
  constexpr int width = simd::lanes<double>;
  const ColumnLanes lanes = sum_lanes(0, column_lanes, length, terms);
  ColumnSums found;
  for (std::size_t k = 0; k < found.size(); ++k) {
    simd::Vector<double> sums = simd::load(lanes[k].data());
    for (int lane = width; lane < column_lanes; lane += width) sums += simd::load(lanes[k].data() + lane);
    found[k] = total(sums);
  }
  return found;
}

/// Calls find(row), then use(row, what that found), for rows [begin, end), several at a time: what short rows take in turn, sums, quotients
/// and roots, then overlaps.
template <class Find, class Use>
void for_each_row(std::int64_t begin, std::int64_t end, const Find& find, const Use& use) {
  constexpr std::int64_t together = 16;
  std::array<std::optional<decltype(find(begin))>, together> found;
  for (std::int64_t first = begin; first < end; first += together) {
    const std::int64_t rows = std::min(together, end - first);
    for (std::int64_t i = 0; i < rows; ++i) found[static_cast<std::size_t>(i)] = find(first + i);
    for (std::int64_t i = 0; i < rows; ++i) use(first + i, *found[static_cast<std::size_t>(i)]);
  }
}

template <class T>
struct RowsForward {
  const KernelContext& call;
  const NormGeometry& geometry;
  const SliceRule& rule;
  const std::int64_t length = geometry.run_length;
  const T *input = call.inputs[0].data<T>(), *weight = data_or_null<T>(call.inputs, 1), *bias = data_or_null<T>(call.inputs, 2);
  T* output = data_or_null<T>(call.outputs, 0);
  double *means = data_or_null<double>(call.outputs, 1), *rstds = data_or_null<double>(call.outputs, 2);
  CoefficientOutputs<T> coefficients = CoefficientOutputs<T>(call.outputs);

  SliceStatistics statistics_of_row(std::int64_t row) const {
    if (length == 0) return rule(row, {});
    const T* const x = input + row * length;
    const double pivot = static_cast<double>(x[0]);
    const auto [sum, square_sum] = sum_row(length, [=](auto load, std::int64_t i, std::int64_t, int) {
      const auto difference = load(x + i) - pivot;
      return std::array{difference, difference * difference};
    });
    return rule(row, moments_of(length, pivot, sum, square_sum));
  }

  void normalize(std::int64_t row, const SliceStatistics& statistics) const {
    const NormCoefficients<T> own(statistics.mean, statistics.rstd, 1, 0);
    const DenseOperand<T> x{input + row * length};
    const auto normalized = [own](T value) { return (value - own.reference) * own.scale + own.shift; };
    if (weight == nullptr) {
      detail::map_run(output + row * length, length, normalized, x);
    } else {
      const auto function = [normalized](T value, T w, T b) { return normalized(value) * w + b; };
      detail::map_run(output + row * length, length, function, x, DenseOperand<T>{weight}, DenseOperand<T>{bias});
    }
  }

  void write_coefficients(std::int64_t row, const SliceStatistics& statistics) const {
    for (std::int64_t i = 0; i < length; ++i) {
      const double w = weight != nullptr ? static_cast<double>(weight[i]) : 1, b = bias != nullptr ? static_cast<double>(bias[i]) : 0;
      coefficients.write(row * length + i, {statistics.mean, statistics.rstd, w, b});
    }
  }

  void run() const {
    const EvenBlocks blocks = row_blocks(geometry);
    parallel_for(geometry.slices, blocks.size, [&](std::int64_t begin, std::int64_t end) {
      const auto find = [this](std::int64_t row) { return statistics_of_row(row); };
      for_each_row(begin, end, find, [this](std::int64_t row, const SliceStatistics& statistics) {
        if (means != nullptr) means[row] = statistics.mean;
        if (rstds != nullptr) rstds[row] = statistics.rstd;
        if (coefficients.any()) write_coefficients(row, statistics);
        if (output != nullptr) normalize(row, statistics);
      });
    });
  }
};

template <class T>
struct RowsBackward {
  const KernelContext& call;
  const NormGeometry& geometry;
  const std::int64_t length = geometry.run_length;
  const T *gradient = call.inputs[0].data<T>(), *input = call.inputs[1].data<T>(), *weight = data_or_null<T>(call.inputs, 4);
  const double *means = call.inputs[2].data<double>(), *rstds = call.inputs[3].data<double>();
  T* input_gradient = data_or_null<T>(call.outputs, 0);
  T *weight_gradient = data_or_null<T>(call.outputs, 1), *bias_gradient = data_or_null<T>(call.outputs, 2);
  double* column_sums = reinterpret_cast<double*>(call.scratch.data());  ///< (blocks, 2, length): of bias and weight

  NormInputGradient input_gradient_rule(std::int64_t row) const {
    const T *const g = gradient + row * length, *const x = input + row * length;
    const auto weighted = [&](const auto& weight_of) {
      return sum_row(length, [&, mean = means[row]](auto load, std::int64_t i, std::int64_t, int) {
        const auto term = load(g + i) * weight_of(load, i);
        return std::array{term, term * (load(x + i) - mean)};
      });
    };
    const ColumnSums sums = weight == nullptr ? weighted([](auto, std::int64_t) { return 1.0; })
                                              : weighted([&](auto load, std::int64_t i) { return load(weight + i); });
    return {{means[row], rstds[row]}, {sums[0], sums[1]}, length};
  }

  /// Computed in C.
  template <class C>
  void write_input_gradient(std::int64_t row, const NormInputGradient& rule) const {
    const T *const g = gradient + row * length, *const x = input + row * length;
    const C reference = static_cast<C>(rule.mean), rstd = static_cast<C>(rule.rstd), slope = static_cast<C>(rule.slope);
    const double rest = (rule.mean - static_cast<double>(reference)) * rule.slope;
    const C offset = static_cast<C>(std::isfinite(rest) ? rule.offset - rest : rule.offset);
    const auto function = [=](T term, T value, T w) {
      return static_cast<T>(static_cast<C>(term) * static_cast<C>(w) * rstd + ((static_cast<C>(value) - reference) * slope + offset));
    };
    T* const dx = input_gradient + row * length;
    if (weight == nullptr) {
      detail::map_run(dx, length, function, DenseOperand<T>{g}, DenseOperand<T>{x}, RepeatedOperand<T>{1});
    } else {
      detail::map_run(dx, length, function, DenseOperand<T>{g}, DenseOperand<T>{x}, DenseOperand<T>{weight});
    }
  }

  void sum_rows(std::int64_t first, std::int64_t rows, double* sums) const {
    const auto terms_of = [&](std::int64_t) {
      return [g = gradient + first * length, x = input + first * length, mean = means + first, rstd = rstds + first](
                 auto load, std::int64_t i, std::int64_t row, int) {
        const auto term = load(g + i);
        return std::array{term, term * ((load(x + i) - mean[row]) * rstd[row])};
      };
    };
    const auto keep = [&](std::int64_t column, const ColumnSums& found) {
      sums[column] = found[0];
      sums[length + column] = found[1];
    };
    if (length >= column_lanes) return sum_columns(length, rows, terms_of, keep);
    const ColumnLanes found = sum_lanes(0, length, rows * length, terms_of(0));  // sum_columns would join rows
    for (std::size_t lane = 0; lane < static_cast<std::size_t>(length); ++lane) {
      keep(static_cast<std::int64_t>(lane), {found[0][lane], found[1][lane]});
    }
  }

  /// Adds the blocks' sums, in order.
  void write_parameter_gradients(std::int64_t blocks) const {
    parallel_for(length, 256, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t column = begin; column < end; ++column) {
        NormGradientSums total;
        for (std::int64_t block = 0; block < blocks; ++block) {
          const double* const sums = column_sums + 2 * block * length + column;
          total += {sums[0], sums[length]};
        }
        if (weight_gradient != nullptr) weight_gradient[column] = static_cast<T>(total.product);
        if (bias_gradient != nullptr) bias_gradient[column] = static_cast<T>(total.gradient);
      }
    });
  }

  void run() const {
    if (length == 0) return;
    const EvenBlocks blocks = row_blocks(geometry);
    const bool wants_parameters = weight_gradient != nullptr || bias_gradient != nullptr;
    parallel_for(blocks.count, 1, [&](std::int64_t block, std::int64_t) {
      const std::int64_t first = blocks.begin(block), rows = blocks.length_of(block);
      // Before the input gradient, which may take the memory of the output gradient.
      if (wants_parameters) sum_rows(first, rows, column_sums + 2 * block * length);
      if (input_gradient == nullptr) return;
      const auto find = [this](std::int64_t row) { return input_gradient_rule(row); };
      for_each_row(first, first + rows, find, [this](std::int64_t row, const NormInputGradient& rule) {
        length < least_elements_in_float ? write_input_gradient<double>(row, rule) : write_input_gradient<T>(row, rule);
      });
    });
    if (wants_parameters) write_parameter_gradients(blocks.count);
  }
};

}  // namespace

void normalize_rows(const KernelContext& call, const NormGeometry& geometry, const SliceRule& rule) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() { RowsForward<T>{call, geometry, rule}.run(); });
}

void differentiate_rows(const KernelContext& call, const NormGeometry& geometry) {
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() { RowsBackward<T>{call, geometry}.run(); });
}

std::size_t row_gradients_scratch(const NormGeometry& geometry) {
  return static_cast<std::size_t>(2 * row_blocks(geometry).count * geometry.run_length) * sizeof(double);
}

}  // namespace frit::ops
