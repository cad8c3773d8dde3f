#include "frit/ops/chain/instances/group_norm_scale_max_pool_clamp.h"

#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "ops/chain/chain_checks.h"

namespace frit::group_norm_scale_max_pool_clamp_test {
namespace {

using Attributes = ops::GroupNormScaleMaxPoolClampAttributes;

constexpr const char* chain = "group_norm_scale_max_pool_clamp";

std::vector<Tensor> normal_inputs(const Shape& shape, DType dtype) {
  const std::int64_t c = shape[1];
  return {normal_tensor(shape, dtype, 1), normal_tensor({c}, dtype, 2), normal_tensor({c}, dtype, 3), normal_tensor({c, 1, 1}, dtype, 4)};
}

/// One channel whose norm, factor and clamp change nothing, so that the pool alone is seen: mean 0, variance 1.
std::vector<Tensor> plain_parameters(DType dtype) {
  return {Tensor::full({1}, 1, dtype), Tensor::full({1}, 0, dtype), Tensor::full({1, 1, 1}, 1, dtype)};
}

std::vector<std::int64_t> argmax_of(const Attributes& attributes, const std::vector<Tensor>& inputs) {
  return ops::run(chain, inputs, attributes)[1].to_vector<std::int64_t>();
}

struct PoolCase {
  Shape shape;
  Attributes attributes;
};

const std::vector<PoolCase>& pool_cases() {
  static const std::vector<PoolCase> cases = {
      {{2, 6, 13, 14}, {.num_groups = 3, .kernel_size = {2}, .min = 0, .max = 1}},
      {{2, 4, 26, 26}, {.num_groups = 2, .kernel_size = {2}, .min = 0, .max = 1}},
      {{1, 4, 126, 126}, {.num_groups = 1, .kernel_size = {4}, .min = 0, .max = 1}},
      {{2, 2, 11, 17}, {.num_groups = 2, .kernel_size = {3}, .min = -1, .max = 1}},
      {{2, 2, 11, 17}, {.num_groups = 1, .kernel_size = {5}, .stride = {5}, .ceil_mode = true, .min = -1}},
      {{2, 2, 12, 9}, {.num_groups = 1, .kernel_size = {3}, .stride = {1}, .padding = {1}, .max = 1}},
      {{2, 2, 12, 9}, {.num_groups = 1, .kernel_size = {3, 2}, .stride = {2, 1}, .padding = {1, 0}, .dilation = {2, 3}, .max = 1}},
      {{1, 2, 40, 40}, {.num_groups = 1, .kernel_size = {2, 3}, .stride = {7, 4}, .min = 0}},
      {{1, 2, 21, 19}, {.num_groups = 2, .kernel_size = {21, 19}, .min = -9, .max = 9}},
      {{1, 1, 40, 40}, {.num_groups = 1, .kernel_size = {17}, .min = -9, .max = 9}},
      {{1, 1, 3, 7001}, {.num_groups = 1, .kernel_size = {2}, .min = 0, .max = 1}},
      {{1, 1, 2, 5003}, {.num_groups = 1, .kernel_size = {1, 5}, .stride = {1, 2}, .padding = {0, 2}, .min = 0, .max = 1}},
      {{1, 1, 1, 5000}, {.num_groups = 1, .kernel_size = {1, 3}, .stride = {1, 2500}, .min = -9, .max = 9}},
      {{1, 3, 100, 70}, {.num_groups = 1, .kernel_size = {1}, .min = 0, .max = 1}},
      {{0, 4, 8, 8}, {.num_groups = 2, .kernel_size = {2}, .min = 0, .max = 1}},
  };
  return cases;
}

/// Such a number is below the kernel's size, but names no element of the image.
TEST(GroupNormScaleMaxPoolClamp, AnArgmaxInThePaddingGetsNothing) {
  const Attributes attributes{.num_groups = 2, .kernel_size = {3}, .stride = {1}, .padding = {1}, .max = 1};
  std::vector<Tensor> inputs = normal_inputs({2, 2, 4, 5}, DType::f32);
  const std::vector<Tensor> forward = ops::run(chain, inputs, attributes);
  inputs.insert(inputs.begin(), normal_tensor({2, 2, 4, 5}, DType::f32, 5));
  inputs.insert(inputs.end(), forward.begin() + 1, forward.end());
  const std::string backward = concat(chain, "_backward");
  const std::vector<float> expected = ops::run(backward, inputs, attributes)[0].to_vector<float>();
  for (const std::uint8_t number :
       {std::uint8_t{0}, std::uint8_t{8}}) {  // of the first window that of the image before, of the last that of the image after
    Tensor argmax = forward[1].clone();
    for (const std::ptrdiff_t plane : {1, 2}) std::fill_n(argmax.span<std::uint8_t>().begin() + plane * 20, 20, number);
    inputs[5] = argmax;
    const std::vector<float> found = ops::run(backward, inputs, attributes)[0].to_vector<float>();
    for (const std::size_t first : {0u, 60u}) {
      for (std::size_t i = first; i < first + 20; ++i) EXPECT_EQ(found[i], expected[i]) << "element " << i << ", number " << +number;
    }
  }
}

TEST(GroupNormScaleMaxPoolClamp, EqualsTheChainForAnyWindows) {
  for (const PoolCase& each : pool_cases()) {
    SCOPED_TRACE(concat(each.shape, ' ', fields_text(each.attributes)));
    for (const DType dtype : {DType::f64, DType::f32}) {
      const double tolerance = dtype == DType::f64 ? 1e-14 : 1e-6, gradient_tolerance = dtype == DType::f64 ? 1e-11 : 1e-5;
      expect_like_decomposed(chain, each.attributes, normal_inputs(each.shape, dtype), tolerance, gradient_tolerance);
      std::vector<Tensor> whole = normal_inputs(each.shape, dtype);
      whole[0] = whole_tensor(each.shape, dtype, 5, 2);
      expect_like_decomposed(chain, each.attributes, whole, tolerance, gradient_tolerance);
    }
    expect_accurate(chain, each.attributes, normal_inputs(each.shape, DType::f32), 1e-6, 5e-6);
  }
}

TEST(GroupNormScaleMaxPoolClamp, NegativeAndZeroFactorsTurnTheOrderOrTie) {
  for (const PoolCase& each : pool_cases()) {
    SCOPED_TRACE(concat(each.shape, ' ', fields_text(each.attributes)));
    std::vector<Tensor> inputs = normal_inputs(each.shape, DType::f64);
    const std::int64_t c = each.shape[1];
    inputs[1] = whole_tensor({c}, DType::f64, 8, 1);
    inputs[3] = whole_tensor({c, 1, 1}, DType::f64, 9, 1);
    expect_like_decomposed(chain, each.attributes, inputs, 1e-14, 1e-11);
  }
  const Attributes attributes{.kernel_size = {2}, .min = -9, .max = 9};
  std::vector<Tensor> inputs = normal_inputs({1, 1, 4, 6}, DType::f32);
  inputs[3] = Tensor::zeros({1, 1, 1});
  EXPECT_EQ(argmax_of(attributes, inputs), std::vector<std::int64_t>(6, 0));
  inputs[3] = Tensor::full({1, 1, 1}, inf);
  inputs[1] = inputs[2] = Tensor::zeros({1});
  EXPECT_EQ(argmax_of(attributes, inputs), std::vector<std::int64_t>(6, 3)) << "0 * inf is NaN: the last one";
}

TEST(GroupNormScaleMaxPoolClamp, TheFirstOfEqualsAndTheLastNanWin) {
  const Attributes attributes{.kernel_size = {2, 3}, .min = -9, .max = 9};
  // (H, W) = (2, 6): two windows.
  const auto run = [&](const std::vector<double>& values) {
    const Tensor x = Tensor::from(values, {1, 1, 2, 6});
    std::vector<Tensor> inputs = plain_parameters(DType::f64);
    inputs.insert(inputs.begin(), x);
    return argmax_of(attributes, inputs);
  };
  EXPECT_EQ(run({2, 5, 5, 1, 1, 1, 5, 0, 5, 1, 1, 1}), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(run({2, 0, 0, 1, 1, 2, 5, 5, 0, 2, 1, 3}), (std::vector<std::int64_t>{3, 5}));
  EXPECT_EQ(run({2, nan, 0, 1, 1, 2, 5, 5, 0, 2, 1, 3}), (std::vector<std::int64_t>{5, 5})) << "the norm spreads NaN over its group";
}

TEST(GroupNormScaleMaxPoolClamp, NanStaysInItsGroup) {
  for (const double value : {nan, inf, -inf}) {
    std::vector<Tensor> inputs = normal_inputs({2, 4, 5, 6}, DType::f64);
    inputs[0] = with_values(inputs[0], {{35, value}});  // channel 1, in the first of two groups
    const Attributes attributes{.num_groups = 2, .kernel_size = {2}, .min = 0, .max = 1};
    const std::vector<double> output = ops::run(chain, inputs, attributes)[0].to_vector<double>();
    for (std::size_t i = 0; i < output.size(); ++i) EXPECT_EQ(std::isnan(output[i]), i < 12) << i;
    expect_like_decomposed(chain, attributes, inputs, 1e-14, 1e-11);
  }
}

/// The results of one order of additions: whether infinities meet to NaN depends on it.
ChainResults infinities_as_nan(ChainResults results) {
  for (Tensor& gradient : results.gradients) {
    std::vector<double> values = gradient.to_vector<double>();
    for (double& value : values) value = std::isinf(value) ? nan : value;
    gradient = Tensor::from(values, gradient.shape());
  }
  return results;
}

TEST(GroupNormScaleMaxPoolClamp, FollowsTheChainWhereParametersAreNotFinite) {
  for (const PoolCase& each : {pool_cases()[0], pool_cases()[5], pool_cases()[6]}) {
    for (const double value : {nan, inf, -inf}) {
      for (std::size_t input = 1; input <= 3; ++input) {
        SCOPED_TRACE(concat(fields_text(each.attributes), ", ", value, " in input ", input));
        std::vector<Tensor> inputs = normal_inputs(each.shape, DType::f64);
        inputs[input] = with_values(inputs[input], {{1, value}});
        expect_close(infinities_as_nan(run_chain(chain, each.attributes, inputs, /*decomposed=*/false)),
                     infinities_as_nan(run_chain(chain, each.attributes, inputs, /*decomposed=*/true)), 1e-14, 1e-11);
      }
    }
  }
}

TEST(GroupNormScaleMaxPoolClamp, ClampComesAfterThePoolAndPassesAtItsBounds) {
  // Mean 0 and variance 1, so the norm changes nothing; windows of two.
  std::vector<Tensor> inputs = plain_parameters(DType::f64);
  inputs.insert(inputs.begin(), Tensor::from<double>({-1, 1, -1, 1, 1, -1, -1, 1}, {1, 1, 1, 8}));
  for (const double bound : {1.0, 0.75}) {
    SCOPED_TRACE(bound);
    const Attributes attributes{.eps = 0, .kernel_size = {1, 2}, .min = -1, .max = bound};
    const Tensor seed = Tensor::from<double>({8, 0, 0, 0}, {1, 1, 1, 4});
    const ChainResults fused = run_chain(chain, attributes, inputs, false, seed);
    expect_close(fused, run_chain(chain, attributes, inputs, true, seed), 0, 1e-14);
    EXPECT_EQ(fused.gradients[2].item(), bound == 1.0 ? 8 : 0);
  }
}

TEST(GroupNormScaleMaxPoolClamp, CutOffRowsCountInTheNormAndHaveGradients) {
  const std::vector<Tensor> inputs = normal_inputs({1, 1, 5, 5}, DType::f64);
  const Attributes attributes{.kernel_size = {2}, .min = -9, .max = 9};
  std::vector<Tensor> changed = inputs;
  changed[0] = with_values(inputs[0], {{24, 40}});
  EXPECT_NE(ops::run(chain, inputs, attributes)[0].to_vector<double>(), ops::run(chain, changed, attributes)[0].to_vector<double>());
  const std::vector<double> gradient = run_chain(chain, attributes, inputs, false).gradients[0].to_vector<double>();
  for (std::size_t i = 20; i < 25; ++i) EXPECT_NE(gradient[i], 0) << i;
}

TEST(GroupNormScaleMaxPoolClamp, ConstantGroupsAndFarOffsetsKeepTheirDigits) {
  const Attributes attributes{.num_groups = 2, .kernel_size = {2}, .min = -1, .max = 1};
  std::vector<Tensor> inputs = normal_inputs({1, 4, 6, 5}, DType::f32);
  inputs[0].fill(3.1);
  inputs[2].fill(0.25);
  inputs[3].fill(2);
  EXPECT_EQ(ops::run(chain, inputs, attributes)[0].to_vector<double>(), std::vector<double>(24, 0.5)) << "the bias alone";

  inputs = normal_inputs({2, 4, 30, 31}, DType::f32);
  for (Tensor& input : inputs) input = input.to(DType::f64);
  inputs[0] = whole_tensor({2, 4, 30, 31}, DType::f64, 1, 50);
  const Tensor seed = normal_tensor({2, 4, 15, 15}, DType::f32, 4);
  const ChainResults expected = run_chain(chain, attributes, inputs, /*decomposed=*/true, seed.to(DType::f64));
  for (const double offset : {0.0, 1e3, 1e5, 1e7}) {
    SCOPED_TRACE(offset);
    std::vector<double> far = inputs[0].to_vector<double>();
    for (double& value : far) value += offset;
    std::vector<Tensor> narrow;
    for (const Tensor& input : inputs) narrow.push_back(input.to(DType::f32));
    narrow[0] = Tensor::from(far, inputs[0].shape()).to(DType::f32);
    expect_close(run_chain(chain, attributes, narrow, /*decomposed=*/false, seed), expected, 1e-6, 5e-6);
  }
}

TEST(GroupNormScaleMaxPoolClamp, BitsDoNotDependOnTheThreads) {
  for (const PoolCase& each : {pool_cases()[1], pool_cases()[2], pool_cases()[5]}) {
    expect_equal_for_any_thread_count(chain, each.attributes, normal_inputs(each.shape, DType::f32));
  }
  expect_equal_for_any_thread_count(chain, pool_cases()[1].attributes, normal_inputs({67, 4, 26, 26}, DType::f32));
}

TEST(GroupNormScaleMaxPoolClamp, IsFoundInAModel) {
  const auto build = [](const PoolOptions& pool, bool swapped, std::int64_t width = 7) {
    Graph graph;
    const Value x = graph.input("x", {2, 4, 6, width});
    const Value norm = group_norm(x, 2, graph.input("weight", {4}), graph.input("bias", {4}), 1e-3),
                scale = graph.input("scale", {4, 1, 1});
    graph.output("y", clamp(max_pool2d(swapped ? scale * norm : norm * scale, pool), 0, 1));
    return fused_nodes(graph, chain);
  };
  EXPECT_EQ(build({.kernel_size = {2}}, false), 1u);
  EXPECT_EQ(build({.kernel_size = {2}}, true), 1u);
  EXPECT_EQ(build({.kernel_size = {3, 2}, .stride = {1}, .padding = {1, 0}, .ceil_mode = true}, false), 1u);
  EXPECT_EQ(build({.kernel_size = {2}, .padding = {0, 1}, .dilation = {1, 2}}, false, 1), 0u) << "a window lies in the padding alone";
}

TEST(GroupNormScaleMaxPoolClamp, RefusesBadCalls) {
  const auto message = [&](const Attributes& attributes, const std::vector<Shape>& shapes) { return refusal(chain, attributes, shapes); };
  const Attributes two{.num_groups = 2, .kernel_size = {2}};
  EXPECT_EQ(message(two, {{2, 4, 6}, {4}, {4}, {4, 1, 1}}), "group_norm_scale_max_pool_clamp: expected input (N, C, H, W), got 2x4x6");
  EXPECT_EQ(message(two, {{2, 3, 6, 6}, {3}, {3}, {3, 1, 1}}),
            "group_norm_scale_max_pool_clamp: the number of channels must be divisible by num_groups, got input 2x3x6x6 and num_groups 2");
  EXPECT_EQ(message(two, {{2, 4, 6, 6}, {4}, {3}, {4, 1, 1}}), "group_norm_scale_max_pool_clamp: bias must be f32 4, got f32 3");
  EXPECT_EQ(message({.num_groups = 0, .kernel_size = {2}}, {{2, 4, 6, 6}, {4}, {4}, {4, 1, 1}}),
            "group_norm_scale_max_pool_clamp: num_groups must be greater than 0, got 0");
  EXPECT_EQ(message({.num_groups = 1, .kernel_size = {1, 2049}}, {{1, 1, 1, 4000}, {1}, {1}, {1, 1, 1}}),
            "group_norm_scale_max_pool_clamp: kernel_size 1x2049 is too big");
}

}  // namespace
}  // namespace frit::group_norm_scale_max_pool_clamp_test
