#include "frit/ops/linear/matmul.h"

#include <utility>

#include "frit/ops/linear/linear.h"
#include "frit/ops/linear/product_kernel.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {

Value matmul(Value a, Value b) { return ops::matmul(a, b, {}); }

namespace ops {

Value matmul(Value a, Value b, MatmulAttributes attributes) { return emit_one("matmul", {a, b}, attributes); }

Value as_rows(Value x) {
  if (x.rank() == 1) return reshape(x, {1, -1});
  return x.rank() > 2 ? flatten(x, 0, -2) : x;
}

namespace {

/// The axes before the last two.
Dims batch_of(const Shape& shape) { return Dims(std::span<const std::int64_t>(shape.begin(), shape.end() - 2)); }

struct Operand {
  std::int64_t rows, columns, row_stride, column_stride;
};

/// The matrix that a contiguous operand holds, seen transposed or not.
Operand operand(const Shape& shape, bool transposed) {
  const std::int64_t rows = shape[shape.rank() - 2], columns = shape.back();
  if (transposed) return {columns, rows, 1, columns};
  return {rows, columns, columns, 1};
}

std::vector<TensorType> infer_matmul(const InferContext& call) {
  const auto& attributes = call.as<MatmulAttributes>();
  const Shape &a = call.shape(0), &b = call.shape(1);
  call.require(call.inputs[0].dtype == call.inputs[1].dtype, "input \"b\" is ", call.inputs[1].dtype, ", input \"a\" is ",
               call.inputs[0].dtype);
  call.require(a.rank() >= 2 && b.rank() >= 2, "both inputs need rank 2 or more (a ", a, ", b ", b, ")");
  const Operand left = operand(a, attributes.transpose_a), right = operand(b, attributes.transpose_b);
  call.require(left.columns == right.rows, "a", attributes.transpose_a ? " transposed" : "", " has ", left.columns, " columns, b",
               attributes.transpose_b ? " transposed" : "", " has ", right.rows, " rows (a ", a, ", b ", b, ")");
  Shape result = broadcast_shapes(batch_of(a), batch_of(b));
  result.push_back(left.rows);
  result.push_back(right.columns);
  return {{call.inputs[0].dtype, result}};
}

/// The strides of an operand's batch axes, 0 where it is repeated to give `batch`.
Strides batch_strides(const Shape& shape, const Dims& batch) {
  Strides strides = Strides::filled(batch.rank(), 0);
  std::int64_t stride = shape[shape.rank() - 2] * shape.back();
  for (int axis = shape.rank() - 3, result = batch.rank() - 1; axis >= 0; --axis, --result) {
    if (shape[axis] != 1) strides[result] = stride;
    stride *= shape[axis];
  }
  return strides;
}

}  // namespace

GemmShape matmul_shape(const Shape& a, const Shape& b, const MatmulAttributes& attributes) {
  const Operand left = operand(a, attributes.transpose_a), right = operand(b, attributes.transpose_b);
  GemmShape shape{.rows = left.rows,
                  .columns = right.columns,
                  .depth = left.columns,
                  .a_row_stride = left.row_stride,
                  .a_depth_stride = left.column_stride,
                  .b_depth_stride = right.row_stride,
                  .b_column_stride = right.column_stride};
  if (b.rank() == 2 && !attributes.transpose_a) {  // one b for all: the matrices of a are one tall matrix
    shape.rows *= element_count(batch_of(a));
    return shape;
  }
  shape.batch = broadcast_shapes(batch_of(a), batch_of(b));
  shape.a_batch_strides = batch_strides(a, shape.batch);
  shape.b_batch_strides = batch_strides(b, shape.batch);
  return shape;
}

namespace {

Values matmul_gradient(const GradientContext& c) {
  const auto [transpose_a, transpose_b] = c.as<MatmulAttributes>();
  const Value a = c.inputs[0], b = c.inputs[1], g = c.gradients[0];
  Values result(2);
  if (c.wanted[0]) {
    result[0] = transpose_a ? matmul(b, g, {transpose_b, true}) : matmul(g, b, {false, !transpose_b});
  }
  if (c.wanted[1] && b.rank() == 2 && !transpose_a) {  // the sum over the batch is part of the product
    const Value a_rows = as_rows(a), g_rows = as_rows(g);
    result[1] = transpose_b ? matmul(g_rows, a_rows, {true, false}) : matmul(a_rows, g_rows, {true, false});
  } else if (c.wanted[1]) {
    result[1] = transpose_b ? matmul(g, a, {true, transpose_a}) : matmul(a, g, {!transpose_a, false});
  }
  return result;
}

/// An exchange of b's last two axes. A transposed a is no tall matrix where b serves the whole batch.
std::optional<Attributes> absorb(const OperatorCall& producer, const TensorType&, std::size_t input, const Attributes& own) {
  if (input != 1 || !producer.op->permutation) return std::nullopt;
  Dims axes = producer.op->permutation(producer.attributes);
  std::swap(axes[axes.rank() - 2], axes[axes.rank() - 1]);
  for (int axis = 0; axis < axes.rank(); ++axis) {
    if (axes[axis] != axis) return std::nullopt;
  }
  MatmulAttributes attributes = own.as<MatmulAttributes>();
  attributes.transpose_b = !attributes.transpose_b;
  return attributes;
}

/// Of more columns of b, which are zeros.
Value longer_rows(std::span<const Value> inputs, const Attributes& attributes, std::int64_t more) {
  const auto& a = attributes.as<MatmulAttributes>();
  return matmul(inputs[0], lengthened(inputs[1], a.transpose_b ? -2 : -1, more, 0), a);
}

/// With more rows of b, which are zeros.
Value of_longer_rows(std::span<const Value> inputs, const Attributes& attributes, std::int64_t more) {
  const auto& a = attributes.as<MatmulAttributes>();
  return a.transpose_a ? Value() : matmul(inputs[0], lengthened(inputs[1], a.transpose_b ? -1 : -2, more, 0), a);
}

std::vector<Sample> matmul_samples() {
  return {{{Shape{3, 5}, Shape{5, 4}}},
          {{Shape{5, 3}, Shape{5, 7}}, MatmulAttributes{true, false}},
          {{Shape{2, 3, 5}, Shape{4, 5}}, MatmulAttributes{false, true}},
          {{Shape{2, 1, 4, 3}, Shape{3, 2, 4}}, MatmulAttributes{true, true}},
          {{Shape{3, 5}, Shape{2, 5, 2}}},
          {{Shape{1, 7}, Shape{7, 1}}},
          {{Shape{1, 6}, Shape{6, 5}}},
          {{Shape{1, 1}, Shape{1, 1}}},
          {{Shape{2, 0}, Shape{0, 3}}},
          {{Shape{0, 3, 2}, Shape{2, 4}}}};
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(matmul) {
  registry.add<MatmulAttributes>({
      .name = "matmul",
      .summary = "a (..., M, K) times b (..., K, N), each transposed or not; the axes before broadcast",
      .inputs = {"a", "b"},
      .infer = infer_matmul,
      .gradient = matmul_gradient,
      .absorb = absorb,
      .longer_rows = longer_rows,
      .of_longer_rows = of_longer_rows,
      .precision = Precision::half,
      .cpu = product_kernel([](const Shape& a, const Shape& b, const Attributes& attributes) {
        return matmul_shape(a, b, attributes.as<MatmulAttributes>());
      }),
      .samples = matmul_samples,
      .multiplications =
          [](const InferContext& call, const TensorType& output) {
            const GemmShape shape = matmul_shape(call.shape(0), call.shape(1), call.as<MatmulAttributes>());
            return static_cast<double>(output.elements()) * static_cast<double>(shape.depth);
          },
      .typical = {{Shape{512, 512}, Shape{512, 512}}},
  });
}
