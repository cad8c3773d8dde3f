#include "frit/ops/shape/shape_ops.h"

#include "frit/autograd/gradient_check.h"
#include "frit/core/cuda/device.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

const Tensor six = Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3});

std::vector<double> output_of(const std::function<Value(Value)>& function, const Tensor& x = six) {
  return evaluate([&](const Values& v) { return function(v[0]); }, {x}).output;
}

std::vector<double> gradient_of(const std::function<Value(Value)>& function, const Tensor& x = six) {
  return evaluate([&](const Values& v) { return function(v[0]); }, {x}).gradients[0];
}

TEST(Permute, MovesAxes) {
  EXPECT_EQ(output_of([](Value x) { return permute(x, {1, 0}); }), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(output_of([](Value x) { return transpose(x, 0, -1); }), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  EXPECT_EQ(message_of([&] { permute(x, {0}); }), "permute: expected 2 axes, got 1 (input 2x3)");
  EXPECT_EQ(message_of([&] { permute(x, {0, -2}); }), "permute: axis 0 is named twice");
  EXPECT_EQ(message_of([&] { permute(x, {0, 2}); }), "permute: axis 2 is outside [-2, 2)");
  EXPECT_EQ(message_of([&] { transpose(x, 0, 2); }), "transpose: axis 2 is outside [-2, 2)");
}

TEST(Slice, ClipsItsBoundsAsPythonDoes) {
  const auto cut = [](std::int64_t begin, std::int64_t end, std::int64_t step = 1) {
    return [=](Value x) { return slice(x, 1, begin, end, step); };
  };
  EXPECT_EQ(output_of(cut(1, INT64_MAX)), (std::vector<double>{2, 3, 5, 6}));
  EXPECT_EQ(output_of(cut(-1, 100)), (std::vector<double>{3, 6}));
  EXPECT_EQ(output_of(cut(INT64_MIN, -1)), (std::vector<double>{1, 2, 4, 5}));
  EXPECT_EQ(output_of(cut(0, 3, 2)), (std::vector<double>{1, 3, 4, 6}));
  EXPECT_EQ(output_of(cut(1, 3, INT64_MAX)), (std::vector<double>{2, 5}));
  EXPECT_EQ(output_of(cut(2, 1)), std::vector<double>{});
  EXPECT_EQ(gradient_of(cut(0, 3, 2)), (std::vector<double>{1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(gradient_of(cut(1, 2)), (std::vector<double>{0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(gradient_of(cut(3, 3)), (std::vector<double>{0, 0, 0, 0, 0, 0}));
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  EXPECT_EQ(message_of([&] { slice(x, 1, 0, 3, 0); }), "slice: step must be positive, got 0");
  EXPECT_EQ(message_of([&] { slice(x, 2, 0, 3); }), "slice: axis 2 is outside [-2, 2)");
}

TEST(Concatenate, JoinsAlongOneAxis) {
  const Tensor column = Tensor::from<double>({7, 8}, {2, 1});
  const Evaluation result = evaluate([](const Values& v) { return concatenate(v, -1) * concatenate(v, -1); }, {six, column});
  EXPECT_EQ(result.output, (std::vector<double>{1, 4, 9, 49, 16, 25, 36, 64}));
  EXPECT_EQ(result.gradients[0], (std::vector<double>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(result.gradients[1], (std::vector<double>{14, 16}));
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  EXPECT_EQ(message_of([&] {
              concatenate(std::array{x, graph.input("a", {3, 3})}, 1);
            }),
            "concatenate: input 1 is f32 3x3, which does not join f32 2x3 along axis 1");
  EXPECT_EQ(message_of([&] {
              concatenate(std::array{x, graph.input("b", {2})}, 1);
            }),
            "concatenate: input 1 is f32 2, which does not join f32 2x3 along axis 1");
  EXPECT_EQ(message_of([&] {
              concatenate(std::array{x, x, graph.input("c", {2, 3}, DType::f64)}, 1);
            }),
            "concatenate: input 2 is f64 2x3, which does not join f32 2x3 along axis 1");
  EXPECT_EQ(message_of([&] { concatenate({}, 0); }), "concatenate: no inputs were given");
}

TEST(Pad, SurroundsWithAConstant) {
  const auto padded = [](Value x) { return pad(x, {1, 0}, {0, 1}, 9); };
  EXPECT_EQ(output_of(padded), (std::vector<double>{9, 9, 9, 9, 1, 2, 3, 9, 4, 5, 6, 9}));
  EXPECT_EQ(gradient_of(padded), (std::vector<double>{1, 1, 1, 1, 1, 1}));
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  EXPECT_EQ(message_of([&] { pad(x, {1}, {0, 1}); }), "pad: expected 2 sizes before and after, got 1 and 2 (input 2x3)");
  EXPECT_EQ(message_of([&] { pad(x, {0, -1}, {0, 1}); }), "pad: axis 1 has a negative size: -1 before, 1 after");
  EXPECT_EQ(message_of([&] { pad(x, {INT64_MAX, 0}, {0, 0}); }), "pad: axis 0 would be longer than 2^63 - 1");
}

TEST(Pad, RepeatsWhatLiesInside) {
  const auto reflected = [](Value x) { return pad(x, {1, 2}, {0, 1}, PaddingMode::reflect); };
  EXPECT_EQ(output_of(reflected), (std::vector<double>{6, 5, 4, 5, 6, 5, 3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5}));
  EXPECT_EQ(gradient_of(reflected), (std::vector<double>{1, 3, 2, 2, 6, 4}));
  const auto replicated = [](Value x) { return pad(x, {0, 1}, {1, 2}, PaddingMode::replicate); };
  EXPECT_EQ(output_of(replicated), (std::vector<double>{1, 1, 2, 3, 3, 3, 4, 4, 5, 6, 6, 6, 4, 4, 5, 6, 6, 6}));
  EXPECT_EQ(gradient_of(replicated), (std::vector<double>{2, 1, 3, 4, 2, 6}));
  const auto wrapped = [](Value x) { return pad(x, {0, 2}, {2, 3}, PaddingMode::circular); };
  EXPECT_EQ(output_of(wrapped),
            (std::vector<double>{2, 3, 1, 2, 3, 1, 2, 3, 5, 6, 4, 5, 6, 4, 5, 6, 2, 3, 1, 2, 3, 1, 2, 3, 5, 6, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(gradient_of(wrapped), (std::vector<double>{4, 6, 6, 4, 6, 6}));
}

TEST(Expand, RepeatsAxesOfSizeOne) {
  const Tensor column = Tensor::from<double>({7, 8}, {2, 1});
  const auto expanded = [](Value x) { return expand(x, {2, -1, 3}); };
  EXPECT_EQ(output_of(expanded, column), (std::vector<double>{7, 7, 7, 8, 8, 8, 7, 7, 7, 8, 8, 8}));
  EXPECT_EQ(gradient_of(expanded, column), (std::vector<double>{6, 6}));
  Graph graph;
  const Value x = graph.input("x", {2, 1});
  EXPECT_EQ(expand(x, {2, 1}), x);
  EXPECT_EQ(expand(x, {2, 0}).shape(), (Shape{2, 0}));
  EXPECT_EQ(message_of([&] { expand(x, {3, 1}); }), "expand: shape 2x1 does not expand to 3x1");
  EXPECT_EQ(message_of([&] { expand(x, {2}); }), "expand: shape 2x1 does not expand to 2");
  EXPECT_EQ(message_of([&] { expand(x, {-1, 2, 1}); }), "expand: shape 2x1 does not expand to -1x2x1");
}

TEST(ShapeOperators, MoveEveryDtype) {
  for (const DType dtype : all_dtypes) {
    const Tensor x = six.to(dtype);
    EXPECT_EQ(output_of(
                  [](Value v) {
                    return pad(slice(permute(v, {1, 0}), 0, 0, 3, 2), {0, 1}, {0, 0}, 9);
                  },
                  x),
              (std::vector<double>{9, 1, 4, 9, 3, 6}))
        << dtype;
    EXPECT_EQ(output_of(
                  [](Value v) {
                    return concatenate(std::array{reshape(v, {3, 2}), expand(slice(reshape(v, {6, 1}), 0, 0, 3), {3, 2})}, 1);
                  },
                  x),
              (std::vector<double>{1, 2, 1, 1, 3, 4, 2, 2, 5, 6, 3, 3}))
        << dtype;
  }
}

// The gradient of each is made of the others.
TEST(ShapeOperators, AreDifferentiableTwice) {
  Graph graph;
  const Value x = graph.input("x", {2, 3}, DType::f64);
  const Value moved =
      concatenate(std::array{pad(permute(x, {1, 0}), {1, 0}, {0, 2}), expand(slice(reshape(x, {6, 1}), 0, 1, 6, 3), {2, 4})}, 0);
  const Value loss = sum(moved * moved * moved);
  graph.output("gradient", gradient(loss, std::span(&x, 1))[0]);
  for (const GradientCheckResult& result : check_gradients(graph, {{"x", six}}, std::make_shared<State>())) {
    EXPECT_TRUE(result.passed()) << result.first_failure;
  }
}

TEST(Concatenate, TakesMorePartsThanALaunchHoldsOnCudaToo) {
  constexpr int count = 150;
  for (const Device device : {Device::cpu(), Device{DeviceKind::cuda, 0}}) {
    if (device.kind == DeviceKind::cuda && cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    Graph graph;
    Values parts;
    Bindings bindings;
    std::vector<double> row;
    for (int i = 0; i < count; ++i) {
      const Shape shape{2, 1 + i % 3};
      parts.push_back(graph.input(concat(i), shape));
      bindings[concat(i)] = Tensor::full(shape, i);
      row.insert(row.end(), static_cast<std::size_t>(shape[1]), i);
    }
    graph.output("y", concatenate(parts, 1));
    Program program(std::move(graph), std::make_shared<State>(device));
    std::vector<double> expected = row;
    expected.insert(expected.end(), row.begin(), row.end());
    EXPECT_EQ(program.run(bindings).output("y").to(Device::cpu()).to_vector<double>(), expected) << device;
  }
}

}  // namespace
}  // namespace frit
