#include <gtest/gtest.h>

#include "frit/frit.h"
#include "ops/elementwise/evaluation.h"

// What people write who come from PyTorch, as they write it.

namespace frit {
namespace {

Tensor counted(const Shape& shape, DType dtype = DType::f64) {
  std::vector<double> numbers(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
  return Tensor::from(numbers, shape).to(dtype);
}

std::vector<double> output_of(const std::function<Value(Value)>& function, const Tensor& x) {
  return evaluate([&](const Values& v) { return function(v[0]); }, {x}).output;
}

template <class Left, class Right>
concept Divisible = requires(Left left, Right right) {
  left / right;
};
template <class Name>
concept NamesScope = requires(Graph& graph, Name name) {
  Scope(graph, name);
};

TEST(Snippets, OneIntegerIsADims) {
  Graph graph;
  const Scope scope(graph);
  Value x = graph.input("x", {2, 3, 8, 8});
  x = nn::conv2d(scope / "conv", x, {.out_channels = 16, .kernel_size = 3, .stride = 1, .padding = 1});
  EXPECT_EQ(x.shape(), (Shape{2, 16, 8, 8}));
  x = nn::group_norm(scope / "norm", x, 8);
  EXPECT_EQ(x.shape(), (Shape{2, 16, 8, 8}));
  EXPECT_EQ(max_pool2d(x, 2).shape(), (Shape{2, 16, 4, 4}));
  EXPECT_EQ(max_pool2d(x, {3, 2}).shape(), (Shape{2, 16, 3, 3})) << "kernel_size 3, stride 2";
  EXPECT_EQ(max_pool2d(x, Dims{4, 2}).shape(), (Shape{2, 16, 2, 4}));
  EXPECT_EQ(avg_pool2d(x, 4).shape(), (Shape{2, 16, 2, 2}));
  EXPECT_EQ(max_pool2d(x, {.kernel_size = 3, .stride = 2, .padding = 1}).shape(), (Shape{2, 16, 4, 4}));
  EXPECT_EQ(nn::linear(scope / "head", mean(x, {2, 3}), 10).shape(), (Shape{2, 10}));
  EXPECT_EQ(sum(x, 1).shape(), (Shape{2, 8, 8}));
  EXPECT_EQ(sum(x, -1, /*keep_dims=*/true).shape(), (Shape{2, 16, 8, 1}));
  EXPECT_EQ(mean(x, 0).shape(), (Shape{16, 8, 8}));
  EXPECT_EQ(logsumexp(x, 1).shape(), (Shape{2, 8, 8}));
  EXPECT_EQ(reshape(x, -1).shape(), (Shape{2048}));
  const Value volume = graph.input("volume", {1, 2, 4, 4, 4});
  EXPECT_EQ(max_pool3d(volume, 2).shape(), (Shape{1, 2, 2, 2, 2}));
  EXPECT_EQ(avg_pool3d(volume, 4).shape(), (Shape{1, 2, 1, 1, 1}));
}

TEST(Snippets, OneIntegerGivesTheNumbersOfAList) {
  const Tensor x = counted({2, 3});
  EXPECT_EQ(output_of([](Value v) { return sum(v, 1); }, x), (std::vector<double>{3, 12}));
  EXPECT_EQ(output_of([](Value v) { return sum(v, 0); }, x), (std::vector<double>{3, 5, 7}));
  EXPECT_EQ(output_of([](Value v) { return max(v, 1); }, x), (std::vector<double>{2, 5}));
  EXPECT_EQ(output_of([](Value v) { return min(v, 0, /*keep_dims=*/true); }, x), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(output_of([](Value v) { return max_pool2d(v, 2); }, counted({1, 1, 2, 4})), (std::vector<double>{5, 7}));
}

TEST(Snippets, FieldsStandInPyTorchsOrder) {
  Graph graph;
  const Scope scope(graph);
  const Value x = graph.input("x", {1, 4, 5, 5});
  const Value y = nn::conv2d(scope / "conv", x,
                             {.out_channels = 8, .kernel_size = 3, .stride = 2, .padding = 2, .dilation = 2, .groups = 2, .bias = false});
  EXPECT_EQ(y.shape(), (Shape{1, 8, 3, 3}));
  const Value z = nn::conv_transpose2d(
      scope / "up", x, {.out_channels = 4, .kernel_size = 3, .stride = 2, .padding = 1, .output_padding = 1, .groups = 2, .bias = false});
  EXPECT_EQ(z.shape(), (Shape{1, 4, 10, 10}));
  const Value pooled = max_pool2d(x, {.kernel_size = 2, .stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true});
  EXPECT_EQ(pooled.shape(), (Shape{1, 4, 3, 3}));
}

TEST(Snippets, JoinsAList) {
  const Tensor x = counted({2, 1}), y = Tensor::full({2, 2}, 7, DType::f64);
  const Evaluation joined = evaluate([](const Values& v) { return concatenate({v[0], v[1]}, 1); }, {x, y});
  EXPECT_EQ(joined.output, (std::vector<double>{0, 7, 7, 1, 7, 7}));
}

TEST(Snippets, AssignsWithAnOperator) {
  const auto function = [](Value x) {
    const Value before = x;  // another handle
    x += before;             // 2x
    x *= 3;                  // 6x
    x -= 2.0;
    x /= before + 1;
    x += 1;
    x *= before;
    x -= before;
    x /= 2;
    return x;
  };
  const auto expected = [](double x) { return (((6 * x - 2) / (x + 1) + 1) * x - x) / 2; };
  EXPECT_EQ(output_of(function, counted({4})), (std::vector<double>{expected(0), expected(1), expected(2), expected(3)}));
}

TEST(Snippets, ComparesElements) {
  const Tensor x = Tensor::from<double>({-1, 0, 1, nan}, 4);
  using Results = std::vector<double>;
  EXPECT_EQ(output_of([](Value v) { return v > 0; }, x), (Results{0, 0, 1, 0}));
  EXPECT_EQ(output_of([](Value v) { return v >= 0.0; }, x), (Results{0, 1, 1, 0}));
  EXPECT_EQ(output_of([](Value v) { return v < 0; }, x), (Results{1, 0, 0, 0}));
  EXPECT_EQ(output_of([](Value v) { return v <= 0; }, x), (Results{1, 1, 0, 0}));
  EXPECT_EQ(output_of([](Value v) { return 0 > v; }, x), (Results{1, 0, 0, 0}));
  EXPECT_EQ(output_of([](Value v) { return 0 >= v; }, x), (Results{1, 1, 0, 0}));
  EXPECT_EQ(output_of([](Value v) { return 0 < v; }, x), (Results{0, 0, 1, 0}));
  EXPECT_EQ(output_of([](Value v) { return 0 <= v; }, x), (Results{0, 1, 1, 0}));
  EXPECT_EQ(output_of([](Value v) { return v < v * v; }, x), (Results{1, 0, 0, 0}));
  EXPECT_EQ(output_of([](Value v) { return v <= v * v; }, x), (Results{1, 1, 1, 0}));
  EXPECT_EQ(output_of([](Value v) { return v > v * v; }, x), (Results{0, 0, 0, 0}));
  EXPECT_EQ(output_of([](Value v) { return v >= v * v; }, x), (Results{0, 1, 1, 0}));
  EXPECT_EQ(output_of([](Value v) { return equal(v, 1); }, x), (Results{0, 0, 1, 0}));
  EXPECT_EQ(output_of([](Value v) { return not_equal(v, 1); }, x), (Results{1, 1, 0, 1}));
  EXPECT_EQ(output_of([](Value v) { return where(v > 0, v, -v); }, Tensor::from<double>({-2, 3}, 2)), (Results{2, 3}));
  Graph graph;
  const Value v = graph.input("v", {2});
  static_assert(std::same_as<decltype(v == v), bool>, "handles, not elements");
}

TEST(Snippets, ANumberMustBeOneOfTheDtype) {
  Graph graph;
  const Value labels = graph.input("labels", {2, 3}, DType::i32);
  EXPECT_EQ((labels > 2).dtype(), DType::u8);
  EXPECT_EQ(message_of([&] { greater(labels, 0.5); }), "the number 0.5 cannot be an operand of an i32 value");
}

TEST(Snippets, AnIndexDropsItsAxis) {
  const Tensor x = counted({2, 3, 2});
  EXPECT_EQ(output_of([](Value v) { return v[1]; }, x), (std::vector<double>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(output_of([](Value v) { return v[-1][0]; }, x), (std::vector<double>{6, 7}));
  EXPECT_EQ(output_of([](Value v) { return v[0][2][1]; }, x), (std::vector<double>{5}));
  EXPECT_EQ(output_of([](Value v) { return select(v, 1, 1); }, x), (std::vector<double>{2, 3, 8, 9}));
  EXPECT_EQ(output_of([](Value v) { return select(v, -1, -2); }, x), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  const Evaluation squared = evaluate([](const Values& v) { return v[0][1] * v[0][1]; }, {counted({3, 2})});
  EXPECT_EQ(squared.gradients[0], (std::vector<double>{0, 0, 4, 6, 0, 0}));

  Graph graph;
  const Value v = graph.input("v", {2, 3});
  EXPECT_EQ(v[0].shape(), (Shape{3}));
  EXPECT_EQ(v[0][0].shape(), Shape{});
  EXPECT_EQ(message_of([&] { v[2]; }), "select: index 2 is outside [-2, 2) of axis 0 of 2x3");
  EXPECT_EQ(message_of([&] { v[-3]; }), "select: index -3 is outside [-2, 2) of axis 0 of 2x3");
  EXPECT_EQ(message_of([&] { v[0][0][0]; }), "select: axis 0 is outside [0, 0)");
}

/// Whatever the sizes of the other axes were when the graph was made.
TEST(Snippets, AnIndexHoldsForEveryBatch) {
  Graph graph;
  const Value x = graph.input("x", {1, 2, 2}, DType::f64);
  graph.output("y", select(x, 1, 1));
  Program program(std::move(graph), std::make_shared<State>());
  EXPECT_EQ(program.run({{"x", counted({3, 2, 2})}}).output("y").to_vector<double>(), (std::vector<double>{2, 3, 6, 7, 10, 11}));
}

TEST(Snippets, SizesHaveNames) {
  Graph graph;
  const Value x = graph.input("x", {2, 3, 5, 7});
  const auto [n, c, h, w] = x.shape().as<4>();
  EXPECT_EQ(n, 2);
  EXPECT_EQ(c, 3);
  EXPECT_EQ(h, 5);
  EXPECT_EQ(w, 7);
  EXPECT_EQ(message_of([&] { x.shape().as<3>(); }), "expected a shape of rank 3, got 2x3x5x7");
}

TEST(Snippets, LayersHaveNumbers) {
  Graph graph;
  const Scope scope(graph, "features");
  for (int i = 0; i < 2; ++i) EXPECT_EQ((scope / i).name(), concat("features.", i));
  EXPECT_EQ((scope / 0 / "conv").name(), "features.0.conv");
  EXPECT_EQ((scope / std::size_t{12}).name(), "features.12");
  static_assert(Divisible<Scope, int> && !Divisible<Scope, char> && !Divisible<Scope, std::nullptr_t> && !NamesScope<std::nullptr_t> &&
                !NamesScope<int> && NamesScope<const char*>);
}

TEST(Snippets, AScopeIsReusedWhereItSaysSo) {
  Graph graph;
  const Scope scope(graph, "net");
  const Value a = graph.input("a", {2, 3}), b = graph.input("b", {2, 3});
  const Value left = nn::linear(scope / "tower", a, 4);
  EXPECT_EQ(message_of([&] { nn::linear(scope / "tower", b, 4); }),
            "the graph has an input or variable named \"net.tower.weight\" already");
  const Value right = nn::linear(scope.reuse() / "tower", b, 4);
  EXPECT_EQ(graph.all(graph::NodeKind::variable).size(), 2u);
  graph.output("left", left);
  graph.output("right", right);
  EXPECT_EQ(message_of([&] { nn::linear(scope.reuse() / "head", b, 4); }), "\"net.head.weight\" is to be reused, but nothing has made it");
  EXPECT_EQ(message_of([&] { nn::linear((scope / "tower").reuse(), b, 5); }),
            "\"net.tower.weight\" is to be reused as parameter f32 5x3, but was made as parameter f32 4x3");
  EXPECT_EQ(message_of([&] { scope.reuse().buffer("tower.bias", 4, init::zeros()); }),
            "\"net.tower.bias\" is to be reused as buffer f32 4, but was made as parameter f32 4");
  Program program(std::move(graph), std::make_shared<State>());
  const Tensor x = counted({2, 3}, DType::f32);
  const graph::Executable& run = program.run({{"a", x}, {"b", x}});
  EXPECT_EQ(run.output("left").to_vector<double>(), run.output("right").to_vector<double>());
}

TEST(Snippets, NormsGoWithoutParameters) {
  Graph graph;
  const Scope scope(graph, "", DType::f64);
  const Value x = graph.input("x", {2, 4, 3, 3}, DType::f64);
  graph.output("group", nn::group_norm(scope / 0, x, {.num_groups = 2, .affine = false}));
  graph.output("layer", nn::layer_norm(scope / 1, x, {.normalized_rank = 2, .affine = false}));
  graph.output("instance", nn::instance_norm(scope / 2, x, {.affine = false}));
  graph.output("batch", nn::batch_norm(scope / 3, x, {.affine = false}));
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) EXPECT_FALSE(node->trainable) << node->name;
  EXPECT_EQ(graph.all(graph::NodeKind::variable).size(), 2u) << "running statistics";

  // What the same norms give whose weights are one and biases zero.
  graph.output("group1", nn::group_norm(scope / 4, x, 2));
  graph.output("layer1", nn::layer_norm(scope / 5, x, 2));
  graph.output("instance1", nn::instance_norm(scope / 6, x));
  graph.output("batch1", nn::batch_norm(scope / 7, x));
  EXPECT_EQ(graph.all(graph::NodeKind::variable).size(), 12u);
  Program program(std::move(graph), std::make_shared<State>());
  const graph::Executable& run = program.run({{"x", counted({2, 4, 3, 3})}});
  for (const char* norm : {"group", "layer", "instance", "batch"}) {
    EXPECT_EQ(run.output(norm).to_vector<double>(), run.output(concat(norm, 1)).to_vector<double>()) << norm;
  }
}

/// As heads over the levels of a pyramid, and Siamese networks have them. Numbers: torch.nn.BatchNorm1d and SGD in float64.
TEST(Snippets, OneNormServesTwoInputs) {
  Graph graph;
  const Scope scope(graph, "", DType::f64);
  const Shape shape{3, 2, 2};
  const Value a = graph.input("a", shape, DType::f64), b = graph.input("b", shape, DType::f64);
  const Value left = nn::batch_norm(scope / "norm", a, {.momentum = 0.25});
  const Value right = nn::batch_norm((scope / "norm").reuse(), b, {.momentum = 0.25});
  const Value loss = mean(square(left - 1)) + mean(power(right * 2, 3));
  TrainStep step(loss, Sgd{.learning_rate = 0.1}, Device::cpu());
  const Tensor x = counted(shape);
  std::vector<double> squares = x.to_vector<double>();
  for (double& value : squares) value = value * value / 10;
  const Bindings batch = {{"a", x}, {"b", Tensor::from(squares, shape)}};
  EXPECT_NEAR(step(batch), 5.849819401959706, 1e-12);
  EXPECT_NEAR(step(batch), -8.935174393862347, 1e-12);
  const auto expect = [](const Tensor& actual, const std::vector<double>& expected) {
    const std::vector<double> found = actual.to_vector<double>();
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
  };
  expect(step.state().at("norm.weight"), {0.7937769817898997, 1.3706158119350333});
  expect(step.state().at("norm.bias"), {-2.408025662384997, -2.5441899341959138});
  expect(step.state().at("norm.running_mean"), {2.535807291666667, 3.981119791666667});  // first of a, then of b
  expect(step.state().at("norm.running_var"), {8.615885416666666, 13.119010416666665});

  graph.output("y", left + right);
  Program inference(graph::for_inference(graph), step.shared_state());
  expect(inference.run(batch).output("y"),
         {-6.187547287710256, -5.890078792333636, -7.193198721379763, -6.625580546689445, -4.673162220338375, -4.159353001051486,
          -4.468631482866236, -3.598283615007749, -2.293414257325419, -1.5632643141282618, -0.5331454716800317, 0.6399320893466254});
}

/// Both uses count: they draw different masks.
TEST(Snippets, OneDropoutServesTwoInputs) {
  Graph graph;
  const Scope scope(graph);
  const Value x = graph.input("x", 64);
  const Value left = nn::dropout(scope / "drop", x), right = nn::dropout((scope / "drop").reuse(), x);
  const Value w = scope.parameter("w", {}, init::ones());
  graph.output("left", left);
  graph.output("right", right);
  TrainStep step(mean(left * right) * w, Sgd{}, Device::cpu());
  step({{"x", Tensor::full(64, 1)}});
  EXPECT_EQ(step.state().at("drop.counter").item(), 2);
  EXPECT_NE(step.output("left").to_vector<float>(), step.output("right").to_vector<float>());
}

/// Attention's heads, a token for each image, and twice the size: one graph for every batch and size.
TEST(Snippets, SizesFollowTheInput) {
  Graph graph;
  const Value x = graph.input("x", {2, 4, 3, 3}, DType::f64), token = graph.input("token", {1, 1, 2}, DType::f64);
  const Value heads = reshape(x, {size_of(x, 0), 2, size_of(x, 1) / 2, -1});
  EXPECT_EQ(heads.shape(), (Shape{2, 2, 2, 9}));
  graph.output("heads", heads);
  graph.output("tokens", expand(token, {size_of(x, 0), -1, -1}));
  const Value apart = reshape(x, {size_of(x, 0), size_of(x, 1), size_of(x, 2), 1, size_of(x, 3), 1});
  const Value repeated = expand(apart, {-1, -1, -1, 2, -1, 2});
  graph.output("larger", reshape(repeated, {size_of(x, 0), size_of(x, 1), size_of(x, 2) * 2, size_of(x, 3) * 2}));
  Program program(graph, std::make_shared<State>());
  const Bindings inputs = {{"x", counted({3, 4, 1, 2})}, {"token", counted({1, 1, 2})}};
  const graph::Executable& run = program.run(inputs);
  EXPECT_EQ(run.output("heads").shape(), (Shape{3, 2, 2, 2}));
  EXPECT_EQ(run.output("heads").to_vector<double>(), counted({24}).to_vector<double>());
  EXPECT_EQ(run.output("tokens").shape(), (Shape{3, 1, 2}));
  EXPECT_EQ(run.output("tokens").to_vector<double>(), (std::vector<double>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(run.output("larger").shape(), (Shape{3, 4, 2, 4}));
  const std::vector<double> larger = run.output("larger").to_vector<double>();
  EXPECT_EQ((std::vector<double>(larger.begin(), larger.begin() + 8)), (std::vector<double>{0, 0, 1, 1, 0, 0, 1, 1}));

  EXPECT_EQ(message_of([&] { reshape(x, {size_of(x, 2) / 2, -1}); }), "reshape_to_sizes: size 0 is 3 * 1 / 2, which is no whole number");
  EXPECT_EQ(message_of([&] { reshape(x, {size_of(x, 1) / 0, -1}); }), "reshape_to_sizes: size 0 is 4 * 1 / 0, which is no whole number");
  EXPECT_EQ(message_of([&] { size_of(x, 4); }), "size_of: axis 4 is outside [-4, 4)");
  EXPECT_EQ(message_of([&] { expand(x, {size_of(token, 2), 5, 3, 3}); }), "expand_to_sizes: shape 2x4x3x3 does not expand to 2x5x3x3");
}

/// The gradient is of the sizes that run.
TEST(Snippets, SizesFollowTheInputInTraining) {
  Graph graph;
  const Scope scope(graph, "", DType::f64);
  const Value x = graph.input("x", {2, 3}, DType::f64), w = scope.parameter("w", {1, 1}, init::ones());
  const Value rows = expand(w, {size_of(x, 0), size_of(x, 1)});
  TrainStep step(mean(reshape(x * rows, {size_of(x, 0), -1})), Sgd{.learning_rate = 1}, Device::cpu());
  EXPECT_EQ(step({{"x", Tensor::full({4, 5}, 3, DType::f64)}}), 3);
  EXPECT_NEAR(step.state().at("w").item(), -2, 1e-14);  // 1 - 3
}

TEST(Snippets, ATrainingGraphAsksForNoTargetAtInference) {
  Graph graph;
  const Value x = graph.input("x", {2, 2}), target = graph.input("target", {2, 1});
  const Value y = nn::linear(Scope(graph, "line"), x, 1);
  const Value loss = mean_squared_error(y, target);
  graph.output("y", y);
  TrainStep step(loss, Sgd{}, Device::cpu());
  EXPECT_EQ(message_of([&] { step({{"x", Tensor::zeros({2, 2})}}); }), "input \"target\" (f32 2x1) was not given");
  Program program(graph::for_inference(graph), step.shared_state());
  EXPECT_EQ(program.run({{"x", Tensor::zeros({3, 2})}}).output("y").shape(), (Shape{3, 1}));
  EXPECT_EQ(message_of([&] { program.run({{"target", Tensor::zeros({3, 1})}}); }), "input \"x\" (f32 2x2) was not given");
  EXPECT_EQ(program.run({{"x", Tensor::zeros({3, 2})}, {"target", Tensor::zeros({3, 1})}}).output("y").shape(), (Shape{3, 1}));
}

}  // namespace
}  // namespace frit
