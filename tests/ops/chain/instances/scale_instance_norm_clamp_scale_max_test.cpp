#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max.h"

#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/chain/chain_checks.h"

namespace frit::scale_instance_norm_clamp_scale_max_test {
namespace {

using Attributes = ops::ScaleInstanceNormClampScaleMaxAttributes;

constexpr const char* chain = "scale_instance_norm_clamp_scale_max";

std::vector<std::int64_t> argmax_of(const Attributes& attributes, const std::vector<Tensor>& inputs) {
  return ops::run(chain, inputs, attributes)[1].to_vector<std::int64_t>();
}

std::vector<Tensor> normal_inputs(const Shape& shape, DType dtype, double mean = 0) {
  Shape per_channel = Dims::filled(shape.rank() - 1, 1);
  per_channel[0] = shape[1];
  return {normal_tensor(shape, dtype, 1, mean), normal_tensor(per_channel, dtype, 2), normal_tensor(per_channel, dtype, 3)};
}

TEST(ScaleInstanceNormClampScaleMax, EqualsTheChainAtAnyShape) {
  for (const Shape& shape :
       {Shape{2, 16, 3, 10, 11}, Shape{1, 5, 13, 17}, Shape{3, 7, 2053}, Shape{5, 1, 2, 1, 2}, Shape{2, 300, 7}, Shape{1, 2, 1, 4096}}) {
    for (const bool keep_dims : {false, true}) {
      SCOPED_TRACE(concat(shape, keep_dims ? " kept" : ""));
      const Attributes attributes{.min = -1, .max = 1, .keep_dims = keep_dims};
      expect_like_decomposed(chain, attributes, normal_inputs(shape, DType::f64), 1e-14, 1e-11);
      expect_accurate(chain, attributes, normal_inputs(shape, DType::f32), 1e-6, 5e-6);
    }
  }
}

TEST(ScaleInstanceNormClampScaleMax, TiesGoToTheFirstChannel) {
  // Whole numbers in few channels: saturated channels of one factor, equal channels, factors of 0.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    for (const DType dtype : {DType::f64, DType::f32}) {
      const std::vector<Tensor> inputs = {whole_tensor({3, 6, 4, 5}, dtype, seed, 1), whole_tensor({6, 1, 1}, dtype, seed + 50, 1),
                                          whole_tensor({6, 1, 1}, dtype, seed + 90, 1)};
      for (const Attributes& attributes :
           {Attributes{.min = -0.5, .max = 0.5}, Attributes{.min = 0.25, .max = -0.25}, Attributes{.max = 0}}) {
        expect_like_decomposed(chain, attributes, inputs, dtype == DType::f64 ? 1e-14 : 1e-6, dtype == DType::f64 ? 1e-11 : 1e-4);
      }
    }
  }
  const Tensor equal = Tensor::from<float>({1, 2, 3, 1, 2, 3, 1, 2, 3}, {1, 3, 3}), ones = Tensor::full({3, 1}, 1);
  EXPECT_EQ(argmax_of({.min = -1, .max = 1}, {equal, ones, ones}), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(argmax_of({.min = -1, .max = 1}, {equal, ones, Tensor::from<float>({-1, 1, 1}, {3, 1})}), (std::vector<std::int64_t>{0, 0, 1}))
      << "0 = -0";
}

/// As inference computes it: the output alone.
Tensor output_alone(const Attributes& attributes, const std::vector<Tensor>& inputs) {
  InputGraph made(inputs);
  made.graph.output("output", made.graph.emit(ops::registry().find(chain), made.values, attributes)[0]);
  State state;
  graph::Executable executable(made.graph, state);
  executable.run(made.bindings);
  return executable.output("output").clone();
}

TEST(ScaleInstanceNormClampScaleMax, TheOutputAloneIsThatOfTheForwardPass) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& shape : {Shape{2, 16, 3, 5, 7}, Shape{1, 48, 2, 1}, Shape{2, 12, 300}, Shape{1, 7, 3, 3}}) {
      for (const double value : {1.0, nan, inf}) {
        for (std::size_t input = 0; input <= 2; ++input) {
          SCOPED_TRACE(concat(shape, " with ", value, " in input ", input));
          std::vector<Tensor> inputs = normal_inputs(shape, dtype);
          inputs[input] = with_values(inputs[input], {{1, value}});
          const Attributes attributes{.min = -1, .max = 1};
          EXPECT_TRUE(close(output_alone(attributes, inputs), ops::run(chain, inputs, attributes)[0], 0));
        }
      }
    }
  }
}

TEST(ScaleInstanceNormClampScaleMax, NanStaysInItsInstanceAndTheFirstChannelHasIt) {
  std::vector<Tensor> inputs = normal_inputs({2, 4, 3, 3}, DType::f64);
  inputs[0] = with_values(inputs[0], {{2 * 9 + 4, nan}, {1 * 9 + 7, inf}});
  const Attributes attributes{.min = -1, .max = 1};
  const std::vector<std::int64_t> found = argmax_of(attributes, inputs);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(found[i], 1) << i;
  const std::vector<double> output = ops::run(chain, inputs, attributes)[0].to_vector<double>();
  for (std::size_t i = 0; i < 18; ++i) EXPECT_EQ(std::isnan(output[i]), i < 9) << i;
  expect_like_decomposed(chain, attributes, inputs, 1e-14, 1e-11);
}

TEST(ScaleInstanceNormClampScaleMax, FollowsTheChainWhereFactorsAreNotFinite) {
  for (const double value : {nan, inf, -inf}) {
    for (std::size_t input = 1; input <= 2; ++input) {
      SCOPED_TRACE(concat(value, " in input ", input));
      std::vector<Tensor> inputs = normal_inputs({2, 3, 5}, DType::f64);
      inputs[input] = with_values(inputs[input], {{1, value}});
      expect_like_decomposed(chain, Attributes{.min = -9, .max = 9}, inputs, 1e-14, 1e-11);
    }
  }
}

TEST(ScaleInstanceNormClampScaleMax, ZeroScaleGivesZeroAndAGradientThroughEps) {
  std::vector<Tensor> inputs = normal_inputs({2, 3, 4, 2}, DType::f64);
  inputs[1] = with_values(inputs[1], {{0, 0}, {2, 0}});
  expect_like_decomposed(chain, Attributes{.eps = 0.25, .min = -1, .max = 1}, inputs, 1e-14, 1e-11);
  const Tensor zero = Tensor::zeros({3, 1, 1}, DType::f64);
  EXPECT_EQ(ops::run(chain, {inputs[0], zero, inputs[2]}, Attributes{.min = -1, .max = 1})[0].to_vector<double>(),
            std::vector<double>(16, 0.0));
}

TEST(ScaleInstanceNormClampScaleMax, GradientPassesAtTheBoundsAndNotBeyond) {
  // One channel with mean 0 and variance 1: normalised, it is itself.
  const std::vector<Tensor> inputs = {Tensor::from<double>({-1, 1, -1, 1}, {1, 1, 4}), Tensor::full({1, 1}, 1, DType::f64),
                                      Tensor::full({1, 1}, 1, DType::f64)};
  for (const double bound : {1.0, 0.75}) {
    SCOPED_TRACE(bound);
    const Attributes attributes{.eps = 0, .min = -bound, .max = bound};
    const Tensor seed = Tensor::from<double>({1, 0, 0, 0}, {1, 4});
    const ChainResults fused = run_chain(chain, attributes, inputs, false, seed);
    expect_close(fused, run_chain(chain, attributes, inputs, true, seed), 0, 1e-15);
    EXPECT_EQ(fused.gradients[0].to_vector<double>()[2], bound == 1.0 ? -0.5 : 0.0);
    EXPECT_EQ(fused.gradients[2].item(), -bound) << "a saturated maximum still counts for the factor after it";
  }
}

TEST(ScaleInstanceNormClampScaleMax, ConstantChannelsAndFarOffsetsKeepTheirDigits) {
  const Attributes attributes{.min = -1, .max = 1};
  const Tensor constant = Tensor::full({1, 2, 5, 7}, 3.1), factor = Tensor::full({2, 1, 1}, 0.7);
  EXPECT_EQ(ops::run(chain, {constant, factor, factor}, attributes)[0].to_vector<double>(), std::vector<double>(35, 0.0));
  const std::vector<Tensor> inputs = {whole_tensor({2, 4, 6, 50}, DType::f64, 1, 50),
                                      normal_tensor({4, 1, 1}, DType::f32, 2).to(DType::f64),
                                      normal_tensor({4, 1, 1}, DType::f32, 3).to(DType::f64)};
  const Tensor seed = normal_tensor({2, 6, 50}, DType::f32, 4);
  const ChainResults expected = run_chain(chain, attributes, inputs, /*decomposed=*/true, seed.to(DType::f64));
  for (const double offset : {0.0, 1e3, 1e5, 1e7}) {
    SCOPED_TRACE(offset);
    std::vector<double> far = inputs[0].to_vector<double>();
    for (double& value : far) value += offset;
    const std::vector<Tensor> narrow = {Tensor::from(far, inputs[0].shape()).to(DType::f32), inputs[1].to(DType::f32),
                                        inputs[2].to(DType::f32)};
    expect_close(run_chain(chain, attributes, narrow, /*decomposed=*/false, seed), expected, 1e-6, 5e-6);
  }
}

TEST(ScaleInstanceNormClampScaleMax, BitsDoNotDependOnTheThreads) {
  for (const std::int64_t samples : {1, 2, 5}) {
    expect_equal_for_any_thread_count(chain, Attributes{.min = -1, .max = 1}, normal_inputs({samples, 6, 3, 31, 37}, DType::f32));
  }
}

TEST(ScaleInstanceNormClampScaleMax, EmptyBatchAndEmptyImage) {
  for (const Shape& shape : {Shape{0, 3, 2, 2}, Shape{2, 3, 0, 2}}) {
    expect_like_decomposed(chain, Attributes{.min = -1, .max = 1}, normal_inputs(shape, DType::f32), 0, 0);
  }
}

TEST(ScaleInstanceNormClampScaleMax, IsFoundInAModel) {
  const auto build = [](bool swapped, bool read_inside) {
    Graph graph;
    const Value x = graph.input("x", {2, 4, 3, 5, 5}), m = graph.input("m", {4, 1, 1, 1});
    const Value norm = instance_norm(x * m, {}, {}, 1e-3);
    const Value y = swapped ? m * clamp(norm, -1, 1) : clamp(norm, -1, 1) * m;
    graph.output("y", max(y, 1));
    if (read_inside) graph.output("norm", norm);
    return fused_nodes(graph, chain);
  };
  EXPECT_EQ(build(false, false), 1u);
  EXPECT_EQ(build(true, false), 1u);
  EXPECT_EQ(build(false, true), 0u);
}

TEST(ScaleInstanceNormClampScaleMax, RefusesBadCalls) {
  const Attributes attributes{.min = -1, .max = 1};
  const auto message = [&](const std::vector<Shape>& shapes) { return refusal(chain, attributes, shapes); };
  EXPECT_EQ(message({{4, 3}, {3}, {3}}), "scale_instance_norm_clamp_scale_max: expected an input (N, C, ...) of rank 3 or more, got 4x3");
  EXPECT_EQ(message({{4, 0, 3}, {0, 1}, {0, 1}}), "scale_instance_norm_clamp_scale_max: input 4x0x3 has no channels");
  EXPECT_EQ(message({{4, 3, 1, 1}, {3, 1, 1}, {3, 1, 1}}),
            "scale_instance_norm_clamp_scale_max: expected more than 1 spatial element, got input 4x3x1x1");
  EXPECT_EQ(message({{4, 3, 2, 2}, {3, 1, 1}, {3, 1}}), "scale_instance_norm_clamp_scale_max: post_scale must be f32 3x1x1, got f32 3x1");
}

}  // namespace
}  // namespace frit::scale_instance_norm_clamp_scale_max_test
