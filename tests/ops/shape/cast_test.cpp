#include <gtest/gtest.h>

#include <limits>

#include "frit/autograd/gradient.h"
#include "frit/graph/program.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/shape/shape_ops.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

Tensor converted(const Tensor& tensor, std::string_view dtype) {
  const ops::Operator& op = ops::registry().find("cast");
  return ops::run(op, std::array{tensor}, op.attributes_from_json(concat("{\"dtype\": \"", dtype, "\"}")))[0];
}

TEST(Cast, SaturatesIntegersAndMakesNaNZero) {
  const Tensor values = Tensor::from<double>({1.9, -1.9, nan, inf, -inf, 1e30, 300}, {7});
  constexpr std::int64_t top = std::numeric_limits<std::int64_t>::max(), bottom = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(converted(values, "i64").to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, -1, 0, top, bottom, top, 300}));
  EXPECT_EQ(converted(values, "u8").to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 0, 0, 255, 0, 255, 255}));
}

TEST(Cast, RoundsHalvesToNearestEven) {
  const Tensor values = Tensor::from<double>({1 + 0x1p-11, 1 + 3 * 0x1p-11, 65519, 65520, -0.0}, {5});
  const Tensor half = converted(values, "f16");
  EXPECT_EQ(half.dtype(), DType::f16);
  EXPECT_EQ(half.to_vector<double>(), (std::vector<double>{1, 1 + 0x1p-9, 65504, inf, 0}));
  EXPECT_EQ(converted(half, "bf16").to_vector<double>(), (std::vector<double>{1, 1, 65536, inf, 0}));
}

TEST(Cast, ReadsAnyStrides) {
  const Tensor values = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(converted(values.transpose(0, 1), "i32").to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 4, 2, 5, 3, 6}));
}

TEST(Cast, CarriesTheGradientBackInTheDtypeOfItsInput) {
  Graph graph;
  const Value x = graph.input("x", {2}, DType::f64);
  const Value y = cast(x, DType::f16);
  const Value seed = graph.constant(Tensor::from<double>({0.1, 2}, {2}).to(DType::f16));
  graph.output("gradient", gradient(std::span(&y, 1), std::span(&seed, 1), std::span(&x, 1))[0]);
  Program program(std::move(graph), std::make_shared<State>());
  const Tensor result = program.run({{"x", Tensor::zeros({2}, DType::f64)}}).output("gradient");
  EXPECT_EQ(result.dtype(), DType::f64);
  EXPECT_EQ(result.to_vector<double>(), (std::vector<double>{static_cast<float>(Half(0.1f)), 2}));
}

TEST(Cast, ToTheSameDtypeIsNothing) {
  Graph graph;
  const Value x = graph.input("x", {2});
  EXPECT_EQ(cast(x, DType::f32), x);
  EXPECT_NE(cast(x, DType::f64), x);
}

}  // namespace
}  // namespace frit
