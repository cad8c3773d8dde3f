#include <gtest/gtest.h>

#include <functional>
#include <numbers>
#include <optional>

#include "frit/core/random.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"
#include "graph/graph_checks.h"

namespace frit {
namespace {

struct Chain {
  Graph graph;
  Value x = graph.input("x", {2, 4, 3, 5, 5});
  Value m = graph.variable("m", {DType::f32, {4, 1, 1, 1}}, zeros(), true);
};

TEST(Fusion, FindsTheChainWhoeverWroteIt) {
  Chain c;
  c.graph.output("y", max(c.m * clamp(instance_norm(c.m * c.x), -0.5, 2.0), /*axis=*/1));  // operands swapped
  const Graph fused = graph::fuse(c.graph);
  EXPECT_EQ(operations(fused), 1u) << graph::to_text(fused);
  EXPECT_EQ(count(fused, "scale_instance_norm_clamp_scale_max"), 1u);
}

TEST(Fusion, LeavesAChainWhoseInsideIsReadElsewhere) {
  Chain c;
  const Value normalized = instance_norm(c.x * c.m);
  c.graph.output("y", max(clamp(normalized, -1, 1) * c.m, /*axis=*/1));
  c.graph.output("normalized", normalized);
  EXPECT_EQ(count(graph::fuse(c.graph), "scale_instance_norm_clamp_scale_max"), 0u);
}

TEST(Fusion, LeavesAChainThatComputesSomethingElse) {
  Chain over_space;
  over_space.graph.output("y", max(clamp(instance_norm(over_space.x * over_space.m), -1, 1) * over_space.m, /*axis=*/2));
  EXPECT_EQ(operations(graph::fuse(over_space.graph)), operations(over_space.graph)) << "the maximum is not over channels";

  Graph graph;
  const Value x = graph.input("x", {2, 4, 3, 3, 3});
  const Value y = logsumexp(x, {1}, true);
  const Value bias = graph.input("bias", {1, 1, 1, 1});
  graph.output("y", clamp(y * sigmoid(y + 2.0) / 6.0 - bias, -1, 1));  // not + 3
  EXPECT_EQ(operations(graph::fuse(graph)), operations(graph));
}

Value hard_swish_of(Value x) { return hard_sigmoid(x) * x; }
Value gelu_of(Value x) { return 0.5 * ((1.0 + erf(x / 1.4142135623730951)) * x); }

/// A graph of one function, and what fusion makes of it.
Graph spelled(const std::function<Value(Value)>& function) {
  Graph graph;
  graph.output("y", function(graph.input("x", {2, 3, 14, 14}, DType::f64)));
  return graph;
}

TEST(Fusion, FindsFunctionsThatAreSpelledOut) {
  const std::pair<const char*, std::function<Value(Value)>> functions[] = {
      {"silu", [](Value x) { return x * sigmoid(x); }},
      {"silu", [](Value x) { return sigmoid(x) * x; }},
      {"mish", [](Value x) { return x * tanh(softplus(x)); }},
      {"hard_swish", hard_swish_of},
      {"gelu", gelu_of},
  };
  for (const auto& [name, spelling] : functions) {
    const Graph graph = spelled([&function = spelling](Value x) { return function(x * 2.0); }), fused = graph::fuse(graph);
    EXPECT_EQ(operations(fused), 2u) << graph::to_text(fused);
    EXPECT_EQ(count(fused, name), 1u) << graph::to_text(fused);
    expect_equal_results(graph, fused);
  }
}

/// As PyTorch's exporters, and people's modules, spell it.
TEST(Fusion, FindsGeluInEachOfItsSpellings) {
  const double root = 1.4142135623730951, scale = 0.7978845608028654;  // sqrt(2), sqrt(2 / pi)
  const std::pair<const char*, std::function<Value(Value)>> functions[] = {
      {"none", [=](Value x) { return x * 0.5 * (1.0 + erf(x / root)); }},
      {"none", [=](Value x) { return x * (0.5 * (1.0 + erf(x * 0.7071067811865475))); }},
      {"tanh", [=](Value x) { return 0.5 * (x * (1.0 + tanh(scale * (x + 0.044715 * (x * (x * x)))))); }},
      {"tanh", [=](Value x) { return 0.5 * (x * (tanh(scale * (x + 0.044715 * power(x, 3.0))) + 1.0)); }},
      {"tanh", [=](Value x) { return 0.5 * x * (1.0 + tanh(x * scale * (1.0 + 0.044715 * x * x))); }},
      {"tanh", [=](Value x) { return x * (tanh((x + x * x * (x * 0.044715)) * scale) + 1.0) * 0.5; }},
      {"tanh", [=](Value x) { return x * (0.5 * (tanh(std::nextafter(scale, 1) * (x + 0.044715 * x * x * x)) + 1.0)); }},
  };
  for (const auto& [form, spelling] : functions) {
    const Graph graph = spelled([&function = spelling](Value x) { return function(x * 2.0); }), fused = graph::fuse(graph);
    ASSERT_EQ(operations(fused), 2u) << graph::to_text(fused);
    EXPECT_EQ(fused.producer(fused.outputs()[0].value).attributes.text(), concat("approximate=", form));
    expect_equal_results(graph, fused);
  }
  const auto other = [=](double factor, double exponent) {
    return [=](Value x) { return 0.5 * x * (1.0 + tanh(factor * (x + 0.044715 * power(x, exponent)))); };
  };
  for (const auto& function : {other(0.7978846, 3), other(scale, 2)}) {
    const Graph graph = spelled(function);
    EXPECT_EQ(graph::to_text(graph::fuse(graph)), graph::to_text(graph));
  }
}

/// Channels normalised as people's modules spell it, with a number for each channel to multiply by and one to add, in some shape.
Graph normalised_channels(const std::function<Value(Value, Value)>& quotient, const Shape& parameters, double eps = 1e-6) {
  Graph graph;
  const auto varied = [](const Tensor& tensor, std::uint64_t seed) { fill_normal(tensor, 1, 0.5, seed, 0); };
  const Value x = graph.input("x", {2, 3, 14, 14}, DType::f64) * graph.variable("scale", {DType::f64, {3, 1, 1}}, varied, true);
  const Value centred = x - mean(x, 1, true), variance = mean(square(centred), 1, true);
  const auto variable = [&](const char* name) { return graph.variable(name, {DType::f64, parameters}, varied, true); };
  graph.output("y", quotient(centred, variance + eps) * variable("weight") + variable("bias"));
  return graph;
}

TEST(Fusion, FindsLayerNormsOfChannels) {
  const std::function<Value(Value, Value)> quotients[] = {[](Value x, Value v) { return x / sqrt(v); },
                                                          [](Value x, Value v) { return x * rsqrt(v); }};
  for (const auto& quotient : quotients) {
    for (const Shape& shape : {Shape{3, 1, 1}, Shape{1, 3, 1, 1}}) {
      const Graph graph = normalised_channels(quotient, shape), fused = graph::fuse(graph);
      EXPECT_EQ(count(fused, "layer_norm"), 1u) << graph::to_text(fused);
      EXPECT_EQ(count(fused, "mean"), 0u);
      expect_equal_results(graph, fused);
      const Graph halves = graph::remove_dead_code(graph::lower_precision(normalised_channels(quotient, shape), DType::f16));
      EXPECT_EQ(count(halves, "layer_norm"), 1u) << graph::to_text(halves);
    }
    EXPECT_EQ(count(graph::fuse(normalised_channels(quotient, {3, 1, 1}, 0.1)), "layer_norm"), 0u);
    for (const Shape& shape : {Shape{14, 1}, Shape{}}) {  // are no numbers for channels: what follows the quotient stays as it is
      const Graph graph = normalised_channels(quotient, shape), fused = graph::fuse(graph);
      EXPECT_EQ(count(fused, "layer_norm"), 1u);
      EXPECT_EQ(count(fused, "add"), 1u) << graph::to_text(fused);
      expect_equal_results(graph, fused);
    }
  }
}

/// Of a weight as files have it, and of one that they transpose; the bias on either side.
TEST(Fusion, FindsLinearLayers) {
  const auto product = [](bool transposes) {
    return [=](Value x) {
      const Value weight = Graph::of(x).variable("w", {DType::f64, transposes ? Shape{5, 14} : Shape{14, 5}}, filled(0.5), true);
      return matmul(x * 2.0, transposes ? transpose(weight, 0, 1) : weight);
    };
  };
  const auto bias = [](Value x, Shape shape) { return Graph::of(x).variable("b", {DType::f64, shape}, filled(0.25), true); };
  for (const bool transposes : {false, true}) {
    for (const bool swaps : {false, true}) {
      const auto layer = [&](Value x) {
        const Value y = product(transposes)(x), b = bias(x, {5});
        return swaps ? b + y : y + b;
      };
      const Graph graph = spelled(layer), fused = graph::fuse(graph);
      EXPECT_EQ(count(fused, "linear"), 1u) << graph::to_text(fused);
      EXPECT_EQ(count(fused, "matmul") + count(fused, "add"), 0u) << graph::to_text(fused);
      expect_equal_results(graph, fused);
    }
  }
  // No bias; one number for all; no weight that all images have.
  const std::function<Value(Value)> others[] = {
      [&](Value x) {
        return product(false)(x) + bias(x, {14, 5});
      },
      [&](Value x) { return product(false)(x) + bias(x, {1}); },
      [&](Value x) { return matmul(x, transpose(x, 2, 3)) + bias(x, {14}); },
  };
  for (const auto& other : others) {
    const Graph graph = spelled(other);
    EXPECT_EQ(count(graph::fuse(graph), "linear"), 0u);
  }
}

TEST(Fusion, LeavesWhatIsNotQuiteSuchAFunction) {
  const auto read_twice = [](Value x) {
    const Value gate = sigmoid(x);
    return x * gate + gate;
  };
  const auto other_gelu = [](double root, double one, double half) { return [=](Value x) { return x * (erf(x / root) + one) * half; }; };
  const double root = 1.4142135623730951;
  const std::function<Value(Value)> functions[] = {
      read_twice,
      [](Value x) { return x * sigmoid(x + 1.0); },
      [](Value x) {
        return x * sigmoid(mean(x, {2, 3}, true));
      },
      [](Value x) { return x * tanh(softplus(x, 2)); },
      [](Value x) { return x * tanh(softplus(x, 1, 10)); },
      [](Value x) { return x * clamp(x * 0.2 + 0.5, 0, 1); },
      other_gelu(1.5, 1, 0.5),
      other_gelu(root, 2, 0.5),
      other_gelu(root, 1, 1),
      [](Value x) { return x * (erf(x * 2.0 / 1.4142135623730951) + 1.0) * 0.5; },
  };
  for (const auto& function : functions) {
    const Graph graph = spelled(function);
    EXPECT_EQ(graph::to_text(graph::fuse(graph)), graph::to_text(graph));
  }
  Graph shown;
  const Value x = shown.input("x", {4}), gate = sigmoid(x);
  shown.output("y", x * gate);
  shown.output("gate", gate);
  EXPECT_EQ(graph::to_text(graph::fuse(shown)), graph::to_text(shown)) << "the gate is a result";
}

/// As PyTorch exports a group norm, of an input (2, 6, 4, 7).
struct SpelledNorm {
  Shape grouped = {2, 3, -1}, back = {2, 6, 4, 7}, numbers = {6, 1, 1};
  bool affine = true;
  double eps = 0.1;

  Graph graph() const {
    Graph graph;
    const auto random = [](const Tensor& tensor, std::uint64_t seed) { fill_normal(tensor, 1, 1, seed, 0); };
    Value y = reshape(instance_norm(reshape(graph.input("x", {2, 6, 4, 7}), grouped), {}, {}, eps), back);
    if (affine) y = y * graph.variable("w", {DType::f32, numbers}, random, true) + graph.variable("b", {DType::f32, numbers}, random, true);
    graph.output("y", relu(y));
    return graph;
  }
};

TEST(Fusion, FindsGroupNormsThatAreSpelledAsInstanceNorms) {
  for (const Shape& grouped : {Shape{2, 3, -1}, Shape{2, 3, 56}, Shape{-1, 3, 56}}) {
    const Graph fused = graph::fuse(SpelledNorm{.grouped = grouped, .affine = false}.graph());
    ASSERT_EQ(operations(fused), 2u) << graph::to_text(fused);
    const graph::Node* norm = fused.all(NodeKind::operation)[0];
    EXPECT_EQ(norm->op->name, "group_norm");
    EXPECT_EQ(norm->attributes.text(), "num_groups=3 eps=0.1");
  }
}

TEST(Fusion, LeavesWhatIsNotQuiteAGroupNorm) {
  const SpelledNorm others[] = {{.grouped = {2, 4, -1}},                       // channels are not divisible
                                {.grouped = {3, 2, -1}},                       // groups of both samples
                                {.grouped = {2, 3, 4, -1}},                    // more axes
                                {.back = {2, 4, 6, 7}, .numbers = {4, 1, 1}},  // not the input's shape
                                {.back = {2, 6, 7, 4}}};
  for (const SpelledNorm& other : others) {
    const Graph graph = other.graph();
    EXPECT_EQ(graph::to_text(graph::fuse(graph)), graph::to_text(graph));
  }
  Graph graph;
  const Value x = graph.input("x", {2, 6, 4, 7}), ones = graph.constant(Tensor::full({3}, 1));
  graph.output("affine", reshape(instance_norm(reshape(x, {2, 3, 56}), ones, ones), x.shape()));
  graph.output("permuted", reshape(instance_norm(reshape(transpose(x, 0, 1), {2, 3, 56})), x.shape()));
  const Value normal = instance_norm(reshape(x, {2, 2, 84}));
  graph.output("read twice", reshape(normal, x.shape()));
  graph.output("inside", normal);
  EXPECT_EQ(count(graph::fuse(graph), "group_norm"), 0u);
}

TEST(Fusion, SaysWhatWasFusedAndWhatStoodInTheWay) {
  const auto attempts_of = [](const Graph& graph) {
    std::vector<graph::FusionAttempt> attempts;
    const Graph fused = graph::fuse(graph, attempts);
    EXPECT_EQ(graph::to_text(fused), graph::to_text(graph::fuse(graph)));
    return attempts;
  };
  Chain whole;
  whole.graph.output("y", max(clamp(instance_norm(whole.x * whole.m), -1, 1) * whole.m, /*axis=*/1));
  const auto fused = attempts_of(whole.graph);
  ASSERT_EQ(fused.size(), 1u);
  EXPECT_EQ(fused[0].op->name, "scale_instance_norm_clamp_scale_max");
  EXPECT_EQ(fused[0].obstacle, "");
  EXPECT_EQ(fused[0].matched.size(), fused[0].operations);

  Chain read_twice;
  const Value normalized = instance_norm(read_twice.x * read_twice.m);
  read_twice.graph.output("y", max(clamp(normalized, -1, 1) * read_twice.m, /*axis=*/1));
  read_twice.graph.output("normalized", normalized);
  const auto shared = attempts_of(read_twice.graph);
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0].blocker, read_twice.graph.producer_index(normalized.id()));
  EXPECT_EQ(shared[0].obstacle, concat("its result %", normalized.id(), " is needed elsewhere too"));

  Chain another;
  const Value bent = relu(another.x * another.m);
  another.graph.output("y", max(clamp(bent, -1, 1) * another.m, /*axis=*/1));
  const auto blocked = attempts_of(another.graph);
  ASSERT_EQ(blocked.size(), 1u);
  EXPECT_EQ(blocked[0].blocker, another.graph.producer_index(bent.id()));
  EXPECT_EQ(blocked[0].obstacle, "expected instance_norm");
  EXPECT_EQ(blocked[0].matched.size(), 3u) << "maximum, product, clamp";

  Graph graph;
  const Value y = logsumexp(graph.input("x", {2, 4, 3, 3, 3}), {1}, true);
  const Value shifted = y + 2.0;  // not + 3
  graph.output("y", clamp(y * sigmoid(shifted) / 6.0 - graph.input("bias", {1, 1, 1, 1}), -1, 1));
  const auto constant = attempts_of(graph);
  ASSERT_EQ(constant.size(), 1u);
  EXPECT_EQ(graph.nodes()[static_cast<std::size_t>(constant[0].blocker)].kind, NodeKind::constant);
  EXPECT_EQ(constant[0].obstacle, "expected the constant f32 scalar {3}");
}

TEST(Fusion, TakesNormPoolChainsOfAnyClamp) {
  Graph graph;
  const Value x = graph.input("x", {2, 6, 9, 8});
  const TensorType channels{DType::f32, {6}};
  const Value weight = graph.variable("w", channels, zeros()), bias = graph.variable("b", channels, zeros());
  const Value scale = graph.variable("s", {DType::f32, {6, 1, 1}}, zeros());
  graph.output("y", clamp(max_pool2d(group_norm(x, 3, weight, bias) * scale, {.kernel_size = {2}}), std::nullopt, 0.25));
  const Graph fused = graph::fuse(graph);
  EXPECT_EQ(count(fused, "group_norm_scale_max_pool_clamp"), 1u) << graph::to_text(fused);
  EXPECT_EQ(operations(fused), 1u);
}

}  // namespace
}  // namespace frit
