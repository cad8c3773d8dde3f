#include "frit/ops/random/dropout.h"

#include "frit/core/random.h"
#include "frit/core/thread_pool.h"
#include "frit/ops/operator/run.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

ops::Attributes attributes(double probability, std::int64_t seed = 1) {
  return ops::registry().find("dropout").attributes_from_json(concat("{\"probability\": ", probability, ", \"seed\": ", seed, "}"));
}

Tensor counter(std::int64_t value = 0) { return Tensor::from<std::int64_t>({value}, {}); }

std::vector<double> mask(double probability, std::int64_t seed, std::int64_t count, std::int64_t elements = 1000) {
  return ops::run("dropout", {Tensor::full({elements}, 1), counter(count)}, attributes(probability, seed))[1].to_vector<double>();
}

TEST(Dropout, ZeroesTheAskedShareAndScalesTheRest) {
  const std::int64_t count = 1'000'003;
  for (const double probability : {0.1, 0.5, 0.9}) {
    const std::vector<Tensor> results = ops::run("dropout", {Tensor::full({count}, 2, DType::f64), counter()}, attributes(probability));
    const std::vector<double> y = results[0].to_vector<double>(), kept = results[1].to_vector<double>();
    double share = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y[i], kept[i] == 0 ? 0 : 2 * (1 / (1 - probability)));
      share += kept[i];
    }
    const double deviation = std::sqrt(probability * (1 - probability) / static_cast<double>(count));
    EXPECT_NEAR(share / static_cast<double>(count), 1 - probability, 5 * deviation) << probability;
  }
}

TEST(Dropout, TheMaskIsPhiloxOfSeedCounterAndElement) {
  constexpr std::int64_t count = (std::int64_t{1} << 40) + 7;
  const std::vector<double> kept = mask(0.25, -3, count, 1003);
  for (std::uint64_t i = 0; i < 1003; ++i) {
    const std::uint32_t word = philox(static_cast<std::uint64_t>(-3), count, i / 4)[i % 4];
    EXPECT_EQ(kept[i], word >= 0x40000000u ? 1 : 0) << "element " << i;
  }
}

TEST(Dropout, TheMaskIsTheSameForAnyNumberOfThreads) {
  const int threads = thread_count();
  set_thread_count(1);
  const std::vector<double> expected = mask(0.5, 1, 0, 100'003);
  for (const int count : {2, 3, 8}) {
    set_thread_count(count);
    EXPECT_EQ(mask(0.5, 1, 0, 100'003), expected) << count << " threads";
  }
  set_thread_count(threads);
}

TEST(Dropout, EveryRunAdvancesTheCounter) {
  const Tensor steps = counter(41), x = Tensor::full({1000}, 1);
  const std::vector<double> first = ops::run("dropout", {x, steps}, attributes(0.5))[1].to_vector<double>();
  EXPECT_EQ(steps.item(), 42);
  const std::vector<double> second = ops::run("dropout", {x, steps}, attributes(0.5))[1].to_vector<double>();
  EXPECT_EQ(steps.item(), 43);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, mask(0.5, 1, 41));
  EXPECT_EQ(second, mask(0.5, 1, 42));
  EXPECT_NE(first, mask(0.5, 2, 41)) << "another seed";
}

TEST(Dropout, TheGradientHasTheMaskOfTheRun) {
  const auto function = [](const Values& v) {
    const auto zero = [](const Tensor& variable, std::uint64_t) { variable.fill(0); };
    return dropout(v[0], Graph::of(v[0]).variable("steps", {DType::i64, {}}, zero), 0.75, 5);
  };
  const Evaluation found = evaluate(function, {Tensor::full({500}, 1, DType::f64)});
  EXPECT_EQ(found.gradients[0], found.output);
  EXPECT_TRUE(std::find(found.output.begin(), found.output.end(), 4.0) != found.output.end());
  EXPECT_TRUE(std::find(found.output.begin(), found.output.end(), 0.0) != found.output.end());
}

TEST(Dropout, ProbabilityZeroIsTheIdentityAndOneGivesZeros) {
  const Tensor x = Tensor::from<double>({1, -2, inf, nan, 0.1}, {5});
  EXPECT_TRUE(equal_numbers(ops::run("dropout", {x, counter()}, attributes(0))[0].to_vector<double>(), x.to_vector<double>()));
  const std::vector<Tensor> nothing = ops::run("dropout", {x, counter()}, attributes(1));
  EXPECT_TRUE(equal_numbers(nothing[0].to_vector<double>(), {0, 0, 0, 0, 0}));
  const ops::Attributes one = ops::registry().find("dropout_backward").attributes_from_json("{\"probability\": 1}");
  EXPECT_TRUE(equal_numbers(ops::run("dropout_backward", {x, nothing[1]}, one)[0].to_vector<double>(), {0, 0, 0, 0, 0}));
}

TEST(Dropout, IsNothingWhenNothingIsTrained) {
  Graph graph;
  const Values inputs{graph.input("x", {3}), graph.variable("steps", {DType::i64, {}}, [](const Tensor&, std::uint64_t) {})};
  EXPECT_EQ(ops::registry().find("dropout").at_inference(graph, inputs, attributes(0.5))[0], inputs[0]);
}

TEST(Dropout, RefusesBadCalls) {
  Graph graph;
  const Value x = graph.input("x", {3});
  const auto variable = [&](const char* name, const TensorType& type) {
    return graph.variable(name, type, [](const Tensor&, std::uint64_t) {});
  };
  const Value steps = variable("steps", {DType::i64, {}});
  EXPECT_EQ(message_of([&] { dropout(x, steps, 1.5, 0); }), "dropout: probability must be from 0 to 1, got 1.5");
  EXPECT_EQ(message_of([&] { dropout(x, steps, nan, 0); }), "dropout: probability must be from 0 to 1, got nan");
  EXPECT_EQ(message_of([&] {
              dropout(x, variable("f", {DType::f32, {2, 3}}), 0.5, 0);
            }),
            "dropout: counter must be i64 scalar, got f32 2x3");
  const ops::Attributes half = ops::registry().find("dropout_backward").attributes_from_json("{\"probability\": 0.5}");
  EXPECT_EQ(message_of([&] { ops::emit_one("dropout_backward", {x, x}, half); }), "dropout_backward: mask must be u8, got f32 3");
}

}  // namespace
}  // namespace frit
