#include <gtest/gtest.h>

#include <set>

#include "frit/autograd/gradient.h"
#include "frit/core/random.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/random/dropout.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/shape/shape_ops.h"
#include "graph/graph_checks.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

std::vector<std::string> operation_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const graph::Node* node : graph.all(NodeKind::operation)) names.push_back(node->op->name);
  return names;
}

using Names = std::vector<std::string>;

/// Both graphs' outputs, of the same inputs, agree.
template <class Agree>
void expect_outputs(const Graph& graph, const Graph& joined, const Agree& agree) {
  const Bindings inputs = random_inputs(graph);
  State state, joined_state;
  graph::Executable plain(graph, state), fused(joined, joined_state);
  plain.run(inputs);
  fused.run(inputs);
  for (const graph::Output& output : graph.outputs()) {
    EXPECT_TRUE(agree(fused.output(output.name), plain.output(output.name))) << output.name << '\n' << graph::to_text(joined);
  }
}
void expect_equal(const Graph& graph, const Graph& joined) {
  expect_outputs(graph, joined, [](const Tensor& found, const Tensor& expected) { return same_bits(found, expected); });
}
/// Up to the order of sums.
void expect_near(const Graph& graph, const Graph& joined) {
  expect_outputs(graph, joined,
                 [](const Tensor& found, const Tensor& expected) { return near(found, expected, 1e-5, largest_finite(expected)); });
}

Graph joined_and_checked(const Graph& graph) {
  Graph joined = graph::join_elementwise(graph);
  graph::verify(joined);
  expect_equal(graph, joined);
  return joined;
}

TEST(Joining, MakesOneOperationOfAChain) {
  Graph graph;
  const Value x = graph.input("x", {2, 3, 5, 5}), bias = graph.input("bias", {3, 1, 1});
  graph.output("y", gelu(x + bias) * 2.0 + x);
  const Graph joined = joined_and_checked(graph);
  EXPECT_EQ(operation_names(joined), Names{"elementwise"});
  EXPECT_NE(graph::to_text(joined).find("= elementwise(%0, %1, %2) {program=y0 = add(x0, x1); y1 = gelu(y0) {\"approximate\":\"none\"}; "
                                        "y2 = multiply(y1, x2); y3 = add(y2, x0); return y3} : f32 2x3x5x5"),
            std::string::npos)
      << graph::to_text(joined);
}

TEST(Joining, KeepsWhatIsReadOutside) {
  Graph graph;
  const Value x = graph.input("x", {4, 6}), h = exp(x) + 1.0, y = tanh(h);
  graph.output("y", y);
  graph.output("s", sum(h, {1}));
  EXPECT_EQ(operation_names(joined_and_checked(graph)), (Names{"elementwise", "sum"}));
}

TEST(Joining, TurnsBackBeforeACycle) {
  Graph graph;
  const Value x = graph.input("x", {4, 6}), e = exp(x);
  graph.output("y", e / sum(e, {1}, true));
  EXPECT_EQ(operation_names(joined_and_checked(graph)), (Names{"exp", "sum", "divide"}));
}

TEST(Joining, MovesWhatStandsBetween) {
  Graph graph;
  const Value x = graph.input("x", {4, 6}), e = exp(x), s = sum(e, {1});
  graph.output("y", e + 1.0);
  graph.output("s", s);
  EXPECT_EQ(operation_names(joined_and_checked(graph)), (Names{"elementwise", "sum"}));
}

TEST(Joining, LeavesSmallerResultsAlone) {
  Graph graph;
  const Value x = graph.input("x", {4, 6}), row = graph.input("row", {6});
  graph.output("y", x * exp(row));
  EXPECT_EQ(operation_names(joined_and_checked(graph)), (Names{"exp", "multiply"}));
}

TEST(Joining, LeavesASingleOperationAndIntegersAlone) {
  Graph graph;
  const Value x = graph.input("x", {4}), i = graph.input("i", {4}, DType::i64);
  graph.output("y", relu(x));
  graph.output("j", i * i + i);
  EXPECT_EQ(operation_names(joined_and_checked(graph)), (Names{"relu", "multiply", "add"}));
}

TEST(Joining, ReadsASharedInputOnce) {
  Graph graph;
  const Value g = graph.input("g", {4, 6}), a = graph.input("a", {4, 6}), b = graph.input("b", {4, 6});
  graph.output("da", sum(g * b, {0}));
  graph.output("db", g * a);
  EXPECT_EQ(operation_names(joined_and_checked(graph)), (Names{"elementwise", "sum"}));
}

TEST(Joining, SplitsLongChains) {
  Graph graph;
  Value x = graph.input("x", {64});
  for (int i = 0; i < 40; ++i) x = i % 2 == 0 ? sigmoid(x) : square(x);
  graph.output("y", x);
  EXPECT_EQ(operation_names(joined_and_checked(graph)), (Names{"elementwise", "elementwise", "elementwise"}));
}

TEST(Joining, ComparesSelectsAndCasts) {
  Graph graph;
  const Value x = graph.input("x", {4, 6}), y = graph.input("y", {4, 6}, DType::u8);
  graph.output("z", where(greater(x, ops::scalar(x, 0)), exp(x), cast(y, DType::f32) * x));
  EXPECT_EQ(operation_names(joined_and_checked(graph)), Names{"elementwise"});
}

TEST(Joining, DoesNotMixFloat64WithOthers) {
  Graph graph;
  const Value x = graph.input("x", {4});
  graph.output("y", square(cast(square(exp(x)), DType::f64)));
  EXPECT_EQ(operation_names(joined_and_checked(graph)), (Names{"elementwise", "cast", "square"}));
}

TEST(Joining, KeepsHalvesInFloat32UntilTheyAreStoredOrCast) {
  Graph graph;
  const Value x = graph.input("x", {1000}, DType::f16);
  const Value wide = cast(x, DType::f32);
  graph.output("y", square(exp(x)));
  graph.output("z", cast(cast(wide / 3.0, DType::bf16), DType::f32) + wide);
  const Graph joined = graph::join_elementwise(graph);
  EXPECT_EQ(operation_names(joined), Names{"elementwise"});
  const Bindings inputs = random_inputs(graph);
  State state, joined_state;
  graph::Executable plain(graph, state), fused(joined, joined_state);
  plain.run(inputs);
  fused.run(inputs);
  EXPECT_TRUE(same_bits(fused.output("z"), plain.output("z"))) << "what is cast is rounded";
  const std::vector<Tensor> exact = ops::run("square", ops::run("exp", {inputs.at("x").to(DType::f32)}));
  EXPECT_TRUE(same_bits(fused.output("y"), exact[0].to(DType::f16)));
}

TEST(Joining, ReadsAVariableBeforeItIsUpdated) {
  Graph graph;
  const auto two = [](const Tensor& tensor, std::uint64_t) { tensor.fill(2); };
  const Value x = graph.input("x", {4}), counter = graph.variable("counter", {DType::i64, {}}, two);
  const Value read = square(exp(cast(counter, DType::f32)));
  const Value scaled = x * read;
  const Value dropped = dropout(x, counter, 0.5, 1);
  graph.output("y", exp(scaled));  // this, and the multiplication with it, would come after the update
  graph.output("z", dropped);
  const Names names = operation_names(joined_and_checked(graph));
  EXPECT_EQ(std::count(names.begin(), names.end(), "elementwise"), 2);
  EXPECT_EQ(names.size(), 4u) << "with the cast of an integer and the dropout";
}

TEST(Joining, JoinsBackwardOperators) {
  Graph graph;
  const Value x = graph.input("x", {2, 4, 6, 6}), w = graph.input("w", {4, 4, 3, 3}), bias = graph.input("bias", {4, 1, 1});
  const Value h = conv2d(x, w), y = gelu(h + bias) * 0.5 + h;
  const Value loss = sum(square(y), {0, 1, 2, 3});
  const Value with_respect_to[] = {w, bias};
  const Values gradients = gradient(loss, with_respect_to);
  graph.output("loss", loss);
  graph.output("dw", gradients[0]);
  graph.output("db", gradients[1]);
  const Graph clean = graph::share_common_subexpressions(graph::fold_constants(graph));
  const Graph joined = joined_and_checked(clean);
  EXPECT_EQ(operation_names(joined), (Names{"conv2d", "elementwise", "sum", "sum", "reshape", "conv2d_weight_gradient"}))
      << graph::to_text(joined);
}

TEST(Joining, WritesOverADyingInput) {
  Graph graph;
  const Value x = graph.input("x", {10, 100, 4}), y = sum(x, {2});
  graph.output("z", sum(exp(y) + y));
  const Graph joined = joined_and_checked(graph);
  const graph::BufferPlan plan = graph::plan_buffers(joined);
  for (const graph::Node* node : joined.all(NodeKind::operation)) {
    if (node->op->name != "elementwise") continue;
    EXPECT_EQ(plan.buffer[static_cast<std::size_t>(node->outputs[0])], plan.buffer[static_cast<std::size_t>(node->inputs[0])]);
  }
}

/// Random operation_names on random earlier values, of one shape or broadcast.
Graph random_graph(std::uint64_t seed) {
  Graph graph;
  const Shape shapes[] = {{3, 5, 7}, {5, 1}, {7}, {}, {3, 1, 1}};
  Values values;
  std::uint64_t draws = 0;
  const auto draw = [&](std::size_t below) { return static_cast<std::size_t>(philox(seed, 1, draws++)[0]) % below; };
  const DType dtype = draw(2) == 0 ? DType::f32 : DType::f64;
  for (std::size_t i = 0; i < 4 + draw(3); ++i) values.push_back(graph.input(concat("x", i), i < 2 ? shapes[0] : shapes[draw(5)], dtype));
  for (std::size_t i = 0; i < 5 + draw(25); ++i) {
    const Value a = values[draw(values.size())], b = values[draw(values.size())];
    switch (draw(14)) {
      case 0: values.push_back(a + b); break;
      case 1: values.push_back(a * b); break;
      case 2: values.push_back(a - b); break;
      case 3: values.push_back(maximum(a, b)); break;
      case 4: values.push_back(where(less(a, b), a, values[0])); break;
      case 5: values.push_back(gelu(a)); break;
      case 6: values.push_back(tanh(a)); break;
      case 7: values.push_back(clamp(a, -0.5, std::nullopt)); break;
      case 8: values.push_back(ops::emit_one("silu_backward", {a, a})); break;
      case 9: values.push_back(sigmoid(a) * 0.7); break;
      case 10: values.push_back(a + sum(b, {-1}, true)); break;
      case 11: values.push_back(leaky_relu(a, 0.1)); break;
      case 12: values.push_back(cast(greater(a, b), dtype)); break;
      default: values.push_back(ops::emit_one("relu_backward", {a, a})); break;
    }
  }
  graph.output("last", values.back());
  for (std::size_t i = 0; i < 3; ++i) graph.output(concat("y", i), values[draw(values.size())]);
  return graph::remove_dead_code(graph::share_common_subexpressions(graph));
}

TEST(Joining, RandomGraphsGiveTheSameBits) {
  std::size_t before = 0, after = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = random_graph(seed);
    const Graph joined = joined_and_checked(graph);
    before += operation_names(graph).size();
    after += operation_names(joined).size();
    if (HasFailure()) break;
  }
  EXPECT_LT(after * 2, before);
}

/// What a GPU reads once: an image, of which elements, their sums and what only its sums are wanted of are computed.
struct Summed {
  Graph graph;
  Value x = graph.input("x", {4, 16, 40, 32}), target = graph.input("target", x.shape());
  Value difference = tanh(x) - target;
  Graph result;  ///< the nodes that joined() gives are its

  std::vector<const graph::Node*> joined() {
    result = joined_and_checked(graph);
    return result.all(NodeKind::operation);
  }
};

TEST(Joining, ComputesSumsOverPixelsWithWhatTheyRead) {
  Summed g;
  const Value dx = g.difference * g.x;
  g.graph.output("dx", dx);
  g.graph.output("db", sum(dx, {0, 2, 3}));
  g.graph.output("loss", sum(square(g.difference), {0, 2, 3}));
  const auto nodes = g.joined();
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0]->op->name, "elementwise_sums");
  EXPECT_EQ(nodes[0]->outputs.size(), 3u) << "the squares themselves are not written";
}

TEST(Joining, ComputesMeansOfSamplesWithWhatIsReadLater) {
  Summed g;
  g.graph.output("y", g.difference * sigmoid(mean(g.difference, {2, 3}, true)));
  const auto nodes = g.joined();
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[0]->op->name, "elementwise_sums");
  EXPECT_EQ(nodes[0]->outputs.size(), 2u);
  EXPECT_EQ(nodes[2]->op->name, "multiply");
}

TEST(Joining, ComputesReductionsOfOneKindWithWhatTheyRead) {
  Summed g;
  g.graph.output("of all", sum(square(g.x), {0, 2, 3}));
  g.graph.output("of each", sum(abs(g.x), {2, 3}));
  std::multiset<std::string> names;
  for (const graph::Node* node : g.joined()) names.insert(node->op->name);
  EXPECT_EQ(names, (std::multiset<std::string>{"elementwise_sums", "sum"}));
}

TEST(Joining, LeavesReductionsOverOtherAxesOrOfOtherImages) {
  Summed g;
  g.graph.output("channels", sum(square(g.x), {1}));
  g.graph.output("rows", mean(square(g.x), {3}));
  g.graph.output("largest", ops::emit_reduction("amax", square(g.x), {0, 2, 3}, false));
  g.graph.output("odd", sum(square(g.graph.input("odd images", {4, 15, 40, 32})), {0, 2, 3}));
  g.graph.output("small", sum(square(g.graph.input("small images", {4, 16, 8, 8})), {0, 2, 3}));
  for (const graph::Node* node : g.joined()) EXPECT_NE(node->op->name, "elementwise_sums") << node->attributes.text();
}

TEST(Joining, ComputesSumsOfEverythingWithWhatTheyRead) {
  Graph graph;
  const Value x = graph.input("x", {3, 5, 73, 72}), rows = graph.input("rows", {1000, 72});
  graph.output("of odd channels", mean(square(x) - 1.0, {}));
  graph.output("y", tanh(rows));
  graph.output("of rows", sum(tanh(rows), {}, true));
  EXPECT_EQ(operation_names(joined_and_checked(graph)), (Names{"elementwise_sums", "elementwise_sums"}));
}

TEST(Joining, ComputesASumOfSumsAsOneUnlessOthersReadThese) {
  for (const bool others : {false, true}) {
    Summed g;
    const Value of_channels = sum(square(g.difference), {0, 2, 3});
    g.graph.output("y", g.difference);
    g.graph.output("loss", sum(of_channels, {}));
    if (others) g.graph.output("of channels", of_channels);
    g.result = graph::join_elementwise(g.graph);
    expect_near(g.graph, g.result);
    EXPECT_EQ(operation_names(g.result), others ? (Names{"elementwise_sums", "sum"}) : Names{"elementwise_sums"});
  }
}

/// As the gradients of linear layers' biases, which read rows of all images.
TEST(Joining, ComputesSumsOfRowsWithWhatTheyRead) {
  Graph graph;
  const Value g = graph.input("g", {4, 20, 18, 64}), x = graph.input("x", g.shape()), w = graph.input("w", {64, 32});
  const Value dx = silu(g) * x, rows = flatten(dx, 0, -2);
  graph.output("dx", matmul(rows, w));
  graph.output("db", sum(rows, {0}));
  graph.output("of a permutation", sum(permute(dx, {0, 3, 1, 2}), {0, 2, 3}));
  const Graph clean = graph::apply(graph::cleanup_pipeline(DeviceKind::cuda), graph);
  EXPECT_EQ(operation_names(clean), (Names{"elementwise_row_sums", "flatten", "matmul"})) << graph::to_text(clean);
  const graph::Node* const joined = clean.all(NodeKind::operation)[0];
  EXPECT_EQ(joined->outputs.size(), 2u) << "both sums are the same one";
  expect_equal(graph, clean);
}

/// The loss, its gradient and a bias's: prediction and target are read once.
TEST(Joining, ComputesALossWithItsGradient) {
  for (const auto loss_of : {mean_squared_error, l1_loss}) {
    for (const DType dtype : {DType::f32, DType::f16}) {
      Graph graph;
      const Value x = graph.input("x", {2, 8, 66, 66}, dtype);
      const Value w = graph.input("w", {16, 8, 3, 3}, dtype), b = graph.input("b", {16}, dtype);
      const Value target = graph.input("target", {2, 16, 64, 64}), loss = loss_of(tanh(conv2d(x, w, b)), target, Reduction::mean);
      const Values gradients = gradient(loss, std::vector{w, b});
      graph.output("loss", loss);
      graph.output("dw", gradients[0]);
      graph.output("db", gradients[1]);
      const Graph clean = graph::apply(graph::cleanup_pipeline(DeviceKind::cuda), graph);
      Names names = operation_names(clean);
      EXPECT_EQ(std::count(names.begin(), names.end(), "elementwise_sums"), 1) << graph::to_text(clean);
      for (const char* const name : {"mean_squared_error", "l1_loss", "elementwise"}) {
        EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << graph::to_text(clean);
      }
      const Bindings inputs = random_inputs(graph);
      State state, clean_state;
      graph::Executable plain(graph, state), fused(clean, clean_state);
      plain.run(inputs);
      fused.run(inputs);
      for (const char* const name : {"loss", "dw", "db"}) {
        const Tensor expected = plain.output(name);
        const double tolerance = dtype == DType::f32 ? 1e-5 : 2e-2;  // gradients of a mean are small for halves
        EXPECT_TRUE(near(fused.output(name), expected, tolerance, largest_finite(expected))) << name << ' ' << dtype;
      }
    }
  }
}

}  // namespace
}  // namespace frit
