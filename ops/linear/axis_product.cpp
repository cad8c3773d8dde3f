#include "frit/ops/linear/axis_product.h"

#include "frit/ops/linear/matmul.h"
#include "frit/ops/operator/emitter.h"
#include "frit/ops/shape/sizes.h"

namespace frit::ops {

Matrix::Matrix(const char* what, std::int64_t matrix_rows, std::int64_t matrix_columns) : rows(matrix_rows), columns(matrix_columns) {
  constexpr std::int64_t most_elements = 1 << 28;
  require(columns == 0 || rows <= most_elements / columns, what, ": a matrix of ", rows, " times ", columns, " numbers is too large");
  numbers.resize(static_cast<std::size_t>(rows * columns));
}

Value axis_product(Value x, int axis, const Matrix& matrix) {
  const Value constant = x.emitter().constant(Tensor::from(matrix.numbers, {matrix.rows, matrix.columns}).to(x.dtype()));
  if (axis == x.rank() - 1) return matmul(x, constant, {.transpose_b = true});
  Shape shape = x.shape();
  std::int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  shape[axis] = matrix.rows;
  return reshape_to(matmul(constant, reshape_to(x, with_batch_of(x, {outer, matrix.columns, inner})), {}), with_batch_of(x, shape));
}

}  // namespace frit::ops
