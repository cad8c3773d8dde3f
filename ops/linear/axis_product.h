#pragma once

#include "frit/ops/operator/value.h"

namespace frit::ops {

/// A matrix that does not change, (rows, columns), of float64 numbers in row-major order.
struct Matrix {
  std::int64_t rows, columns;
  std::vector<double> numbers;

  /// Zeros. Throws ErrorKind::argument, beginning with `what`, for more than a graph is to hold.
  Matrix(const char* what, std::int64_t matrix_rows, std::int64_t matrix_columns);
  double& at(std::int64_t row, std::int64_t column) { return numbers[static_cast<std::size_t>(row * columns + column)]; }
};

/// Each line of x along `axis` becomes the matrix times it. What is not finite makes NaN of all of its line.
Value axis_product(Value x, int axis, const Matrix& matrix);

}  // namespace frit::ops
