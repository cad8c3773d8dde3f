#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "frit/autograd/gradient.h"
#include "frit/core/random.h"
#include "frit/graph/executable.h"
#include "frit/graph/passes/groups.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/optimizer/optimizer_ops.h"
#include "frit/ops/reduction/reduction.h"
#include "graph/graph_checks.h"
#include "ops/operator_checks.h"

namespace frit::rematerialization_test {
namespace {

using graph::Node;

/// That operations read and write.
std::int64_t moved_bytes(const Graph& graph) {
  const std::vector<int> uses = graph::use_counts(graph);
  std::int64_t bytes = 0;
  for (const Node* node : graph.all(NodeKind::operation)) {
    for (const int id : std::set<int>(node->inputs.begin(), node->inputs.end())) bytes += graph.type(id).bytes();
    for (const int id : node->outputs) bytes += uses[static_cast<std::size_t>(id)] > 0 ? graph.type(id).bytes() : 0;
  }
  return bytes;
}

std::int64_t peak(const Graph& graph) { return graph::plan_memory(graph::plan_buffers(graph).lifetimes).arena_bytes; }

/// Cleaned up, but for chains that a GPU computes.
Graph cleaned(const Graph& graph, bool rematerializes) {
  const auto passes = graph::cleanup_pipeline(DeviceKind::cpu);
  return graph::join_elementwise(graph::apply(passes.first(passes.size() - 1), graph), rematerializes ? DeviceKind::cuda : DeviceKind::cpu);
}

/// With results as before.
Graph cleaned(const Graph& graph, double tolerance) {
  const Graph clean = cleaned(graph, /*rematerializes=*/true);
  const Bindings inputs = random_inputs(graph);
  State state, clean_state;
  graph::Executable plain(graph, state), joined(clean, clean_state);
  plain.run(inputs);
  joined.run(inputs);
  for (const graph::Output& output : graph.outputs()) {
    const Tensor& value = plain.output(output.name);
    EXPECT_TRUE(near(joined.output(output.name), value, tolerance, largest_finite(value))) << output.name << '\n' << graph::to_text(clean);
  }
  return clean;
}

void add_gradients(Graph& graph, Value loss, const Values& with_respect_to) {
  const Values gradients = gradient(loss, with_respect_to);
  graph.output("loss", loss);
  for (std::size_t i = 0; i < gradients.size(); ++i) graph.output(concat("gradient", i), gradients[i]);
}

const Shape image{2, 4, 20, 20};

Value convolved(Graph& graph, const char* weight, Value x) {
  return conv2d(x, graph.input(weight, {x.dim(1), x.dim(1), 3, 3}, x.dtype()), Value{}, {.padding = {1, 1}});
}

/// The inputs of the operation that computes `op` among others.
std::vector<int> inputs_with(const Graph& graph, std::string_view op) {
  for (const Node* node : graph.all(NodeKind::operation)) {
    if (node->op->name == op || node->attributes.text().find(op) != std::string::npos) return node->inputs;
  }
  return {};
}

Value squares(Value x) { return sum(square(x)); }

TEST(Rematerialization, OfWhatLiesBetweenActivations) {
  Graph graph;
  const Value x = graph.input("x", image), first = convolved(graph, "w1", x);
  add_gradients(graph, squares(convolved(graph, "w2", mish(mish(first)))), {x});
  const Graph clean = cleaned(graph, 1e-5);
  EXPECT_EQ(inputs_with(clean, "mish_backward").size(), 2u) << "the gradient and the convolution's result:\n" << graph::to_text(clean);
}

TEST(Rematerialization, OfANormBeforeItsActivation) {
  Graph graph;
  const Value x = graph.input("x", {2, 4, 183, 181}), first = convolved(graph, "w1", x);
  add_gradients(graph, squares(convolved(graph, "w2", silu(instance_norm(first)))), {x});
  // As for a GPU: a CPU's kernel computes with a norm what follows it.
  const Graph clean = graph::join_elementwise(graph::spell_pointwise_results(graph, /*for_chains=*/true));
  const std::vector<int> inputs = inputs_with(clean, "silu_backward");
  EXPECT_EQ(std::count_if(inputs.begin(), inputs.end(), [&](int id) { return clean.type(id).shape == x.shape(); }), 2)
      << graph::to_text(clean);
  for (const int id : inputs) EXPECT_NE(clean.producer(id).op->name, "elementwise") << graph::to_text(clean);
}

TEST(Rematerialization, OfAGateThatIsNotStoredThen) {
  Graph graph;
  const Value x = graph.input("x", image), a = convolved(graph, "a", x);
  add_gradients(graph, squares(convolved(graph, "w", a * sigmoid(x))), {x});
  const Graph clean = cleaned(graph, 1e-5);
  const std::vector<int> inputs = inputs_with(clean, "sigmoid_backward");
  EXPECT_NE(std::find(inputs.begin(), inputs.end(), clean.find(NodeKind::input, "x")->outputs[0]), inputs.end()) << graph::to_text(clean);
  for (const Node* node : clean.all(NodeKind::operation)) {
    EXPECT_EQ(node->attributes.text().find("return y0, y1"), std::string::npos) << "the gate is stored:\n" << graph::to_text(clean);
  }
}

TEST(Rematerialization, OfTheGradientThatComesWithALoss) {
  Graph graph;
  const Value x = graph.input("x", image), target = graph.input("target", image);
  add_gradients(graph, mean_squared_error(hard_swish(convolved(graph, "w", x)), target), {x});
  const Graph clean = cleaned(graph, 1e-6);
  std::vector<std::string> names;
  for (const Node* node : clean.all(NodeKind::operation)) names.push_back(node->op->name);
  EXPECT_EQ(names, (std::vector<std::string>{"conv2d", "elementwise", "mean_squared_error", "conv2d_data_gradient"}));
  const std::vector<int> inputs = inputs_with(clean, "hard_swish_backward");
  EXPECT_EQ(std::count_if(inputs.begin(), inputs.end(), [&](int id) { return clean.type(id).shape == image; }), 2);
}

/// Training of convolutions with random activations between them.
Graph random_training(std::uint64_t seed) {
  Graph graph;
  Value x = graph.input("x", image);
  const Value first = x;
  for (std::uint32_t i = 0; i < 12; ++i) {
    const std::uint32_t draw = philox(seed, 3, i)[0] % 9;
    switch (draw) {
      case 0: x = mish(x); break;
      case 1: x = gelu(x); break;
      case 2: x = x * sigmoid(x); break;
      case 3: x = relu(x); break;
      case 4: x = x + first; break;
      case 5: x = tanh(x) * first; break;
      case 6: x = hard_swish(x + 1.0); break;
      default: x = convolved(graph, concat("w", i).c_str(), x); break;
    }
  }
  add_gradients(graph, squares(x), {first});
  return graph;
}

TEST(Rematerialization, NeedsNoMoreMemoryAndGivesTheSame) {
  std::int64_t bytes = 0, bytes_before = 0;
  for (std::uint64_t seed = 0; seed < 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = random_training(seed), clean = cleaned(graph, 1e-4);
    const Graph plain = cleaned(graph, /*rematerializes=*/false);
    EXPECT_EQ(graph::to_text(graph::apply(graph::cleanup_pipeline(DeviceKind::cpu), graph)), graph::to_text(plain));
    EXPECT_LE(moved_bytes(clean), moved_bytes(plain));
    EXPECT_LE(peak(clean), peak(plain)) << graph::to_text(plain) << graph::to_text(clean);
    bytes += moved_bytes(clean);
    bytes_before += moved_bytes(plain);
  }
  EXPECT_LT(static_cast<double>(bytes), 0.97 * static_cast<double>(bytes_before));
}

TEST(Rematerialization, LeavesWhatWouldTakeAsManyBytes) {
  Graph graph;
  const Value y = graph.input("a", image) * graph.input("b", image);
  graph.output("z", y / softmax(convolved(graph, "w", exp(y)), 1));
  const Graph clean = cleaned(graph, 1e-5);
  const auto& last = *clean.all(NodeKind::operation).back();
  EXPECT_EQ(last.op->name, "divide") << graph::to_text(clean);
}

TEST(Rematerialization, ReadsNoVariableThatHasBeenUpdated) {
  for (const bool updated_between : {true, false}) {
    Graph graph;
    const auto filled = [&](const char* name, DType dtype, double value) {
      return graph.variable(name, {dtype, {}}, [=](const Tensor& tensor, std::uint64_t) { tensor.fill(value); });
    };
    const Value x = graph.input("x", image), scale = filled("scale", DType::f32, 0.5);
    const Value y = exp(x * scale), z = softmax(convolved(graph, "w", y), 1);
    const auto update = [&] {
      const Value one = graph.constant(Tensor::full({}, 1));
      ops::sgd_update(scale, sum(x), filled("rate", DType::f64, 0.1), filled("step", DType::i64, 0), one, {}, {});
    };
    if (updated_between) update();
    graph.output("z", y / z + x);
    if (!updated_between) update();
    const Graph clean = cleaned(graph, 1e-5);
    const std::vector<int>& inputs = clean.producer(clean.outputs()[0].value).inputs;
    const bool reads_scale = std::find(inputs.begin(), inputs.end(), clean.find(NodeKind::variable, "scale")->outputs[0]) != inputs.end();
    EXPECT_EQ(reads_scale, !updated_between) << graph::to_text(clean);
  }
}

}  // namespace
}  // namespace frit::rematerialization_test
