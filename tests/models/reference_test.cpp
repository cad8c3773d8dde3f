#include "frit/models/reference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "frit/autograd/gradient.h"
#include "frit/autograd/gradient_check.h"
#include "frit/autograd/train_step.h"
#include "frit/core/random.h"
#include "frit/graph/pipeline.h"
#include "frit/models/model.h"
#include "frit/ops/loss/loss.h"

namespace frit {
namespace {

using graph::NodeKind;

std::map<std::string, int> count_operations(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const graph::Node* node : graph.all(NodeKind::operation)) ++counts[node->op->name];
  return counts;
}

struct Case {
  const char* model;
  const char* config;
  Shape input;
  const char* convolution;
  const char* fused;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.model; }

class ReferenceModel : public testing::TestWithParam<Case> {
 protected:
  Model model = make_model(GetParam().model, GetParam().config);
};

TEST_P(ReferenceModel, RunsAsOneConvolutionAndOneFusedOperator) {
  Graph graph;
  graph.output("output", model.build(Scope(graph), graph.input("input", GetParam().input)));
  const Graph fused = graph::apply(graph::forward_pipeline(), graph);
  const std::map<std::string, int> expected = {{GetParam().convolution, 1}, {GetParam().fused, 1}};
  EXPECT_EQ(count_operations(fused), expected) << graph::to_text(fused);
}

TEST_P(ReferenceModel, TrainsThroughTheFusedBackward) {
  Graph graph;
  const Value output = model.build(Scope(graph), graph.input("input", GetParam().input));
  TrainStep step(mean_squared_error(output, graph.input("target", output.shape())), Sgd{});
  const graph::Executable& executable = step.compile({{"input", {DType::f32, GetParam().input}}, {"target", {DType::f32, output.shape()}}});
  std::map<std::string, int> counts = count_operations(executable.graph());
  EXPECT_EQ(counts[GetParam().convolution], 1);
  EXPECT_EQ(counts[GetParam().fused], 1);
  EXPECT_EQ(counts[std::string(GetParam().fused) + "_backward"], 1);
  EXPECT_EQ(counts["mean_squared_error"], 1);
  // No primitive stage of the chain is left, forward or backward.
  for (const char* stage :
       {"instance_norm", "group_norm", "clamp", "max", "max_pool2d", "logsumexp", "sigmoid", "multiply", "clamp_backward"}) {
    EXPECT_EQ(counts[stage], 0) << graph::to_text(executable.graph());
  }
  // The data is no parameter: its gradient is not computed.
  for (const auto& [name, number] : counts) EXPECT_EQ(name.find("data_gradient"), std::string::npos);
}

TEST_P(ReferenceModel, PlansWithinATenthOfTheLowerBound) {
  Graph graph;
  const Value output = model.build(Scope(graph), graph.input("input", GetParam().input));
  TrainStep step(mean_squared_error(output, graph.input("target", output.shape())), Adam{});
  const graph::MemoryPlan& plan =
      step.compile({{"input", {DType::f32, GetParam().input}}, {"target", {DType::f32, output.shape()}}}).memory_plan();
  EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.10 * static_cast<double>(plan.lower_bound_bytes)) << plan.text();
  EXPECT_LT(plan.arena_bytes, plan.unplanned_bytes) << plan.text();
}

TEST_P(ReferenceModel, GradientsEqualFiniteDifferences) {
  Graph graph;
  const Model small = model;
  graph.output("output", small.build(Scope(graph, "", DType::f64), graph.input("input", small.small_input, DType::f64)));
  auto state = std::make_shared<State>(Device::cpu(), 3);
  state->prepare(graph);
  const Tensor input = Tensor::empty(small.small_input, DType::f64);
  fill_normal(input, 0, 1, 1, 1);
  const GradientCheckOptions options{.mode = GradientCheckOptions::Mode::directional, .absolute = 1e-6, .relative = 1e-5};
  for (const GradientCheckResult& result : check_gradients(graph, {{"input", input}}, state, options)) {
    EXPECT_TRUE(result.passed()) << result.name << ": " << result.first_failure;
    EXPECT_GT(result.checked + result.kinks, 0);
  }
}

TEST_P(ReferenceModel, SameSeedSameBits) {
  std::vector<double> losses[2];
  for (std::vector<double>& run : losses) {
    Graph graph;
    const Value output = model.build(Scope(graph), graph.input("input", GetParam().input));
    TrainStep step(mean_squared_error(output, graph.input("target", output.shape())), AdamW{}, Device::cpu(), {.seed = 7});
    const Tensor input = Tensor::empty(GetParam().input);
    const Tensor target = Tensor::empty(output.shape());
    fill_normal(input, 0, 1, 1, 1);
    fill_normal(target, 0, 1, 1, 2);
    for (int i = 0; i < 5; ++i) run.push_back(step({{"input", input}, {"target", target}}));
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_LT(losses[0].back(), losses[0].front());
}

INSTANTIATE_TEST_SUITE_P(
    All, ReferenceModel,
    testing::Values(
        Case{"conv3d-instnorm-max", R"({"out_channels": 8})", {4, 3, 6, 9, 10}, "conv3d", "scale_instance_norm_clamp_scale_max"},
        Case{"conv2d-groupnorm-pool",
             R"({"in_channels": 4, "out_channels": 16, "num_groups": 4})",
             {4, 4, 18, 18},
             "conv2d",
             "group_norm_scale_max_pool_clamp"},
        Case{"convt3d-logsumexp", R"({"out_channels": 8})", {4, 3, 4, 5, 6}, "conv_transpose3d", "logsumexp_sigmoid_scale_subtract_clamp"}),
    [](const testing::TestParamInfo<Case>& tested) { return std::string(tested.param.fused); });

TEST(ReferenceModelA, TheConvolutionsBiasHasAGradientOfZero) {
  // The normalisation removes the bias; what is left is rounding, to be compared with the sum of what cancels.
  const Model model = make_model("conv3d-instnorm-max");
  Graph graph;
  const Value output = model.build(Scope(graph), graph.input("input", {2, 3, 6, 8, 7}));
  graph.output("output", output);
  std::vector<std::string> parameters;
  for (const graph::Node* node : graph.all(NodeKind::variable)) parameters.push_back(node->name);
  graph.input("seed", output.shape());
  const Program::Extend extend = [&](Graph& g) {
    Values wanted;
    for (const std::string& name : parameters) wanted.push_back(g.value(g.find(NodeKind::variable, name)->outputs[0]));
    const Value result = g.output_value("output"), cotangent = g.value(g.find(NodeKind::input, "seed")->outputs[0]);
    const Values gradients = gradient(std::span(&result, 1), std::span(&cotangent, 1), wanted);
    for (std::size_t i = 0; i < gradients.size(); ++i) g.output("grad." + parameters[i], gradients[i]);
  };
  Program program(graph, std::make_shared<State>(Device::cpu(), 1), extend);
  const Tensor input = Tensor::empty({2, 3, 6, 8, 7}), cotangent = Tensor::empty(output.shape());
  fill_normal(input, 0, 1, 1, 1);
  fill_normal(cotangent, 0, 1, 1, 2);
  const graph::Executable& run = program.run({{"input", input}, {"seed", cotangent}});
  double absolute_terms = 0;
  for (const double value : cotangent.to_vector<double>()) absolute_terms += std::abs(value);
  for (const double value : run.output("grad.conv.bias").to_vector<double>()) EXPECT_LE(std::abs(value), 1e-5 * absolute_terms);
}

TEST(Initialisation, IsPyTorchsInDistribution) {
  Graph graph;
  const Value input = graph.input("input", {1, 8, 16, 16});
  const Value y = nn::conv2d(Scope(graph, "conv"), input, {.out_channels = 256, .kernel_size = {3}});
  nn::linear(Scope(graph, "linear"), y, {.out_features = 100});
  nn::conv_transpose2d(Scope(graph, "up"), input, {.out_channels = 6, .kernel_size = {4}, .stride = {2}});
  State state(Device::cpu(), 11);
  state.prepare(graph);
  const auto expect_uniform = [&](const std::string& name, double fan_in) {
    const std::vector<double> values = state.at(name).to_vector<double>();
    const double bound = 1 / std::sqrt(fan_in), count = static_cast<double>(values.size());
    double mean = 0, square = 0, largest = 0;
    for (const double value : values) {
      mean += value / count;
      square += value * value / count;
      largest = std::max(largest, std::abs(value));
    }
    EXPECT_LE(largest, bound) << name;
    EXPECT_GE(largest, 0.9 * bound) << name;
    EXPECT_NEAR(mean, 0, 4 * bound / std::sqrt(3 * count)) << name;
    EXPECT_NEAR(square, bound * bound / 3, 6 * bound * bound / std::sqrt(count)) << name;
  };
  expect_uniform("conv.weight", 8 * 9);
  expect_uniform("conv.bias", 8 * 9);
  expect_uniform("linear.weight", 14);
  expect_uniform("up.weight", 6 * 16);  // PyTorch counts a transposed weight's second size
}

TEST(Initialisation, DoesNotDependOnOtherParameters) {
  const auto weight = [](bool with_more) {
    Graph graph;
    const Value x = graph.input("x", {1, 4});
    if (with_more) nn::linear(Scope(graph, "other"), x, {.out_features = 3});
    nn::linear(Scope(graph, "line"), x, {.out_features = 2});
    State state(Device::cpu(), 5);
    state.prepare(graph);
    return state.at("line.weight").to_vector<double>();
  };
  EXPECT_EQ(weight(false), weight(true));
}

TEST(MakeModel, NamesWhatIsWrong) {
  const auto message = [](std::string_view name, std::string_view config) -> std::string {
    try {
      make_model(name, config);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message("clasifier", "{}"),
            "unknown model \"clasifier\"; models: conv3d-instnorm-max conv2d-groupnorm-pool convt3d-logsumexp classifier; did you mean "
            "\"classifier\"?");
  EXPECT_EQ(message("classifier", R"({"colour": 1})"), "classifier: unknown field \"colour\"");
  EXPECT_EQ(message("classifier", R"({"num_groups": "16"})"), "classifier: field \"num_groups\": expected an integer, got \"16\"");
}

}  // namespace
}  // namespace frit
