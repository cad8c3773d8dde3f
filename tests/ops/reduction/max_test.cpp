#include "frit/ops/operator/run.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

using ops::AxisReductionAttributes;

/// Along a contiguous line, and down the middle column of three.
void expect_choice(const char* op, const std::vector<double>& line, double value, std::int64_t index) {
  const auto count = static_cast<std::int64_t>(line.size());
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Tensor contiguous = Tensor::from(line, {count}).to(dtype);
    const Tensor columns = Tensor::full({count, 3}, 0, dtype);
    copy(columns.slice(1, 1, 2), contiguous.reshape({count, 1}));
    const std::vector<Tensor> of_line = ops::run(op, {contiguous}, AxisReductionAttributes{0, false});
    const std::vector<Tensor> of_columns = ops::run(op, {columns}, AxisReductionAttributes{0, false});
    EXPECT_TRUE(equal_numbers({of_line[0].item(), of_columns[0].to_vector<double>()[1]}, {value, value})) << op << ' ' << contiguous;
    EXPECT_EQ(of_line[1].to_vector<std::int64_t>()[0], index) << op << ' ' << contiguous;
    EXPECT_EQ(of_columns[1].to_vector<std::int64_t>()[1], index) << op << ' ' << contiguous;
  }
}

TEST(Max, TakesTheFirstOfEqualsAndTheFirstNaN) {
  expect_choice("max", {1, 3, 3, 2, 3}, 3, 1);
  expect_choice("max", {1, nan, 3, nan}, nan, 1);
  expect_choice("max", {nan, inf}, nan, 0);
  expect_choice("max", {-inf, -inf}, -inf, 0);
  expect_choice("max", {-inf, nan}, nan, 1);
  expect_choice("max", {-0.0, 0}, 0, 0);
  expect_choice("max", {0, -0.0}, 0, 0);
  expect_choice("max", {7}, 7, 0);
  expect_choice("min", {3, 1, 1, 2}, 1, 1);
  expect_choice("min", {3, nan, 1, nan}, nan, 1);
  expect_choice("min", {inf, inf}, inf, 0);
  expect_choice("min", {0, -0.0}, 0, 0);
}

TEST(Max, KeepsTheSignOfTheZeroItTook) {
  for (const bool negative_first : {false, true}) {
    const Tensor x = Tensor::from<double>({negative_first ? -0.0 : 0.0, negative_first ? 0.0 : -0.0}, {2});
    EXPECT_EQ(std::signbit(ops::run("max", {x}, AxisReductionAttributes{})[0].item()), negative_first);
    EXPECT_EQ(std::signbit(ops::run("min", {x}, AxisReductionAttributes{})[0].item()), negative_first);
    std::vector<double> line(128, -1);
    line[40] = negative_first ? -0.0 : 0.0;
    line[72] = negative_first ? 0.0 : -0.0;
    EXPECT_EQ(std::signbit(ops::run("max", {Tensor::from(line, {128})}, AxisReductionAttributes{})[0].item()), negative_first);
  }
}

// Around the widths of lanes, and in lines that are cut into segments.
TEST(Max, FindsItsPlaceAnywhere) {
  for (const std::int64_t count : {1, 2, 63, 64, 65, 130, 200'003}) {
    for (const std::int64_t place : {std::int64_t{0}, count / 3, count / 2, count - 1}) {
      std::vector<double> line(static_cast<std::size_t>(count), 1);
      expect_choice("max", line, 1, 0);
      line[static_cast<std::size_t>(place)] = 2;
      line.back() = 2;
      expect_choice("max", line, 2, place);
      line[static_cast<std::size_t>(place)] = nan;
      line.back() = nan;
      expect_choice("max", line, nan, place);
      line.assign(line.size(), -inf);
      expect_choice("max", line, -inf, 0);
    }
  }
}

TEST(Max, GivesTheWholeGradientToTheElementItTook) {
  const auto gradient_of = [](const std::vector<double>& line) {
    const Tensor x = Tensor::from(line, {static_cast<std::int64_t>(line.size())});
    return evaluate([](const Values& v) { return max(v[0], 0); }, {x}, 4).gradients[0];
  };
  EXPECT_TRUE(equal_numbers(gradient_of({1, 3, 3, 2, 3}), {0, 4, 0, 0, 0}));
  EXPECT_TRUE(equal_numbers(gradient_of({1, nan, 3, nan}), {0, 4, 0, 0}));
  EXPECT_TRUE(equal_numbers(gradient_of({-inf, -inf}), {4, 0}));
  EXPECT_TRUE(equal_numbers(gradient_of({-0.0, 0}), {4, 0}));
  const Tensor table = Tensor::from<double>({1, 5, 2, 5, 0, 2}, {2, 3});
  EXPECT_TRUE(equal_numbers(evaluate([](const Values& v) { return min(v[0], 0, true); }, {table}).gradients[0], {1, 0, 1, 0, 1, 0}));
}

TEST(Max, TakesIntegers) {
  const Tensor words = Tensor::from<std::int64_t>({INT64_MIN, INT64_MIN, 5, INT64_MAX, INT64_MAX, 5}, {2, 3});
  const std::vector<Tensor> greatest = ops::run("max", {words}, AxisReductionAttributes{1, false});
  EXPECT_EQ(greatest[0].to_vector<std::int64_t>(), (std::vector<std::int64_t>{5, INT64_MAX}));
  EXPECT_EQ(greatest[1].to_vector<std::int64_t>(), (std::vector<std::int64_t>{2, 0}));
  const std::vector<Tensor> least = ops::run("min", {words}, AxisReductionAttributes{0, false});
  EXPECT_EQ(least[1].to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 0, 0}));
  const Tensor bytes = Tensor::from<std::uint8_t>({3, 255, 255, 0}, {4});
  EXPECT_EQ(ops::run("argmax", {bytes}, AxisReductionAttributes{})[0].item(), 1);
}

TEST(Argmax, FollowsMax) {
  const Tensor x = Tensor::from<double>({1, 3, 3, nan, 2, nan}, {2, 3});
  EXPECT_EQ(ops::run("argmax", {x}, AxisReductionAttributes{1, false})[0].to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(ops::run("argmax", {x}, AxisReductionAttributes{0, true})[0].to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 0, 1}));
}

TEST(Max, IsTheOperatorThatTheAxesAskFor) {
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  const auto name = [&](Value value) { return graph.producer(value.id()).op->name; };
  EXPECT_EQ(name(max(x, Dims{1})), "max");
  EXPECT_EQ(name(max(x, 1)), "max");
  EXPECT_EQ(name(min(x, -1)), "min");
  EXPECT_EQ(name(max(x)), "amax");
  EXPECT_EQ(name(min(x, {0, 1})), "amin");
}

TEST(Max, RefusesAnEmptyAxisOnly) {
  Graph graph;
  const Value x = graph.input("x", {2, 0, 3});
  EXPECT_EQ(message_of([&] { max(x, 1); }), "max: axis 1 is empty (input 2x0x3)");
  EXPECT_EQ(message_of([&] { min(x, -2); }), "min: axis 1 is empty (input 2x0x3)");
  EXPECT_EQ(message_of([&] { argmax(x, 1); }), "argmax: axis 1 is empty (input 2x0x3)");
  EXPECT_EQ(message_of([&] { max(x, 3); }), "max: axis 3 is outside [-3, 3)");
  EXPECT_EQ(max(x, 0).shape(), (Shape{0, 3}));
  EXPECT_EQ(max(x, 0, true).shape(), (Shape{1, 0, 3}));
}

}  // namespace
}  // namespace frit
