#include "frit/models/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "frit/autograd/gradient.h"
#include "frit/autograd/gradient_check.h"
#include "frit/autograd/train_step.h"
#include "frit/core/random.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/models/model.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/reduction/reduction.h"

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
  graph.output("output", model.add_to(Scope(graph), GetParam().input).at("output"));
  const Graph fused = graph::apply(graph::forward_pipeline(), graph);
  const std::map<std::string, int> expected = {{GetParam().convolution, 1}, {GetParam().fused, 1}};
  EXPECT_EQ(count_operations(fused), expected) << graph::to_text(fused);
}

std::function<Value(const Scope&, Value)> output_of(const Model& model) {
  return [model](const Scope& scope, Value image) { return model.build(scope, {{"input", image}}).at("output"); };
}

/// What `build` makes of examples of this shape, inference by inference, for batches of their first 1, 2, 3, ...
void expect_same_bits_in_any_batch(const std::function<Value(const Scope&, Value)>& build, const Shape& example) {
  Shape all = example;
  all.insert(0, 17);
  const Tensor examples = Tensor::empty(all);
  fill_normal(examples, 0, 1, 3, 0);
  Graph graph;
  graph.output("output", build(Scope(graph), graph.input("input", all)));
  Program program(graph::for_inference(graph), std::make_shared<State>(Device::cpu(), 7));
  const auto rows = [&](std::int64_t first, std::int64_t end) {
    return program.run({{"input", examples.slice(0, first, end)}}).output("output").clone();
  };
  std::vector<Tensor> alone;
  for (std::int64_t i = 0; i < 17; ++i) alone.push_back(rows(i, i + 1));
  for (const std::int64_t batch : {2, 3, 5, 8, 17}) {
    const Tensor output = rows(0, batch);
    for (std::int64_t i = 0; i < batch; ++i) {
      const Tensor row = output.slice(0, i, i + 1).contiguous();
      const std::size_t bytes = static_cast<std::size_t>(row.bytes());
      EXPECT_EQ(std::memcmp(row.raw(), alone[static_cast<std::size_t>(i)].raw(), bytes), 0) << "row " << i << " of " << batch;
    }
  }
}

TEST_P(ReferenceModel, HasTheSameBitsInAnyBatch) {
  Shape example = GetParam().input;
  example.erase(0);
  expect_same_bits_in_any_batch(output_of(model), example);
}

/// Sizes at which sums are cut into parts and work is spread over threads.
TEST(LargeLayers, HaveTheSameBitsInAnyBatch) {
  expect_same_bits_in_any_batch(output_of(make_model("classifier")), {1, 28, 28});
  for (const std::int64_t features : {10, 70, 300}) {
    expect_same_bits_in_any_batch([=](const Scope& s, Value x) { return nn::linear(s / "l", x, {features}); }, {3000});
  }
  expect_same_bits_in_any_batch([](const Scope& s, Value x) { return nn::conv2d(s / "c", x, {.out_channels = 70, .kernel_size = {3}}); },
                                {40, 9, 11});
  expect_same_bits_in_any_batch(
      [](const Scope& s, Value x) { return nn::conv_transpose2d(s / "c", x, {.out_channels = 7, .kernel_size = {3}, .stride = {2}}); },
      {40, 9, 11});
  expect_same_bits_in_any_batch([](const Scope&, Value x) { return mean(x, {2, 3}); }, {2, 300, 301});
  expect_same_bits_in_any_batch([](const Scope&, Value x) { return sum(x, {1}); }, {900, 500});
  expect_same_bits_in_any_batch([](const Scope&, Value x) { return logsumexp(x, {1, 2}); }, {200, 500});
  expect_same_bits_in_any_batch([](const Scope&, Value x) { return softmax(x, 1); }, {70'000});
  expect_same_bits_in_any_batch([](const Scope& s, Value x) { return nn::layer_norm(s / "n", x, 2); }, {100, 301});
  expect_same_bits_in_any_batch([](const Scope& s, Value x) { return nn::batch_norm(s / "n", x); }, {5, 33, 35});
}

TEST_P(ReferenceModel, TrainsThroughTheFusedBackward) {
  Graph graph;
  const Value output = model.add_to(Scope(graph), GetParam().input).at("output");
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
  const Value output = model.add_to(Scope(graph), GetParam().input).at("output");
  TrainStep step(mean_squared_error(output, graph.input("target", output.shape())), Adam{});
  const graph::MemoryPlan& plan =
      step.compile({{"input", {DType::f32, GetParam().input}}, {"target", {DType::f32, output.shape()}}}).memory_plan();
  EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.10 * static_cast<double>(plan.lower_bound_bytes)) << plan.text();
  EXPECT_LT(plan.arena_bytes, plan.unplanned_bytes) << plan.text();
}

/// Runs a graph in the memory that is planned for it, and fills every buffer with NaN as soon as the plan calls it dead.
class PoisonedRun {
 public:
  PoisonedRun(const Graph& graph, State& state)
      : graph_(graph), plan_(graph::plan_memory(buffers_.lifetimes)), arena_(Tensor::full({plan_.arena_bytes}, 0xff, DType::u8)) {
    state.prepare(graph);
    values_.resize(static_cast<std::size_t>(graph.value_count()));
    for (const graph::Node* node : graph.all(NodeKind::variable)) value(node->outputs[0]) = state.at(node->name);
    for (const graph::Node* node : graph.all(NodeKind::constant)) value(node->outputs[0]) = node->constant;
  }

  void run(const Bindings& inputs) {
    for (std::size_t step = 0; step < graph_.nodes().size(); ++step) {
      const graph::Node& node = graph_.nodes()[step];
      for (const int id : node.outputs) {
        const int buffer = buffers_.buffer[static_cast<std::size_t>(id)];
        const TensorType& type = graph_.type(id);
        const Layout layout = layouts_[static_cast<std::size_t>(id)];
        if (buffer >= 0) value(id) = Tensor::over(place(buffer), type.shape, type.dtype, Device::cpu(), nullptr, layout);
      }
      if (node.kind == NodeKind::input && value(node.outputs[0]).defined()) copy(value(node.outputs[0]), inputs.at(node.name));
      if (node.kind == NodeKind::operation) invoke(node, buffers_.view[step], buffers_.scratch[step]);
      for (std::size_t buffer = 0; buffer < buffers_.lifetimes.size(); ++buffer) {
        const graph::Lifetime& lifetime = buffers_.lifetimes[buffer];
        if (lifetime.last == static_cast<int>(step))
          std::memset(place(static_cast<int>(buffer)), 0xff, static_cast<std::size_t>(lifetime.bytes));
      }
    }
  }

  Tensor& value(int id) { return values_[static_cast<std::size_t>(id)]; }

 private:
  std::byte* place(int buffer) const { return static_cast<std::byte*>(arena_.raw()) + plan_.offsets[static_cast<std::size_t>(buffer)]; }

  void invoke(const graph::Node& node, bool is_view, int scratch) {
    if (is_view && node.op->part) {
      value(node.outputs[0]) = node.op->part(value(node.inputs[0]), node.attributes);
      return;
    }
    if (is_view && node.op->permutation) {
      value(node.outputs[0]) = value(node.inputs[0]).permute(node.op->permutation(node.attributes));
      return;
    }
    if (node.op->view) {
      value(node.outputs[0]) = value(node.inputs[0]).reshape(graph_.type(node.outputs[0]).shape);
      return;
    }
    std::vector<Tensor> inputs, outputs;
    for (const int id : node.inputs) inputs.push_back(value(id));
    for (const int id : node.outputs) outputs.push_back(value(id));
    std::span<std::byte> memory;
    if (scratch >= 0) memory = {place(scratch), static_cast<std::size_t>(buffers_.lifetimes[static_cast<std::size_t>(scratch)].bytes)};
    ops::invoke(*node.op, node.attributes, inputs, outputs, memory);
  }

  const Graph& graph_;
  std::vector<Layout> layouts_ = graph::choose_layouts(graph_, Device::cpu());
  graph::BufferPlan buffers_ = graph::plan_buffers(graph_, Device::cpu(), layouts_);
  graph::MemoryPlan plan_;
  Tensor arena_;
  std::vector<Tensor> values_;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

TEST_P(ReferenceModel, TrainsTheSameWhenDeadBuffersArePoisoned) {
  Graph graph;
  const Value output = model.add_to(Scope(graph), GetParam().input).at("output");
  graph.output("output", output);
  const Shape target_shape = output.shape();
  TrainStep step(mean_squared_error(output, graph.input("target", target_shape)), Adam{}, Device::cpu(), {.seed = 7});
  const graph::Executable& executable = step.compile({{"input", {DType::f32, GetParam().input}}, {"target", {DType::f32, target_shape}}});
  State state(Device::cpu(), 7);
  PoisonedRun poisoned(executable.graph(), state);
  const Tensor input = Tensor::empty(GetParam().input), target = Tensor::empty(target_shape);
  fill_normal(input, 0, 1, 1, 1);
  fill_normal(target, 0, 1, 1, 2);
  for (int i = 0; i < 3; ++i) {
    step({{"input", input}, {"target", target}});
    poisoned.run({{"input", input}, {"target", target}});
    for (const graph::Output& result : executable.graph().outputs())
      EXPECT_TRUE(same_bits(poisoned.value(result.value), executable.output(result.name))) << result.name << ", step " << i;
  }
  EXPECT_FALSE(state.tensors().empty());
  for (const auto& [name, tensor] : state.tensors()) EXPECT_TRUE(same_bits(tensor, step.state().at(name))) << name;
}

TEST_P(ReferenceModel, GradientsEqualFiniteDifferences) {
  Graph graph;
  const Model small = model;
  graph.output("output", small.add_to(Scope(graph, "", DType::f64), small.small_input).at("output"));
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
    const Value output = model.add_to(Scope(graph), GetParam().input).at("output");
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

/// A norm removes what is added to all that it normalises together. The gradient of the convolution's bias, summed over `together`
/// channels, is rounding then, to be compared with the sum of what cancels.
void expect_bias_gradient_of_zero(const Model& model, const Shape& shape, const std::string& convolution, std::int64_t together) {
  Graph graph;
  const Value output = model.add_to(Scope(graph), shape).at("output");
  graph.output("output", output);
  graph.input("seed", output.shape());
  const Program::Extend extend = [&](Graph& g) {
    const std::vector<const graph::Node*> operations = g.all(NodeKind::operation);
    const auto found = std::find_if(operations.begin(), operations.end(), [&](const auto* node) { return node->op->name == convolution; });
    ASSERT_NE(found, operations.end());
    const Values wanted = {g.value(g.find(NodeKind::variable, "conv.bias")->outputs[0]), g.value((*found)->outputs[0])};
    const Value result = g.output_value("output"), cotangent = g.value(g.find(NodeKind::input, "seed")->outputs[0]);
    const Values gradients = gradient(std::span(&result, 1), std::span(&cotangent, 1), wanted);
    g.output("bias", gradients[0]);
    g.output("terms", gradients[1]);
  };
  Program program(graph, std::make_shared<State>(Device::cpu(), 1), extend);
  const Tensor input = Tensor::empty(shape), cotangent = Tensor::empty(output.shape());
  fill_normal(input, 0, 1, 1, 1);
  fill_normal(cotangent, 0, 1, 1, 2);
  const graph::Executable& run = program.run({{"input", input}, {"seed", cotangent}});
  const Tensor bias = run.output("bias"), terms = run.output("terms");
  double total = 0;
  for (std::int64_t begin = 0; begin < bias.elements(); begin += together) {
    double sum = 0, absolute = 0;
    for (const double value : bias.slice(0, begin, begin + together).to_vector<double>()) sum += value;
    for (const double value : terms.slice(1, begin, begin + together).to_vector<double>()) absolute += std::abs(value);
    EXPECT_LE(std::abs(sum), 1e-5 * absolute) << "channels from " << begin;
    total += absolute;
  }
  EXPECT_GT(total, 0);
}

TEST(ReferenceModelA, TheConvolutionsBiasHasAGradientOfZero) {
  expect_bias_gradient_of_zero(make_model("conv3d-instnorm-max"), {2, 3, 6, 8, 7}, "conv3d", 1);
}

TEST(ReferenceModelB, TheConvolutionsBiasHasAGradientThatCancelsInEachGroup) {
  expect_bias_gradient_of_zero(make_model("conv2d-groupnorm-pool", R"({"out_channels": 16, "num_groups": 4})"), {2, 8, 12, 13}, "conv2d",
                               4);
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

}  // namespace
}  // namespace frit
