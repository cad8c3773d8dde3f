#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "frit/ops/cpu/converted_vectors.h"

namespace frit::ops {

// Sums over the columns of rows that follow each other, in float64, whatever the number of columns: of a channels-last image, whose columns
// are its channels, or of one column, as a contiguous image's channel is.

inline constexpr int column_lanes = 16;
/// Two sums, which are all that norms take of their elements, and those of each lane.
using ColumnSums = std::array<double, 2>;
using ColumnLanes = std::array<std::array<double, column_lanes>, 2>;

/// How terms read numbers for neighbouring lanes, as float64: V is a vector of them, or one.
template <class V>
struct LoadLanes {
  template <class T>
  V operator()(const T* from) const {
    return load_as<V>(from);
  }
};

/// Sums of terms(load, element, row, lane), a std::array of two, over the elements first + row * step + lane below `end`; lanes from
/// `step` on are no sums.
template <class Terms>
ColumnLanes sum_lanes(std::int64_t first, std::int64_t step, std::int64_t end, const Terms& terms) {
  constexpr int width = simd::lanes<double>, vectors = column_lanes / width;
  simd::Vector<double> wide[2][vectors] = {};
  std::int64_t i = first, row = 0;
  for (; i + column_lanes <= end; i += step, ++row) {
    for (int v = 0; v < vectors; ++v) {
      const auto term = terms(LoadLanes<simd::Vector<double>>(), i + v * width, row, v * width);
      for (std::size_t k = 0; k < 2; ++k) wide[k][v] += term[k];
    }
  }
  ColumnLanes sums;
  static_assert(sizeof sums == sizeof wide);
  std::memcpy(&sums, &wide, sizeof sums);
  for (; i < end; i += step, ++row) {
    for (int lane = 0; lane < std::min(step, end - i); ++lane) {
      const auto term = terms(LoadLanes<double>(), i + lane, row, lane);
      for (std::size_t k = 0; k < 2; ++k) sums[k][static_cast<std::size_t>(lane)] += term[k];
    }
  }
  return sums;
}

/// Calls result(column, sums) for each of `columns` columns of `rows` rows; terms_of(column) gives the terms of sum_lanes for lanes from
/// that column on.
template <class TermsOf, class Result>
void sum_columns(std::int64_t columns, std::int64_t rows, const TermsOf& terms_of, const Result& result) {
  const auto total = [&](const ColumnLanes& sums, std::int64_t first, std::int64_t step, std::int64_t end) {
    ColumnSums found{};
    for (std::int64_t lane = first; lane < end; lane += step) {
      for (std::size_t k = 0; k < 2; ++k) found[k] += sums[k][static_cast<std::size_t>(lane)];
    }
    return found;
  };
  if (columns < column_lanes) {  // rows side by side
    const std::int64_t step = column_lanes / columns * columns;
    const ColumnLanes sums = sum_lanes(0, step, columns * rows, terms_of(std::int64_t{0}));
    for (std::int64_t column = 0; column < columns; ++column) result(column, total(sums, column, columns, step));
    return;
  }
  for (std::int64_t next = 0; next < columns; next += column_lanes) {
    const std::int64_t first = std::min(next, columns - column_lanes);
    const ColumnLanes sums = sum_lanes(first, columns, columns * rows, terms_of(first));
    for (std::int64_t lane = 0; lane < column_lanes; ++lane) result(first + lane, total(sums, lane, column_lanes, column_lanes));
  }
}

/// Numbers of the columns, for the lanes of sum_columns from a column on.
inline std::array<double, column_lanes> lanes_of(const double* numbers, std::int64_t first, std::int64_t columns) {
  std::array<double, column_lanes> result;
  std::int64_t column = first;
  for (double& lane : result) {
    lane = numbers[column];
    if (++column == columns) column = 0;
  }
  return result;
}

/// The terms of the moments of x from pivots: differences, and their squares.
template <class T>
auto moment_terms(const T* x, const std::array<double, column_lanes>& pivots) {
  return [x, pivots](auto load, std::int64_t i, std::int64_t, int lane) {
    const auto difference = load(x + i) - load(pivots.data() + lane);
    return std::array{difference, difference * difference};
  };
}

}  // namespace frit::ops
