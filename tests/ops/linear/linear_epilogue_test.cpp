#include "frit/ops/linear/linear_epilogue.h"

#include <gtest/gtest.h>

#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/core/random.h"
#include "frit/ops/libraries/library_plans.h"
#include "frit/ops/operator/run.h"
#include "ops/elementwise/evaluation.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

using ops::ElementwiseAttributes, ops::ElementwiseProgram, ops::Operator;

constexpr const char *gelu = "y0 = gelu(x0) {\"approximate\":\"none\"}; return y0",
                     *scaled = "y0 = multiply(x0, x1); y1 = add(x2, y0); return y1";

ElementwiseAttributes with(const char* program) { return {ElementwiseProgram::parse(program)}; }

std::string error_of(const char* program, const std::vector<Shape>& shapes) {
  std::vector<TensorType> types;
  for (const Shape& shape : shapes) types.push_back({DType::f32, shape});
  return message_of([&] { ops::registry().find("linear_epilogue").infer_types(types, with(program)); });
}

TEST(LinearEpilogue, NamesWhatDoesNotFit) {
  const Shape x{2, 3, 4}, weight{5, 4}, result{2, 3, 5};
  EXPECT_EQ(error_of("y0 = exp(x0); return y0", {x, weight}), "linear_epilogue: the program is no epilogue: y0 = exp(x0); return y0");
  EXPECT_EQ(error_of("y0 = add(x0, x1); return y0", {x, weight}), "linear_epilogue: the program needs 1 operands");
  EXPECT_EQ(error_of(gelu, {x, weight, {4}}), "linear_epilogue: linear: bias has shape 4, expected 5 (input 2x3x4, weight 5x4)");
  EXPECT_EQ(error_of("y0 = add(x0, x1); return y0", {x, weight, {3, 1}}),
            "linear_epilogue: the program is no epilogue: y0 = add(x0, x1); return y0");
  EXPECT_EQ(error_of(scaled, {x, weight, {5}, {5}, result}), "no error");
  EXPECT_EQ(error_of(scaled, {x, weight, {1, 1, 5}, result}), "no error");
}

class CudaLinearEpilogue : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
  void TearDown() override { set_numerics({}); }

  /// The call against its definition in float64.
  static void expect_defined(const char* program, const std::vector<Shape>& shapes, DType dtype) {
    SCOPED_TRACE(concat(program, ' ', shapes[0], ' ', dtype, numerics().tf32 ? " in tf32" : ""));
    const Device gpu{DeviceKind::cuda, 0};
    std::vector<Tensor> inputs, exact;
    for (const Shape& shape : shapes) {
      const Tensor tensor = Tensor::empty(shape);
      fill_normal(tensor, 0, shape.rank() == 2 && inputs.size() == 1 ? 0.1 : 1, 7, inputs.size());
      inputs.push_back(tensor.to(dtype).to(gpu));
      exact.push_back(tensor.to(dtype).to(DType::f64));
    }
    const Tensor found = ops::run("linear_epilogue", inputs, with(program))[0].to(Device::cpu());
    const Tensor expected = ops::run("linear_epilogue", exact, with(program))[0];
    EXPECT_TRUE(near(found, expected, expected_error(dtype, dtype, gpu), largest_finite(expected)));
  }
};

/// Some of them so large that what is one kernel is compiled without an exhaustive search too.
TEST_F(CudaLinearEpilogue, IsWhatItIsDefinedAs) {
  for (const Numerics& settings : {Numerics{.tf32 = false}, Numerics{.tf32 = true}, Numerics{.tf32 = true, .deterministic = true}}) {
    set_numerics(settings);
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      expect_defined(gelu, {{8, 56, 56, 96}, {384, 96}, {384}}, dtype);
      expect_defined(gelu, {{1, 7, 7, 96}, {384, 96}, {384}}, dtype);
      expect_defined(scaled, {{8, 28, 28, 384}, {96, 384}, {96}, {96}, {8, 28, 28, 96}}, dtype);
      expect_defined(scaled, {{1000, 64}, {72, 64}, {1, 72}, {1000, 72}}, dtype);
      expect_defined("y0 = hard_swish(x0); y1 = multiply(y0, x1); return y1", {{3, 333, 48}, {40, 48}, {40}, {}}, dtype);
      expect_defined(gelu, {{5, 7, 31}, {13, 31}, {13}}, dtype);
    }
  }
  set_numerics({});
  expect_defined(gelu, {{64, 56, 56, 96}, {384, 96}, {384}}, DType::f16);
}

/// In halves, and of a size that engines like.
TEST_F(CudaLinearEpilogue, IsOneKernel) {
  set_numerics({.deterministic = true});
  const Device gpu{DeviceKind::cuda, 0};
  const std::vector<Tensor> inputs = {Tensor::zeros({8, 28, 28, 96}, DType::f16, gpu), Tensor::zeros({384, 96}, DType::f16, gpu),
                                      Tensor::zeros({384}, DType::f16, gpu)};
  ops::run("linear_epilogue", inputs, with(gelu));
  const std::vector<ops::PlanChoice> choices = ops::plan_choices();
  const auto ours = std::find_if(choices.rbegin(), choices.rend(), [](const ops::PlanChoice& choice) {
    return choice.problem.find("channels-last, input 8x96x28x28, weight 384x96x1x1") != std::string::npos;
  });
  ASSERT_NE(ours, choices.rend());
  EXPECT_TRUE(ours->plans.at(0).fused_epilogue) << ours->problem;
}

}  // namespace
}  // namespace frit
