// What kernels make of weights before all else is kept for as long as the weights stay the same.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "frit/autograd/train_step.h"
#include "frit/core/random.h"
#include "frit/graph/find_non_finite.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/profile.h"
#include "frit/graph/program.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/linear/matmul.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

std::size_t count_prepacks(const graph::Executable& executable) {
  const std::vector<graph::Step>& steps = executable.preparation();
  return static_cast<std::size_t>(std::count_if(steps.begin(), steps.end(), [](const graph::Step& step) { return step.prepacks >= 0; }));
}

Tensor noise(const Shape& shape, DType dtype, std::uint64_t seed) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  fill_uniform(tensor, -1, 1, seed, 0);
  return tensor;
}
Initializer noise(std::uint64_t seed) {
  return [seed](const Tensor& tensor, std::uint64_t) { fill_uniform(tensor, -1, 1, seed, 0); };
}

/// relu(convolution(x, weight, bias))
struct ConvolutionCase {
  const char* name;
  bool transposed;
  Shape image, weight;
  ConvolutionOptions options = {};
  DType dtype = DType::f32;
  std::size_t kept = 1;

  std::int64_t channels() const { return transposed ? weight[1] * options.groups : weight[0]; }
  Graph graph(bool fixed_weight) const {
    Graph graph;
    const Value x = graph.input("x", image, dtype), bias = graph.variable("bias", {dtype, {channels()}}, noise(3));
    const Value w = fixed_weight ? graph.variable("weight", {dtype, weight}, noise(2)) : graph.input("weight", weight, dtype);
    const auto convolve = image.rank() == 4 ? (transposed ? conv_transpose2d : conv2d) : (transposed ? conv_transpose3d : conv3d);
    graph.output("y", mean(relu(convolve(x, w, bias, options)), {2}, true));
    return graph;
  }
};

class PrepackedConvolution : public testing::TestWithParam<ConvolutionCase> {};

TEST_P(PrepackedConvolution, GivesTheSameBitsAndFollowsItsWeight) {
  const ConvolutionCase& c = GetParam();
  const auto state = std::make_shared<State>(Device::cpu());
  Program fixed(c.graph(true), state), given(c.graph(false), state);
  const Tensor x = noise(c.image, c.dtype, 1);
  for (const std::uint64_t seed : {2u, 2u, 7u}) {
    const Tensor weight = noise(c.weight, c.dtype, seed);
    if (seed == 7) state->set("weight", weight);
    const Bindings with_weight = {{"x", x}, {"weight", weight}};
    EXPECT_TRUE(same_bits(fixed.run({{"x", x}}).output("y"), given.run(with_weight).output("y"))) << "seed " << seed;
  }
  const graph::Executable& executable = fixed.compile({{"x", {c.dtype, c.image}}});
  EXPECT_EQ(count_prepacks(executable), c.kept);
  if (c.kept > 0) {
    EXPECT_EQ(executable.preparation().back().schedule(), "prepacked");
  }
  EXPECT_EQ(count_prepacks(given.compile({{"x", {c.dtype, c.image}}, {"weight", {c.dtype, c.weight}}})), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, PrepackedConvolution,
    testing::Values(ConvolutionCase{"tiles", false, {2, 16, 29, 31}, {24, 16, 3, 3}, {.padding = {1}}},
                    ConvolutionCase{"tiles_in_3d", false, {1, 16, 4, 13, 15}, {16, 16, 3, 3, 3}, {.padding = {1}}},
                    ConvolutionCase{"runs", false, {2, 5, 9, 11}, {7, 5, 3, 2}, {.stride = {2}}},
                    ConvolutionCase{"groups", false, {2, 6, 9, 11}, {8, 3, 3, 3}, {.padding = {1}, .groups = 2}},
                    ConvolutionCase{"depthwise", false, {2, 9, 9, 11}, {9, 1, 3, 3}, {.padding = {1}, .groups = 9}},
                    ConvolutionCase{"float64", false, {2, 5, 9, 11}, {7, 5, 3, 3}, {}, DType::f64},
                    ConvolutionCase{"halves", false, {2, 16, 29, 31}, {24, 16, 3, 3}, {.padding = {1}}, DType::f16},
                    ConvolutionCase{"few_tiles", false, {1, 16, 20, 15}, {32, 16, 3, 3}, {.padding = {1}}, DType::f32, 0},
                    ConvolutionCase{"halves_in_few_tiles", false, {1, 16, 20, 15}, {32, 16, 3, 3}, {.padding = {1}}, DType::f16},
                    ConvolutionCase{"transposed", true, {2, 6, 5, 4}, {6, 9, 4, 4}, {.stride = {2}, .padding = {1}}},
                    ConvolutionCase{"transposed_in_groups", true, {2, 6, 5, 4}, {6, 5, 3, 3}, {.stride = {2}, .groups = 2}},
                    ConvolutionCase{"padded", false, {1, 5, 6, 7}, {7, 5, 3, 3}, {.padding = {5}}},
                    ConvolutionCase{"empty", false, {0, 5, 6, 7}, {7, 5, 3, 3}},
                    ConvolutionCase{"transposed_in_3d", true, {1, 6, 3, 5, 4}, {6, 3, 3, 3, 3}, {.stride = {2}}}),
    [](const auto& instance) { return instance.param.name; });

/// matmul(x, weight), or a linear layer
struct ProductCase {
  const char* name;
  Shape x, weight;
  std::optional<ops::MatmulAttributes> attributes = {};
  DType dtype = DType::f32;
  std::size_t kept = 1;

  Graph graph(bool fixed_weight) const {
    Graph graph;
    const Value input = graph.input("x", x, dtype), bias = graph.variable("bias", {dtype, {weight[0]}}, noise(3));
    const Value w = fixed_weight ? graph.variable("weight", {dtype, weight}, noise(2)) : graph.input("weight", weight, dtype);
    graph.output("y", attributes ? ops::matmul(input, w, *attributes) : linear(input, w, bias));
    return graph;
  }
};

class PrepackedProduct : public testing::TestWithParam<ProductCase> {};

TEST_P(PrepackedProduct, GivesTheSameBitsAndFollowsItsWeight) {
  const ProductCase& c = GetParam();
  const auto state = std::make_shared<State>(Device::cpu());
  Program fixed(c.graph(true), state), given(c.graph(false), state);
  const Tensor x = noise(c.x, c.dtype, 1);
  for (const std::uint64_t seed : {2u, 2u, 7u}) {
    const Tensor weight = noise(c.weight, c.dtype, seed);
    if (seed == 7) state->set("weight", weight);
    const Bindings with_weight = {{"x", x}, {"weight", weight}};
    EXPECT_TRUE(same_bits(fixed.run({{"x", x}}).output("y"), given.run(with_weight).output("y"))) << "seed " << seed;
  }
  EXPECT_EQ(count_prepacks(fixed.compile({{"x", {c.dtype, c.x}}})), c.kept);
}

INSTANTIATE_TEST_SUITE_P(All, PrepackedProduct,
                         testing::Values(ProductCase{"linear", {1, 300}, {40, 300}}, ProductCase{"of_many_rows", {3, 150, 33}, {21, 33}},
                                         ProductCase{"float64", {7, 20}, {9, 20}, {}, DType::f64},
                                         ProductCase{"deep", {2, 9000}, {19, 9000}},
                                         ProductCase{"halves", {7, 20}, {9, 20}, {}, DType::f16},
                                         ProductCase{"matmul", {2, 5, 30}, {30, 21}, ops::MatmulAttributes{}},
                                         ProductCase{"transposed", {30, 5}, {21, 30}, ops::MatmulAttributes{true, true}},
                                         ProductCase{"for_each_sample", {2, 5, 30}, {2, 30, 21}, ops::MatmulAttributes{}, DType::f32, 0},
                                         ProductCase{"for_all_samples", {2, 30, 5}, {30, 21}, ops::MatmulAttributes{true, false}},
                                         ProductCase{"of_no_features", {3, 0}, {4, 0}, {}, DType::f32, 0}),
                         [](const auto& instance) { return instance.param.name; });

/// y = exp(conv2d(x, a weight in float64 that is cast))
class Prepacking : public testing::Test {
 protected:
  static constexpr std::int64_t channels = 64;

  Prepacking() { graph_.output("y", exp(conv2d(x_, cast(w_, DType::f32), {}, {}))); }

  Graph graph_;
  Value x_ = graph_.input("x", {1, channels, 32, 32});
  Value w_ = graph_.variable("w", {DType::f64, {channels, channels, 1, 1}}, noise(1));
  State state_{Device::cpu()};
  Bindings inputs_ = {{"x", noise({1, channels, 32, 32}, DType::f32, 5)}};
};

TEST_F(Prepacking, TakesTheMemoryOfWhatIsPackedAndNoMore) {
  graph::Executable executable(graph_, state_);
  ASSERT_EQ(count_prepacks(executable), 1u);
  const graph::Call& call = executable.preparation().back().calls[0];
  EXPECT_EQ(call.prepacked.size(), static_cast<std::size_t>(channels * channels) * sizeof(float));
  // What the cast gave is not read again: a result or scratch memory lies there.
  const std::int64_t image = executable.output("y").bytes();
  const std::size_t scratch = executable.steps()[0].calls[0].scratch.size();
  EXPECT_LE(executable.memory_plan().arena_bytes, 3 * image + static_cast<std::int64_t>(call.prepacked.size() + scratch));
  executable.run(inputs_);
  const std::vector<float> first = executable.output("y").to_vector<float>();
  executable.run(inputs_);
  EXPECT_EQ(executable.output("y").to_vector<float>(), first);
  state_.at("w").fill(0);
  executable.run(inputs_);
  EXPECT_EQ(executable.output("y").to_vector<float>(), std::vector<float>(first.size(), 1));
}

TEST_F(Prepacking, IsNoResultAndNoPartOfARun) {
  graph::Executable executable(graph_, state_);
  executable.run({{"x", Tensor::full({1, channels, 32, 32}, std::numeric_limits<double>::infinity())}});
  EXPECT_FALSE(graph::find_non_finite(executable, inputs_)) << "what the run before gave is not the result of packing";
  graph::Tracing tracing;
  executable.run(inputs_);
  const std::vector<graph::TracedStep>& steps = *tracing.runs().at(0).steps;
  EXPECT_EQ(steps.size(), executable.steps().size());
  const std::vector<std::int64_t> alive = graph::alive_bytes(executable.graph(), graph::plan_buffers(executable.graph()));
  EXPECT_EQ(steps.back().alive, alive.back());
}

TEST_F(Prepacking, IsDoneAgainAfterItWasBrokenOff) {
  graph::Executable executable(graph_, state_);
  executable.run(inputs_);
  const std::vector<float> first = executable.output("y").to_vector<float>();
  for (std::size_t steps = 1; steps <= executable.preparation().size(); ++steps) {
    std::size_t done = 0;
    executable.run_each(inputs_, [&](const graph::Step&) { return ++done < steps; });
    executable.run(inputs_);
    EXPECT_EQ(executable.output("y").to_vector<float>(), first) << steps << " steps";
  }
}

TEST_F(Prepacking, ReadsAWeightThatIsAView) {
  Graph graph;
  const Value x = graph.input("x", {1, channels, 32, 32}), w = graph.variable("w", {DType::f64, {channels, channels, 1, 1}}, noise(1));
  const Value weight = reshape(cast(reshape(w, {channels * channels}), DType::f32), {channels, channels, 1, 1});
  graph.output("y", exp(conv2d(x, weight, {}, {})));
  graph::Executable viewed(graph, state_), executable(graph_, state_);
  EXPECT_EQ(count_prepacks(viewed), 1u);
  for (int run = 0; run < 2; ++run) {
    viewed.run(inputs_), executable.run(inputs_);
    EXPECT_TRUE(same_bits(viewed.output("y"), executable.output("y")));
  }
}

TEST(PrepackingInTraining, FollowsAnotherProgramThatTrainsTheWeight) {
  Graph graph;
  const Value x = graph.input("x", {1, 8, 9, 9}), w = graph.variable("w", {DType::f32, {8, 8, 3, 3}}, noise(1), /*trainable=*/true);
  const Value y = conv2d(x, w, {}, {.padding = {1}});
  graph.output("y", y);
  const Graph forward = graph::for_inference(graph);
  TrainStep step(mean_squared_error(y, graph.input("target", {1, 8, 9, 9})), Sgd{.learning_rate = 1}, Device::cpu());
  Program inference(forward, step.shared_state());
  const Tensor image = noise({1, 8, 9, 9}, DType::f32, 3);
  for (int i = 0; i < 3; ++i) {
    const Tensor expected = ops::run("conv2d", {image, step.state().at("w").clone()}, ops::canonical({.padding = {1}}, 2)).at(0);
    EXPECT_TRUE(same_bits(inference.run({{"x", image}}).output("y"), expected)) << "step " << i;
    step({{"x", image}, {"target", Tensor::zeros({1, 8, 9, 9})}});
  }
}

TEST(PrepackingInTraining, IsOfFrozenWeightsAlone) {
  Graph graph;
  const auto weight = [&](const char* name) { return graph.variable(name, {DType::f32, {8, 8, 3, 3}}, noise(1), /*trainable=*/true); };
  const Value x = graph.input("x", {1, 8, 9, 9}), first = conv2d(x, weight("first"), {}, {.padding = {1}});
  const Value loss = mean_squared_error(conv2d(relu(first), weight("frozen"), {}, {.padding = {1}}), graph.input("target", {1, 8, 9, 9}));
  const std::map<std::string, TensorType> types = {{"x", {DType::f32, {1, 8, 9, 9}}}, {"target", {DType::f32, {1, 8, 9, 9}}}};
  TrainStep frozen(loss, Sgd{.learning_rate = 0.01}, Device::cpu(), {.freeze = {"frozen"}}),
      all(loss, Sgd{.learning_rate = 0.01}, Device::cpu());
  EXPECT_EQ(count_prepacks(frozen.compile(types)), 2u) << "forwards, and for the gradient of its input";
  EXPECT_EQ(count_prepacks(all.compile(types)), 0u);
}

}  // namespace
}  // namespace frit
