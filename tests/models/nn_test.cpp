// Initialisers, and what layers do besides what their golden cases show.

#include "frit/models/nn.h"

#include "frit/autograd/train_step.h"
#include "frit/graph/program.h"
#include "frit/models/nn_attention.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/operator/emitter.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

std::vector<double> drawn(const Initializer& initialize, const Shape& shape, DType dtype = DType::f64) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  initialize(tensor, 7);
  return tensor.to_vector<double>();
}

struct Moments {
  double mean = 0, deviation = 0, largest = 0;

  explicit Moments(const std::vector<double>& numbers) {
    for (const double x : numbers) mean += x / static_cast<double>(numbers.size());
    for (const double x : numbers) deviation += (x - mean) * (x - mean) / static_cast<double>(numbers.size());
    deviation = std::sqrt(deviation);
    for (const double x : numbers) largest = std::max(largest, std::abs(x));
  }
};

TEST(Initializers, HaveTheDeviationOfTheirFormula) {
  const Shape weight{40, 20, 5, 5};  // fan-in 500, fan-out 1000
  const struct {
    Initializer initialize;
    double deviation;
    bool uniform;
  } cases[] = {{init::kaiming_uniform(), std::sqrt(2.0 / 500), true},
               {init::kaiming_normal(), std::sqrt(2.0 / 500), false},
               {init::kaiming_uniform(1, init::Fan::out), std::sqrt(1.0 / 1000), true},
               {init::xavier_uniform(), std::sqrt(2.0 / 1500), true},
               {init::xavier_normal(3), 3 * std::sqrt(2.0 / 1500), false}};
  for (const auto& c : cases) {
    const Moments moments(drawn(c.initialize, weight));
    EXPECT_NEAR(moments.mean, 0, 0.05 * c.deviation);
    EXPECT_NEAR(moments.deviation, c.deviation, 0.02 * c.deviation);
    EXPECT_EQ(moments.largest <= c.deviation * std::sqrt(3.0), c.uniform);
  }
  EXPECT_EQ(message_of([] { drawn(init::xavier_normal(), {3}); }),
            "an initialiser by fan-in or fan-out needs a weight of rank 2 or more, got 3");
}

TEST(Initializers, TruncatedNormalStaysInside) {
  const Moments moments(drawn(init::truncated_normal(0, 0.02, -0.02, 0.02), {200, 50}, DType::f32));
  EXPECT_LE(moments.largest, 0.0200001);
  EXPECT_NEAR(moments.mean, 0, 5e-4);
  EXPECT_NEAR(moments.deviation, 0.02 * 0.5396, 5e-4);  // of a normal distribution cut at one deviation
  EXPECT_EQ(message_of([] { init::truncated_normal(0, 1, 3, 4); }),
            "truncated_normal: [3, 4] must reach within 2 deviations of the mean and be 0.1 of one long, got mean 0 and deviation 1");
}

TEST(Initializers, OrthogonalRowsOrColumns) {
  for (const Shape& shape : {Shape{5, 3, 2}, Shape{9, 2, 2}, Shape{4, 4}, Shape{1, 3}}) {
    const std::vector<double> q = drawn(init::orthogonal(2), shape);
    const auto rows = static_cast<std::size_t>(shape[0]), columns = q.size() / rows;
    const bool by_row = rows <= columns;
    const auto at = [&](std::size_t vector, std::size_t i) { return by_row ? q[vector * columns + i] : q[i * columns + vector]; };
    for (std::size_t a = 0; a < std::min(rows, columns); ++a) {
      for (std::size_t b = 0; b <= a; ++b) {
        double product = 0;
        for (std::size_t i = 0; i < std::max(rows, columns); ++i) product += at(a, i) * at(b, i);
        EXPECT_NEAR(product, a == b ? 4 : 0, 1e-13);
      }
    }
  }
  EXPECT_EQ(message_of([] { drawn(init::orthogonal(), {3}); }), "orthogonal: a weight of rank 2 or more is needed, got 3");
}

TEST(Layers, TakeInitializers) {
  Graph graph;
  const Scope scope(graph);
  const Value x = graph.input("x", {1, 4, 6, 6});
  const Initializer two = init::constant(2), three = init::constant(3);
  nn::conv2d(scope / "conv", x, {.out_channels = 2, .kernel_size = {3}, .initialize_weight = two, .initialize_bias = three});
  nn::linear(scope / "linear", x, {.out_features = 2, .initialize_weight = two, .initialize_bias = three});
  nn::group_norm(scope / "norm", x, {.num_groups = 2, .initialize_weight = two, .initialize_bias = three});
  State state;
  state.prepare(graph);
  for (const char* layer : {"conv", "linear", "norm"}) {
    for (const double number : state.at(concat(layer, ".weight")).to_vector<double>()) EXPECT_EQ(number, 2);
    for (const double number : state.at(concat(layer, ".bias")).to_vector<double>()) EXPECT_EQ(number, 3);
  }
}

TEST(Layers, DropPathDropsWholeSamples) {
  Graph graph;
  const Value x = graph.input("x", {64, 3, 2}, DType::f32);
  graph.output("y", nn::drop_path(Scope(graph, "path"), x, 0.25));
  Program program(std::move(graph), std::make_shared<State>());
  const std::vector<double> y = program.run({{"x", Tensor::full({64, 3, 2}, 3)}}).output("y").to_vector<double>();
  int kept = 0;
  for (std::size_t sample = 0; sample < 64; ++sample) {
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(y[sample * 6 + i], y[sample * 6]);
    EXPECT_TRUE(y[sample * 6] == 0 || y[sample * 6] == 4);
    kept += y[sample * 6] != 0 ? 1 : 0;
  }
  EXPECT_GT(kept, 36);
  EXPECT_LT(kept, 60);
}

/// Of the first of each sequence's tokens, after some steps.
double loss_of_a_small_transformer(DType precision) {
  Graph graph;
  const Scope scope(graph);
  const Value tokens = graph.input("tokens", {16, 6}, DType::i64), target = graph.input("target", {16}, DType::i64);
  Value x = nn::embedding(scope / "tokens", tokens, {.num_embeddings = 4, .embedding_dim = 16});
  const Value places = tokens.emitter().constant(Tensor::from<std::int64_t>({0, 1, 2, 3, 4, 5}, {6}));
  x = x + nn::embedding(scope / "places", places, {.num_embeddings = 6, .embedding_dim = 16});
  const Value attended = nn::multi_head_attention(scope / "attention", x, {.num_heads = 4, .dropout = 0.05});
  x = x + nn::drop_path(scope / "path", nn::prelu(scope / "prelu", attended), 0.05);
  const Value logits = nn::linear(scope / "head", mean(x, {1}), {.out_features = 4, .initialize_weight = init::xavier_uniform()});
  TrainStep step(cross_entropy(logits, target, {.ignore_index = 9, .label_smoothing = 0.05}), AdamW{.learning_rate = 0.01}, {},
                 {.precision = precision});
  std::vector<std::int64_t> sequences, first;
  for (std::int64_t i = 0; i < 96; ++i) sequences.push_back((i * 7 + i / 6 * 5 + i * i / 11) % 4);
  for (std::size_t i = 0; i < 16; ++i) first.push_back(i == 3 ? 9 : sequences[i * 6]);
  double loss = 0;
  for (int i = 0; i < 150; ++i) loss = step({{"tokens", Tensor::from(sequences, {16, 6})}, {"target", Tensor::from(first, {16})}});
  return loss;
}

TEST(Layers, ASmallTransformerLearns) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    const double loss = loss_of_a_small_transformer(precision);
    EXPECT_LT(loss, 0.5) << precision;  // from 1.4; the smoothing leaves 0.23
    EXPECT_GT(loss, 0.2) << precision;
  }
}

TEST(Layers, RefuseWhatDoesNotFit) {
  Graph graph;
  const Value x = graph.input("x", {1, 4, 6, 6}), tokens = graph.input("tokens", {2, 3, 4});
  const Scope scope(graph, "layer");
  EXPECT_EQ(message_of([&] { nn::conv2d(scope / "a", x, {.out_channels = 2, .kernel_size = {3}, .stride = {2}, .same_padding = true}); }),
            "layer.a: same_padding needs stride 1 and no padding, got stride 2 and padding 0");
  EXPECT_EQ(
      message_of([&] {
        nn::conv2d(scope / "b", x, {.out_channels = 2, .kernel_size = {3}, .padding = {1, 1, 1}, .padding_mode = PaddingMode::reflect});
      }),
      "layer.b: padding has 3 numbers, expected 1 or 2");
  EXPECT_EQ(message_of([&] { nn::conv_transpose2d(scope / "c", x, {.out_channels = 2, .kernel_size = {3}, .same_padding = true}); }),
            "layer.c: a transposed convolution has no same_padding and no padding_mode but zeros");
  EXPECT_EQ(message_of([&] { nn::multi_head_attention(scope / "d", tokens, {.num_heads = 3}); }),
            "layer.d: num_heads 3 does not divide 4 channels");
  EXPECT_EQ(message_of([&] { nn::multi_head_attention(scope / "e", x, {.num_heads = 2}); }),
            "layer.e: query, key and value must be (N, length, 6), got 1x4x6x6");
  EXPECT_EQ(message_of([&] { nn::prelu(scope / "f", x, 3); }), "prelu: weight must have shape 1 or 4, got 3 (input 1x4x6x6)");
}

}  // namespace
}  // namespace frit
