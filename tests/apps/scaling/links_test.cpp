#include "apps/scaling/links.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>

#include "frit/core/error.h"
#include "frit/core/random.h"
#include "frit/core/tensor.h"

namespace frit::apps {
namespace {

std::vector<double> sizes() {
  std::vector<double> bytes;
  for (double size = 4096; size <= (1 << 28); size *= 4) bytes.push_back(size);
  return bytes;
}

/// What calls take that cost 12 us and a nanosecond for 150 bytes, times 1 + noise.
std::vector<double> times(double noise) {
  const Tensor normal = Tensor::empty({static_cast<std::int64_t>(sizes().size())}, DType::f64);
  fill_normal(normal, 0, noise, /*seed=*/3, /*stream=*/1);
  std::vector<double> microseconds;
  for (const double size : sizes()) microseconds.push_back((12 + size / 150e3) * (1 + normal.data<double>()[microseconds.size()]));
  return microseconds;
}

TEST(FitCost, FindsWhatCallsCost) {
  const CallCost exact = fit_cost(sizes(), times(0));
  EXPECT_NEAR(exact.latency, 12, 1e-6);
  EXPECT_NEAR(1 / exact.per_byte, 150e3, 1e-2);
  EXPECT_LT(exact.deviation, 1e-9);
  const CallCost noisy = fit_cost(sizes(), times(0.02));
  EXPECT_NEAR(noisy.latency, 12, 0.5);
  EXPECT_NEAR(1 / noisy.per_byte, 150e3, 6e3);
  EXPECT_GT(noisy.deviation, 0.002);
  EXPECT_LT(noisy.deviation, 0.04);
}

TEST(FitCost, TakesLittleNoteOfACallThatWasDisturbed) {
  for (const std::size_t disturbed : {0UL, 4UL, 8UL}) {
    std::vector<double> measured = times(0.01);
    measured[disturbed] *= 5;
    const CallCost cost = fit_cost(sizes(), measured);
    EXPECT_NEAR(cost.latency, 12, 1) << disturbed;
    EXPECT_NEAR(1 / cost.per_byte, 150e3, 10e3) << disturbed;
    const Eigen::Index count = static_cast<Eigen::Index>(measured.size());
    Eigen::MatrixXd matrix(count, 2);
    for (Eigen::Index i = 0; i < count; ++i)
      matrix.row(i) << 1 / measured[static_cast<std::size_t>(i)],
          sizes()[static_cast<std::size_t>(i)] / measured[static_cast<std::size_t>(i)];
    const Eigen::VectorXd squares = matrix.colPivHouseholderQr().solve(Eigen::VectorXd::Ones(count));
    const auto differences = [&](double latency, double per_byte) {
      return (matrix * Eigen::Vector2d(latency, per_byte) - Eigen::VectorXd::Ones(count)).cwiseAbs().mean();
    };
    EXPECT_LE(cost.deviation, differences(squares[0], squares[1])) << "least squares are further off";
    for (const double factor : {0.99, 1.01}) {
      EXPECT_LE(cost.deviation, differences(cost.latency * factor, cost.per_byte) + 1e-4);
      EXPECT_LE(cost.deviation, differences(cost.latency, cost.per_byte * factor) + 1e-4);
    }
  }
}

TEST(FitCost, IsNeverNegative) {
  EXPECT_EQ(fit_cost({1e3, 1e6}, {0.1, 200}).latency, 0) << "more than in proportion";
  EXPECT_EQ(fit_cost({1e3, 1e6}, {5, 4}).per_byte, 0);
  EXPECT_THROW((void)fit_cost({1e3, 1e3}, {1, 2}), Error);
  EXPECT_THROW((void)fit_cost({1e3, 1e4}, {1, 0}), Error);
}

TEST(RateText, SaysWhenThereIsNone) {
  EXPECT_EQ(rate_text(281.234), "281.23 GB/s");
  EXPECT_EQ(rate_text(1 / total_cost(10, {4}, {10}).per_byte), "more GB/s than so few bytes tell");
}

TEST(TotalCost, IsWhatAllCallsTookTogether) {
  const CallCost cost = total_cost(2, {1000, 3000}, {14, 30});
  EXPECT_DOUBLE_EQ(cost.latency, 2);
  EXPECT_DOUBLE_EQ(cost.per_byte, 0.01);
  EXPECT_DOUBLE_EQ(cost.deviation, (2.0 + 2.0) / 44);
  const CallCost of_small_ones = total_cost(5, {4, 8}, {3, 4});
  EXPECT_DOUBLE_EQ(of_small_ones.latency, 3.5);
  EXPECT_DOUBLE_EQ(of_small_ones.per_byte, 0);
}

TEST(Cluster, AMeanTravelsTwiceAroundARingAndDownATree) {
  const Cluster cluster{.per_machine = 8, .machine = {5, 200}, .network = {20, 50}};
  EXPECT_EQ(cluster.machines(1), 1);
  EXPECT_EQ(cluster.machines(8), 1);
  EXPECT_EQ(cluster.machines(9), 2);
  EXPECT_EQ(cluster.all_reduce(1).of(1e9), 0);
  const auto expect = [&](int processes, double latency, double per_byte) {
    EXPECT_DOUBLE_EQ(cluster.all_reduce(processes).latency, latency) << processes;
    EXPECT_DOUBLE_EQ(cluster.all_reduce(processes).per_byte, per_byte) << processes;
  };
  expect(2, 2 * 5, 1 / 200e3);                                   // half the bytes twice, at 200 bytes a nanosecond
  expect(8, 2 * 3 * 5, 2.0 * 7 / 8 / 200e3);                     // three levels of a tree
  expect(64, 2 * (3 * 5 + 3 * 20), 2.0 * 63 / 64 / 50e3);        // eight machines
  expect(1024, 2 * (3 * 5 + 7 * 20), 2.0 * 1023 / 1024 / 50e3);  // of 128
}

TEST(Cluster, AMachineOfOneProcessHasNoLinksWithin) {
  const Cluster cluster{.per_machine = 1, .machine = {}, .network = {20, 50}};
  EXPECT_DOUBLE_EQ(cluster.all_reduce(4).latency, 2 * 2 * 20);
  EXPECT_DOUBLE_EQ(cluster.all_reduce(4).per_byte, 1.5 / 50e3);
}

TEST(LinkOf, IsWhatTheMeanTells) {
  const Cluster cluster{.per_machine = 8, .machine = {5, 200}, .network = {}};
  for (const int processes : {2, 3, 8}) {
    const Link link = link_of(cluster.all_reduce(processes), processes);
    EXPECT_DOUBLE_EQ(link.latency, 5);
    EXPECT_DOUBLE_EQ(link.bandwidth, 200);
  }
}

}  // namespace
}  // namespace frit::apps
