#include "frit/models/onnx/operators/helpers.h"

namespace frit::onnx {
namespace {

/// A vector is a row on the left and a column on the right, and its axis goes again.
Values matrix_product(const Call& call) {
  Value a = as_floating(call[0]), b = as_floating(call[1]);
  const bool row = a.rank() == 1, column = b.rank() == 1;
  if (row) a = unsqueeze(a, 0);
  if (column) b = unsqueeze(b, 1);
  Value y = matmul(a, b);
  if (column) y = squeeze(y, -1);
  if (row) y = squeeze(y, column ? -1 : -2);
  return {cast(y, call[0].dtype())};
}

/// alpha A B + beta C, A and B transposed where the attributes say so.
Values gemm(const Call& call) {
  Value a = as_floating(call[0]), b = as_floating(call[1]);
  call.require_support(a.rank() == 2 && b.rank() == 2, "its inputs have ranks ", a.rank(), " and ", b.rank(), ", expected 2");
  const double alpha = call.real("alpha", 1), beta = call.real("beta", 1);
  if (call.integer("transA", 0) != 0) a = transpose(a, 0, 1);
  const bool weight_like = call.integer("transB", 0) != 0;
  const Value c = call.has_input(2) ? as_floating(call[2]) : Value();
  const bool bias_like = !c || (c.rank() == 1 && c.dim(0) == b.dim(weight_like ? 0 : 1) && beta == 1);
  if (weight_like && bias_like && alpha == 1) return {cast(frit::linear(a, b, c), call[0].dtype())};
  Value y = matmul(a, weight_like ? transpose(b, 0, 1) : b);
  if (alpha != 1) y = y * alpha;
  if (c) y = y + (beta == 1 ? c : c * beta);
  return {cast(y, call[0].dtype())};
}

Values running_sums(const Call& call) {
  const Sizes axis = call.integers(1);
  call.require_support(axis.size() == 1, "its axis is not one number");
  const Value sums = cumulative_sum(call[0], axis[0], call.integer("exclusive", 0) != 0, call.integer("reverse", 0) != 0);
  return {cast(sums, call[0].dtype())};
}

}  // namespace

void add_linear(OperatorTable& table) {
  table["MatMul"] = matrix_product;
  table["Gemm"] = gemm;
  table["CumSum"] = running_sums;
}

}  // namespace frit::onnx
