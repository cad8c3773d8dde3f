#include "frit/ops/linear/linear.h"

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/linear/matmul.h"
#include "frit/ops/linear/product_kernel.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/spelling.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {

Value linear(Value input, Value weight, Value bias) { return ops::emit_one("linear", {input, weight, bias}); }

namespace ops {
namespace {

std::vector<TensorType> infer_linear(const InferContext& call) {
  const Shape &input = call.shape(0), &weight = call.shape(1);
  for (std::size_t i = 1; i < call.inputs.size(); ++i) {
    call.require(call.inputs[i].dtype == call.inputs[0].dtype, "input \"", call.op.inputs[i].name, "\" is ", call.inputs[i].dtype,
                 ", input \"input\" is ", call.inputs[0].dtype);
  }
  const std::string shapes = concat(" (input ", input, ", weight ", weight, ")");
  call.require(input.rank() >= 1, "input needs rank 1 or more", shapes);
  call.require(weight.rank() == 2, "weight has rank ", weight.rank(), ", expected 2", shapes);
  call.require(input.back() == weight[1], "weight has ", weight[1], " input features, input has ", input.back(), shapes);
  if (call.has(2)) call.require(call.shape(2) == Shape{weight[0]}, "bias has shape ", call.shape(2), ", expected ", weight[0], shapes);
  TensorType result = call.inputs[0];
  result.shape[result.shape.rank() - 1] = weight[0];
  return {result};
}

}  // namespace

GemmShape linear_shape(const Shape& input, const Shape& weight) {
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < input.rank(); ++axis) rows *= input[axis];
  return {.rows = rows,
          .columns = weight[0],
          .depth = weight[1],
          .a_row_stride = weight[1],
          .a_depth_stride = 1,
          .b_depth_stride = 1,
          .b_column_stride = weight[1]};
}

namespace {

Values linear_gradient(const GradientContext& c) {
  const Value input = c.inputs[0], weight = c.inputs[1], gradient = c.gradients[0];
  Values result(c.inputs.size());
  if (c.wanted[0]) {
    result[0] = input.rank() > 1 ? matmul(gradient, weight) : reshape(matmul(as_rows(gradient), weight), {-1});
  }
  if (c.wanted[1]) result[1] = matmul(as_rows(gradient), as_rows(input), {.transpose_a = true});
  if (c.inputs.size() > 2 && c.wanted[2]) result[2] = sum(as_rows(gradient), {0});
  return result;
}

/// Files multiply by a weight (I, O), or by one that they transpose, and add the bias after it.
void add_spellings() {
  constexpr auto weight = [](Value given, bool lies_so) { return lies_so ? given : transpose(given, 0, 1); };
  for (const bool transposes : {false, true}) {
    const DecomposeRule rule = [=](Emitter&, std::span<const Value> inputs, const Attributes&) {
      require(inputs[0].rank() >= 2 && inputs[1].rank() == 2, "linear: no weight (input ", inputs[0].shape(), ", weight ",
              inputs[1].shape(), ")");
      const Value product = matmul(inputs[0], weight(inputs[1], !transposes));
      require(inputs[2].shape() == Shape{product.dim(-1)}, "linear: bias has shape ", inputs[2].shape(), ", product ", product.shape());
      return Values{product + inputs[2]};
    };
    const DecomposeRule call = [=](Emitter&, std::span<const Value> inputs, const Attributes&) {
      return Values{linear(inputs[0], weight(inputs[1], transposes), inputs[2])};
    };
    const TensorType input{DType::f32, {3, 5}}, matrix{DType::f32, transposes ? Shape{4, 5} : Shape{5, 4}}, bias{DType::f32, {4}};
    spellings().push_back({"linear", {}, rule, {input, matrix, bias}, call});
  }
}

std::vector<Sample> linear_samples() {
  return {{{Shape{3, 5}, Shape{4, 5}, Shape{4}}}, {{Shape{2, 3, 7}, Shape{2, 7}}},       {{Shape{5}, Shape{3, 5}, Shape{3}}},
          {{Shape{1, 1}, Shape{1, 1}, Shape{1}}}, {{Shape{2, 1, 2, 3}, Shape{4, 3}}},    {{Shape{0, 3}, Shape{2, 3}, Shape{2}}},
          {{Shape{1, 11}, Shape{6, 11}}},         {{Shape{2, 0}, Shape{3, 0}, Shape{3}}}};
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(linear) {
  add_spellings();
  registry.add({
      .name = "linear",
      .summary = "input (..., I) times weight (O, I) transposed, plus bias (O)",
      .inputs = {"input", "weight", {"bias", true}},
      .infer = infer_linear,
      .gradient = linear_gradient,
      .samples_in = [](const InferContext& call) { return call.shape(0).rank() > 1 ? samples_of_input_0(call) : std::vector<bool>(); },
      .precision = Precision::half,
      .cpu = product_kernel([](const Shape& input, const Shape& weight, const Attributes&) { return linear_shape(input, weight); }),
      .linear_inputs = {{2, LinearInput::addend, -1}},
      .samples = linear_samples,
      .multiplications =
          [](const InferContext& call, const TensorType& output) {
            return static_cast<double>(output.elements()) * static_cast<double>(call.shape(1)[1]);
          },
      .typical = {{Shape{512, 1024}, Shape{1024, 1024}}},
  });
}
