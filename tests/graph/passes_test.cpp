#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "frit/autograd/gradient.h"
#include "frit/core/random.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/random/dropout.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"
#include "graph/graph_checks.h"

namespace frit {
namespace {

TEST(DeadCode, KeepsWhatOutputsAndUpdatesNeed) {
  Graph graph;
  const Value x = graph.input("x", {4});
  graph.input("unused", {1});
  const Value counter = graph.variable("counter", {DType::i64, {}}, zeros());
  exp(x);  // nobody reads it
  dropout(x, counter, 0.5, 1);
  graph.output("y", relu(x));
  const Graph live = graph::remove_dead_code(graph);
  EXPECT_EQ(operations(live), 2u);
  EXPECT_EQ(count(live, "exp"), 0u);
  EXPECT_EQ(count(live, "dropout"), 1u) << "it updates its counter";
  EXPECT_EQ(live.all(NodeKind::input).size(), 2u) << "inputs are bound by name";
}

TEST(CommonSubexpressions, AreSharedByValue) {
  Graph graph;
  const Value x = graph.input("x", {4});
  graph.output("y", clamp(x + 1.0, 0, 1) * clamp(x + 1.0, 0, 1));
  graph.output("z", clamp(x + 1.0, 0, 2));
  const Graph shared = graph::share_common_subexpressions(graph);
  EXPECT_EQ(count(shared, "add"), 1u);
  EXPECT_EQ(count(shared, "clamp"), 2u) << "other attributes, another value";
}

TEST(CommonSubexpressions, DoNotShareRandomMasks) {
  Graph graph;
  const Value x = graph.input("x", {4});
  const Value a = graph.variable("a", {DType::i64, {}}, zeros()), b = graph.variable("b", {DType::i64, {}}, zeros());
  graph.output("y", dropout(x, a, 0.5, 1) + dropout(x, b, 0.5, 1));
  EXPECT_EQ(count(graph::share_common_subexpressions(graph), "dropout"), 2u);
}

TEST(ConstantFolding, ComputesWhatNeedsNoInput) {
  Graph graph;
  const Value x = graph.input("x", {2});
  const Value c = graph.constant(Tensor::from<float>({4, 9}, {2}));
  graph.output("y", x + sqrt(c) * 2.0);
  const Graph folded = graph::fold_constants(graph);
  EXPECT_EQ(operations(folded), 1u);
  Program program(folded, std::make_shared<State>());
  EXPECT_EQ(program.run({{"x", Tensor::from<float>({1, 1}, {2})}}).output("y").to_vector<double>(), (std::vector<double>{5, 7}));
}

/// A convolution's result, (2, 4, 12, 12), and what is computed from it.
Graph convolved(const std::function<Value(Value result, Value scale, Value shift)>& after, const Shape& numbers = {4, 1, 1}) {
  Graph graph;
  const auto variable = [&](const std::string& name, const Shape& shape) {
    return graph.variable(name, {DType::f64, shape}, [](const Tensor& t, std::uint64_t seed) {
      fill_normal(t, 0.3, 0.5, seed, static_cast<std::uint64_t>(t.elements()));
    });
  };
  const Value x = graph.input("x", {2, 3, 14, 14}, DType::f64);
  const Value y = conv2d(x, variable("weight", {4, 3, 3, 3}), variable("bias", {4}), {});
  graph.output("y", after(y, variable("scale", numbers), variable("shift", numbers)));
  return graph;
}

TEST(ChannelAffines, BecomePartOfTheConvolution) {
  for (const Shape& numbers : {Shape{4, 1, 1}, Shape{1, 4, 1, 1}, Shape{}, Shape{1, 1, 1}}) {
    const Graph graph =
        convolved([](Value y, Value scale, Value shift) { return relu(1.5 - ((y * scale - shift) / (shift * shift + 1.0))); }, numbers);
    const Graph folded = graph::fold_channel_affines(graph);
    EXPECT_EQ(folded.producer(folded.producer(folded.outputs()[0].value).inputs[0]).op->name, "conv2d") << graph::to_text(folded);
    expect_equal_results(graph, folded);
  }
}

/// Weight and bias of a group norm that was exported in parts become the norm's own, whose gradients are sums of one operator.
TEST(ChannelAffines, BecomePartOfANormWithoutAny) {
  const auto normed = [](std::int64_t groups, bool weighted) {
    return [=](Value y, Value scale, Value shift) {
      const Value flat = reshape(scale, {4});
      return weighted ? group_norm(y, groups, flat, flat) * scale : (group_norm(y, groups) * scale + shift) * 2.0 - shift;
    };
  };
  const Graph graph = convolved(normed(2, false)), folded = graph::fold_channel_affines(graph);
  const graph::Node& norm = folded.producer(folded.outputs()[0].value);
  EXPECT_EQ(norm.op->name, "group_norm") << graph::to_text(folded);
  EXPECT_EQ(norm.inputs.size(), 3u);
  EXPECT_EQ(norm.attributes.text(), "num_groups=2 eps=1e-05");
  EXPECT_EQ(count(folded, "group_norm"), 1u);
  expect_equal_results(graph, folded);
  const Graph weighted = convolved(normed(2, true));
  EXPECT_EQ(graph::to_text(graph::fold_channel_affines(weighted)), graph::to_text(graph::remove_dead_code(weighted))) << "it has its own";
}

/// A layer scale, as ConvNeXt's, of a result that is smaller than the weight.
TEST(ChannelAffines, ArePreparedWhereTheirNumbersAreFixed) {
  const auto first_operand = [](bool fixed) {
    Graph graph;
    const auto zeros = [](const Tensor& tensor, std::uint64_t) { tensor.fill(0); };
    const auto variable = [&](const char* name, const Shape& shape) { return graph.variable(name, {DType::f32, shape}, zeros); };
    const Value x = graph.input("x", {1, 8, 3, 3});
    const Value weight = fixed ? variable("weight", {8, 8, 1, 1}) : graph.input("weight", {8, 8, 1, 1});
    graph.output("y", conv2d(x, weight, {}) * variable("scale", {8, 1, 1}) + x);
    const Graph folded = graph::prepare_channel_affines(graph);
    return folded.producer(folded.producer(folded.outputs()[0].value).inputs[0]).op->name;
  };
  EXPECT_EQ(first_operand(true), "conv2d");
  EXPECT_EQ(first_operand(false), "multiply");
}

TEST(ChannelAffines, StayWhereTheyAreOthers) {
  const auto unchanged = [](const Graph& graph) {
    return graph::to_text(graph::fold_channel_affines(graph)) == graph::to_text(graph::remove_dead_code(graph));
  };
  EXPECT_TRUE(unchanged(convolved([](Value y, Value scale, Value) { return y * scale; }, {1, 1, 12})));
  EXPECT_TRUE(unchanged(convolved([](Value y, Value scale, Value) { return y * scale + y; }))) << "something else reads the result";
  EXPECT_TRUE(unchanged(convolved([](Value y, Value, Value) { return y + mean(y, {1}, true); }))) << "depends on the input";
  EXPECT_TRUE(unchanged(convolved([](Value y, Value scale, Value) { return y * scale; }, {3, 1, 4, 1, 1}))) << "repeats the images";
  EXPECT_TRUE(unchanged(convolved([](Value y, Value scale, Value) { return scale / y; })));
}

TEST(NeutralOperands, AreDropped) {
  Graph graph;
  const Value x = graph.input("x", {2, 3}), one = graph.constant(Tensor::full({}, 1));
  graph.output("multiply", exp(x) * 1.0);
  graph.output("swapped", 1.0 * exp(x + 1.0));
  graph.output("divide", exp(x + 2.0) / graph.constant(Tensor::full({1}, 1)));
  graph.output("chain", (x * one - 0.0) / 1.0);
  const Graph dropped = graph::drop_neutral_operands(graph);
  EXPECT_EQ(operations(dropped), 5u) << graph::to_text(dropped);
  for (const char* op : {"multiply", "divide", "subtract"}) EXPECT_EQ(count(dropped, op), 0u) << op;
}

TEST(NeutralOperands, StayWhereTheResultWouldDiffer) {
  Graph graph;
  const Value x = graph.input("x", {2, 3}), row = graph.input("row", {3});
  const Value variable = graph.variable("v", {DType::f32, {3}}, zeros());
  graph.output("from one", 1.0 / x);
  graph.output("negative zero", x - -0.0);
  graph.output("zero", x + 0.0);
  graph.output("wider", row * graph.constant(Tensor::full({1, 1}, 1)));
  graph.output("many", x * graph.constant(Tensor::full({3}, 1)));
  graph.output("copy of a variable", reshape(variable, {1, 3}) * 1.0);
  EXPECT_EQ(operations(graph::drop_neutral_operands(graph)), operations(graph));
}

TEST(Absorption, MakesOneReductionOfTwo) {
  Graph graph;
  const Value x = graph.input("x", {2, 3, 4, 5});
  graph.output("mean", mean(mean(x, {2}), {2}));  // axes 2 and 3
  graph.output("kept", sum(sum(x, {1, 3}, true), {0}, true));
  graph.output("inner", sum(sum(x, {1}), {0, 2}));       // axes 0, 1 and 3
  graph.output("mixed", mean(mean(x, {2}, true), {3}));  // axis 2 stays, of size 1
  graph.output("both", sum(mean(x, {0}), {0}));          // not of one kind
  const Graph absorbed = graph::absorb(graph);
  EXPECT_EQ(count(absorbed, "mean") + count(absorbed, "sum"), 7u) << graph::to_text(absorbed);
  std::vector<float> values(120);
  std::iota(values.begin(), values.end(), 1.0f);
  const Bindings inputs{{"x", Tensor::from<float>(values, {2, 3, 4, 5})}};
  Program plain(graph, std::make_shared<State>()), program(absorbed, std::make_shared<State>());
  const auto expected = plain.run(inputs), found = program.run(inputs);
  for (const char* name : {"mean", "kept", "inner", "mixed", "both"}) {
    EXPECT_TRUE(found.output(name).shape() == expected.output(name).shape()) << name;
    EXPECT_EQ(found.output(name).to_vector<double>(), expected.output(name).to_vector<double>()) << name;
  }
}

TEST(VirtualExpansions, AreReadAsTheyWereByElementwiseOperations) {
  Graph graph;
  const Value x = graph.input("x", {2, 3, 4}), mean = graph.input("mean", {3, 1});
  const Value repeated = expand(expand(mean, {3, 4}), {2, 3, 4});
  graph.output("y", x * repeated);
  graph.output("only", exp(repeated));  // nothing else says how large it is
  graph.output("gradient", relu(repeated + x) - repeated);
  const Graph read = graph::read_through_expansions(graph);
  EXPECT_EQ(count(read, "expand"), 2u) << graph::to_text(read);  // for exp
  const Bindings inputs{{"x", Tensor::full({2, 3, 4}, 3)}, {"mean", Tensor::from<float>({1, 2, 4}, {3, 1})}};
  Program plain(graph, std::make_shared<State>()), program(read, std::make_shared<State>());
  const auto expected = plain.run(inputs), found = program.run(inputs);
  for (const char* name : {"y", "only", "gradient"}) {
    EXPECT_EQ(found.output(name).to_vector<double>(), expected.output(name).to_vector<double>()) << name;
  }
}

TEST(VirtualExpansions, OfVariablesStay) {
  Graph graph;
  const Value v = graph.variable("v", {DType::f32, {1}}, zeros());
  graph.output("y", graph.input("x", {4}) + expand(v, {4}));
  EXPECT_EQ(count(graph::read_through_expansions(graph), "expand"), 1u);
}

TEST(Specialize, InfersEveryTypeForThem) {
  Graph graph;
  graph.output("y", flatten(graph.input("x", {8, 3, 4})));
  const Graph other = graph::specialize(graph, {{"x", {DType::f32, {2, 5, 4}}}});
  EXPECT_EQ(other.type(other.outputs()[0].value).shape, (Shape{2, 20}));
}

TEST(Specialize, NamesTheInput) {
  Graph graph;
  graph.output("y", -graph.input("x", {8}));
  EXPECT_THROW(graph::specialize(graph, {}), Error);
  EXPECT_THROW(graph::specialize(graph, {{"x", {DType::f64, {8}}}}), Error);
  EXPECT_THROW(graph::specialize(graph, {{"x", {DType::f32, {8}}}, {"z", {DType::f32, {8}}}}), Error);
}

TEST(ForInference, DropsWhatOnlyTrainingNeeds) {
  Graph graph;
  const Value x = graph.input("x", {4, 2, 3, 3});
  const Value counter = graph.variable("counter", {DType::i64, {}}, zeros());
  const TensorType channels{DType::f32, {2}};
  const Value weight = graph.variable("w", channels, zeros()), bias = graph.variable("b", channels, zeros());
  const Value mean = graph.variable("m", channels, zeros()), variance = graph.variable("v", channels, zeros());
  graph.output("y", batch_norm(dropout(x, counter, 0.5, 1), weight, bias, mean, variance));
  const Graph inference = graph::for_inference(graph);
  EXPECT_EQ(count(inference, "dropout"), 0u);
  for (const graph::Node* node : inference.all(NodeKind::operation)) EXPECT_TRUE(node->op->mutates.empty());
  EXPECT_EQ(inference.find(NodeKind::variable, "counter"), nullptr);
}

TEST(Verify, FindsAReadAfterAnUpdate) {
  Graph graph;
  const Value x = graph.input("x", {2});
  const Value counter = graph.variable("counter", {DType::i64, {}}, zeros());
  graph.output("y", dropout(x, counter, 0.5, 1));
  graph.output("count", cast(counter, DType::f32));
  try {
    graph::verify(graph);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bug);
    EXPECT_NE(std::string(error.what()).find("variable \"counter\" is read after it was updated"), std::string::npos) << error.what();
  }
}

TEST(Print, WritesTextAndDot) {
  Graph graph;
  graph.output("y", clamp(graph.input("x", {2, 3}), 0, 1));
  EXPECT_EQ(graph::to_text(graph),
            "%0 = input \"x\" : f32 2x3\n"
            "%1 = clamp(%0) {min=0 max=1} : f32 2x3\n"
            "output \"y\" = %1\n");
  EXPECT_NE(graph::to_dot(graph).find("n0 -> n1 [label=\"f32 2x3\"]"), std::string::npos);
}

TEST(Graph, NamesMistakesAsTheyAreMade) {
  Graph graph, other;
  const Value x = graph.input("x", {2});
  EXPECT_THROW(graph.input("x", {3}), Error);
  EXPECT_THROW(x + other.input("z", {2}), Error);
  EXPECT_THROW(graph.output_value("nothing"), Error);
  EXPECT_THROW(dropout(x, graph.constant(Tensor::zeros({}, DType::i64)), 0.5, 1), Error) << "only variables are updated in place";
}

}  // namespace
}  // namespace frit
