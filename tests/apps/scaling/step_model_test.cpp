#include "apps/scaling/step_model.h"

#include <gtest/gtest.h>

#include "frit/frit.h"

namespace frit::apps {
namespace {

Part work(double microseconds, std::vector<int> after = {}) { return {.microseconds = microseconds, .after = std::move(after)}; }
Part mean(std::int64_t bytes, std::vector<int> after) { return {.reduced = {{DType::u8, {bytes}}}, .after = std::move(after)}; }

/// A forward pass of 100 us, two gradients of 50 and 30 us with their means, two updates of 5 us. As graphs have it, means stand after all
/// of the gradient.
std::vector<Part> two_buckets(std::int64_t first_bytes, std::int64_t second_bytes) {
  return {work(100), work(50, {0}), work(30, {1}), mean(first_bytes, {1}), mean(second_bytes, {2, 3}), work(5, {3}), work(5, {4})};
}

StepModel step(std::vector<Part> parts, bool overlap, double microseconds, double deviation = 0) {
  return {.parts = std::move(parts), .microseconds = microseconds, .deviation = deviation, .examples = 10, .overlap = overlap};
}

void expect_spans(const std::vector<Span>& spans, const std::vector<std::pair<double, double>>& expected) {
  ASSERT_EQ(spans.size(), expected.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_DOUBLE_EQ(spans[i].begin, expected[i].first) << i;
    EXPECT_DOUBLE_EQ(spans[i].end, expected[i].second) << i;
  }
}

TEST(Timeline, WithoutCommunicationIsTheWork) {
  EXPECT_DOUBLE_EQ(end_of(timeline(two_buckets(1'000'000, 1'000'000), {}, true)), 190);
  EXPECT_DOUBLE_EQ(end_of(timeline(two_buckets(1'000'000, 1'000'000), {}, false)), 190);
  EXPECT_DOUBLE_EQ(end_of(timeline({}, {}, true)), 0);
}

TEST(Timeline, WorkHidesWhatIsReducedNextToIt) {
  // 2 us and 1 us for each 1000 bytes: the first mean takes 22 us, from 150 to 172; the second 12 us, from 180 on.
  const std::vector<Part> parts = two_buckets(20'000, 10'000);
  expect_spans(timeline(parts, {2, 1e-3}, true), {{0, 100}, {100, 150}, {150, 180}, {150, 172}, {180, 192}, {180, 185}, {192, 197}});
}

TEST(Timeline, WithoutOverlapPartsAddUp) {
  const std::vector<Part> parts = two_buckets(20'000, 10'000);
  expect_spans(timeline(parts, {2, 1e-3}, false), {{0, 100}, {100, 150}, {150, 180}, {180, 202}, {202, 214}, {214, 219}, {219, 224}});
}

TEST(Timeline, ASlowLinkIsNeverIdleOnceItHasBegun) {
  // 200 and 100 us: from 150 to 350, and to 450; an update after each.
  expect_spans(timeline(two_buckets(200'000, 100'000), {0, 1e-3}, true),
               {{0, 100}, {100, 150}, {150, 180}, {150, 350}, {350, 450}, {350, 355}, {450, 455}});
}

TEST(Timeline, OneBucketIsNotHidden) {
  const std::vector<Part> parts = {work(100), work(80, {0}), mean(50'000, {1}), work(10, {2})};
  EXPECT_DOUBLE_EQ(end_of(timeline(parts, {3, 1e-3}, true)), 100 + 80 + 53 + 10);
}

TEST(Predict, OneProcessIsWhatWasMeasured) {
  const StepModel model = step(two_buckets(1'000'000, 1'000'000), true, 200, 5);
  const Prediction one = predict(model, {.per_machine = 8, .machine = {5, 1}, .network = {20, 1}}, 1);
  EXPECT_DOUBLE_EQ(one.microseconds, 200);
  EXPECT_DOUBLE_EQ(one.efficiency(model), 1);
  EXPECT_DOUBLE_EQ(one.communication, 0);
  EXPECT_EQ(one.limit, Prediction::Limit::work);
}

TEST(Predict, SaysWhatTheTimeGoesOn) {
  // On two processes a mean takes 10 us and its bytes at 1 GB/s: 30 and 20 us, from 150 to 180 and to 200.
  const Cluster cluster{.per_machine = 2, .machine = {5, 1}, .network = {100, 0.1}};
  const StepModel model = step(two_buckets(20'000, 10'000), true, 190);
  const Prediction two = predict(model, cluster, 2);
  EXPECT_DOUBLE_EQ(two.communication, 50);
  EXPECT_DOUBLE_EQ(two.by_bytes, 5);
  EXPECT_DOUBLE_EQ(two.by_latency, 10);
  EXPECT_DOUBLE_EQ(two.microseconds, 205);
  EXPECT_DOUBLE_EQ(two.efficiency(model), 190.0 / 205);
  EXPECT_DOUBLE_EQ(two.examples_per_second(model), 20 / 205e-6);
  // On two machines 2 (5 + 100) us, and 1.5 times the bytes at 0.1 GB/s: 300 and 150 us more. From 150 to 660, and to 1020.
  const Prediction four = predict(model, cluster, 4);
  EXPECT_EQ(four.machines, 2);
  EXPECT_DOUBLE_EQ(four.by_bytes, 150 + 300 + 150 + 5 - 190);
  EXPECT_DOUBLE_EQ(four.microseconds, 150 + 510 + 360 + 5);
  EXPECT_DOUBLE_EQ(four.by_latency, 420);
  EXPECT_EQ(four.limit, Prediction::Limit::latency);
  EXPECT_EQ(predict(model, {.per_machine = 2, .machine = {5, 1}, .network = {0, 0.1}}, 4).limit, Prediction::Limit::network);
  EXPECT_EQ(predict(model, {.per_machine = 4, .machine = {0, 0.1}, .network = {}}, 4).limit, Prediction::Limit::machine);
  EXPECT_EQ(predict(model, {.per_machine = 4, .machine = {0, 1000}, .network = {}}, 4).limit, Prediction::Limit::work);
}

TEST(Predict, AllWaitForTheSlowest) {
  const StepModel model = step(two_buckets(0, 0), true, 190, 20);
  const Prediction many = predict(model, {.per_machine = 64, .machine = {0, 1}, .network = {}}, 64);
  EXPECT_DOUBLE_EQ(many.microseconds, 190 + 20 * expected_maximum(64));
  EXPECT_EQ(many.limit, Prediction::Limit::stragglers);
}

TEST(ExpectedMaximum, IsThatOfANormalDistribution) {
  // Exact: 1 / sqrt(pi); 1.42360 and 2.34373 as tables of order statistics have it.
  EXPECT_EQ(expected_maximum(1), 0);
  EXPECT_NEAR(expected_maximum(2), 0.56419, 0.03);
  EXPECT_NEAR(expected_maximum(8), 1.42360, 0.03);
  EXPECT_NEAR(expected_maximum(64), 2.34373, 0.05);
  EXPECT_GT(expected_maximum(1024), 3.1);
  EXPECT_LT(expected_maximum(1024), 3.4);
}

TEST(StepModelOf, AnExecutableHasItsMeansAndTimes) {
  Graph graph;
  const Value image = graph.input("image", {4, 3, 8, 8}), label = graph.input("class", {4}, DType::i64);
  const Scope scope(graph);
  const Value x = relu(nn::conv2d(scope / "conv", image, {.out_channels = 6, .kernel_size = {3}}));
  const Value loss = cross_entropy(nn::linear(scope / "linear", flatten(x), {.out_features = 2}), label);
  TrainStep train(loss, Sgd{}, Device::cpu(), {.communicator = Communicator::alone(Device::cpu())});
  graph::Executable& executable = train.compile({{"image", image.type()}, {"class", label.type()}});
  executable.run({{"image", Tensor::zeros({4, 3, 8, 8})}, {"class", Tensor::zeros({4}, DType::i64)}});
  const StepModel model = StepModel::of(executable, 1000, 10, 4, /*repeats=*/2);
  EXPECT_DOUBLE_EQ(model.reduced_bytes(), 4 * (6 * 3 * 9 + 6 + 6 * 6 * 6 * 2 + 2 + 1)) << "of the parameters and of the loss";
  EXPECT_NEAR(model.work(), 1000, 1e-6);
  EXPECT_FALSE(model.overlap);
  int means = 0;
  for (const Part& part : model.parts) means += part.reduces() ? 1 : 0;
  EXPECT_EQ(means, 2);
}

}  // namespace
}  // namespace frit::apps
