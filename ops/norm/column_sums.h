#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "frit/ops/cpu/simd.h"

namespace frit::ops {

// Sums over the columns of rows that follow each other, in float64, whatever the number of columns: of a channels-last image, whose columns
// are its channels, or of one column, as a contiguous image's channel is.

inline constexpr int column_lanes = 16;
/// `count` sums in each lane.
template <std::size_t count>
using ColumnLanes = std::array<std::array<double, column_lanes>, count>;

/// How terms read numbers for neighbouring lanes, as float64: a vector of them, and one.
struct LoadLanes {
  using Result = simd::Vector<double>;
  static constexpr int lanes = simd::lanes<double>;

  template <class T>
  Result operator()(const T* from) const {
    typedef T Narrow __attribute__((vector_size(lanes * sizeof(T))));
    Narrow loaded;
    std::memcpy(&loaded, from, sizeof loaded);
    return __builtin_convertvector(loaded, Result);
  }
};
struct LoadLane {
  template <class T>
  double operator()(const T* from) const {
    return static_cast<double>(*from);
  }
};

/// Sums of terms(load, element, row, lane), a std::array of `count`, over the elements first + row * step + lane below `end`; lanes from
/// `step` on are no sums.
template <std::size_t count, class Terms>
ColumnLanes<count> sum_lanes(std::int64_t first, std::int64_t step, std::int64_t end, const Terms& terms) {
  constexpr int width = LoadLanes::lanes, vectors = column_lanes / width;
  simd::Vector<double> wide[count][vectors] = {};
  std::int64_t i = first, row = 0;
  for (; i + column_lanes <= end; i += step, ++row) {
    for (int v = 0; v < vectors; ++v) {
      const auto term = terms(LoadLanes(), i + v * width, row, v * width);
      for (std::size_t k = 0; k < count; ++k) wide[k][v] += term[k];
    }
  }
  ColumnLanes<count> sums;
  static_assert(sizeof sums == sizeof wide);
  std::memcpy(&sums, &wide, sizeof sums);
  for (; i < end; i += step, ++row) {
    for (int lane = 0; lane < std::min(step, end - i); ++lane) {
      const auto term = terms(LoadLane(), i + lane, row, lane);
      for (std::size_t k = 0; k < count; ++k) sums[k][static_cast<std::size_t>(lane)] += term[k];
    }
  }
  return sums;
}

/// Calls result(column, sums) for each of `columns` columns of `rows` rows; terms_of(column) gives the terms of sum_lanes for lanes from
/// that column on.
template <std::size_t count, class TermsOf, class Result>
void sum_columns(std::int64_t columns, std::int64_t rows, const TermsOf& terms_of, const Result& result) {
  const auto total = [&](const ColumnLanes<count>& sums, std::int64_t first, std::int64_t step, std::int64_t end) {
    std::array<double, count> found{};
    for (std::int64_t lane = first; lane < end; lane += step) {
      for (std::size_t k = 0; k < count; ++k) found[k] += sums[k][static_cast<std::size_t>(lane)];
    }
    return found;
  };
  if (columns < column_lanes) {  // rows side by side
    const std::int64_t step = column_lanes / columns * columns;
    const ColumnLanes<count> sums = sum_lanes<count>(0, step, columns * rows, terms_of(std::int64_t{0}));
    for (std::int64_t column = 0; column < columns; ++column) result(column, total(sums, column, columns, step));
    return;
  }
  for (std::int64_t next = 0; next < columns; next += column_lanes) {
    const std::int64_t first = std::min(next, columns - column_lanes);
    const ColumnLanes<count> sums = sum_lanes<count>(first, columns, columns * rows, terms_of(first));
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
