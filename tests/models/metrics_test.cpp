#include "frit/models/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/io/file_testing.h"

namespace frit {
namespace {

/// Logits whose largest is that of each class.
Tensor logits_of(const std::vector<std::int64_t>& predicted, std::int64_t classes) {
  const Tensor logits = Tensor::zeros({static_cast<std::int64_t>(predicted.size()), classes});
  for (std::size_t i = 0; i < predicted.size(); ++i) logits.data<float>()[static_cast<std::int64_t>(i) * classes + predicted[i]] = 2;
  return logits;
}

Tensor classes(const std::vector<std::int64_t>& values) { return Tensor::from(values, {static_cast<std::int64_t>(values.size())}); }

TEST(ConfusionMatrix, CountsWhatWasTakenForWhat) {
  ConfusionMatrix matrix(3);
  matrix.add(logits_of({0, 0, 1, 1, 2}, 3), classes({0, 1, 1, 1, 2}));
  matrix.add(logits_of({1}, 3), classes({2}));
  EXPECT_EQ(matrix.total(), 6);
  EXPECT_EQ(matrix.correct(), 4);
  EXPECT_EQ(matrix.count(1, 0), 1);
  EXPECT_EQ(matrix.count(1, 1), 2);
  EXPECT_EQ(matrix.count(2, 1), 1);
  EXPECT_EQ(matrix.count(0, 1), 0);
  EXPECT_DOUBLE_EQ(matrix.dice(0), 2.0 / 3);
  EXPECT_DOUBLE_EQ(matrix.dice(1), 4.0 / 6);
  EXPECT_DOUBLE_EQ(matrix.dice(2), 2.0 / 3);
  EXPECT_DOUBLE_EQ(matrix.iou(1), 2.0 / 4);
  EXPECT_DOUBLE_EQ(matrix.iou(2), 1.0 / 2);
  EXPECT_DOUBLE_EQ(matrix.mean_dice(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(matrix.mean_iou(), 0.5);
}

TEST(ConfusionMatrix, IsOfPositionsWhereThereAreSome) {
  // Two images of 1 x 3 positions, two classes: the answers are 1 0 1 and 0 0 0.
  const Tensor logits = Tensor::from<float>({0, 1, 0, 1, 0, 1, 5, 5, 5, 5, 4, 5}, {2, 2, 1, 3});
  const Tensor target = Tensor::from<std::int64_t>({1, 1, 1, 0, 1, 0}, {2, 1, 3});
  ConfusionMatrix matrix(2);
  matrix.add(logits, target);
  EXPECT_EQ(matrix.count(0, 0), 2);
  EXPECT_EQ(matrix.count(0, 1), 0);
  EXPECT_EQ(matrix.count(1, 0), 2);
  EXPECT_EQ(matrix.count(1, 1), 2);
  ConfusionMatrix same(2);
  same.add(logits.to(DType::f64), target.to(DType::f32));
  EXPECT_EQ(same.count(1, 1), 2);
}

TEST(ConfusionMatrix, AClassThatDoesNotOccurHasNoShareInTheMean) {
  ConfusionMatrix matrix(4);
  matrix.add(logits_of({0, 1, 1}, 4), classes({0, 1, 2}));
  EXPECT_TRUE(std::isnan(matrix.dice(3)));
  EXPECT_TRUE(std::isnan(matrix.iou(3)));
  EXPECT_DOUBLE_EQ(matrix.dice(1), 2.0 / 3);
  EXPECT_DOUBLE_EQ(matrix.dice(2), 0);
  EXPECT_DOUBLE_EQ(matrix.mean_dice(), 1.0 / 3);
  EXPECT_TRUE(std::isnan(ConfusionMatrix(2).mean_dice()));
  ConfusionMatrix one(1);
  one.add(Tensor::zeros({2, 1}), classes({0, 0}));
  EXPECT_EQ(one.mean_iou(), 1);
}

TEST(ConfusionMatrix, RefusesWhatDoesNotFit) {
  ConfusionMatrix matrix(3);
  const auto refused = [&](const std::string& message, const Tensor& logits, const Tensor& target) {
    expect_error(ErrorKind::argument, message, [&] { matrix.add(logits, target); });
  };
  refused("ConfusionMatrix: expected logits (N, 3, ...), got 2x4", Tensor::zeros({2, 4}), classes({0, 0}));
  refused("ConfusionMatrix: expected logits (N, 3, ...), got 3", Tensor::zeros({3}), classes({0}));
  refused("targets: expected 2x5 for logits 2x3x5, got 2", Tensor::zeros({2, 3, 5}), classes({0, 0}));
  refused("targets: expected classes in [0, 3), got 3 at element 1", Tensor::zeros({2, 3}), classes({0, 3}));
  refused("targets: expected classes in [0, 3), got -1 at element 0", Tensor::zeros({1, 3}), classes({-1}));
  refused("targets: expected classes in [0, 3), got 0.5 at element 0", Tensor::zeros({1, 3}), Tensor::full({1}, 0.5));
  EXPECT_EQ(matrix.total(), 0);
  expect_error(ErrorKind::argument, "ConfusionMatrix: expected 1 to 1024 classes, got 0", [] { ConfusionMatrix(0); });
  expect_error(ErrorKind::argument, "ConfusionMatrix: no class 3 or 0 of 3", [&] { (void)matrix.count(3, 0); });
}

TEST(AmongLargest, CountsAsSortingWould) {
  const Tensor logits = Tensor::from<float>({5, 4, 3, 2, 1, 0, 1, 1, 1, 1, 1, 1}, {2, 6});
  EXPECT_EQ(count_among_largest(logits, classes({4, 4}), 5), 2);
  EXPECT_EQ(count_among_largest(logits, classes({5, 5}), 5), 0) << "of equal ones the last is the last";
  EXPECT_EQ(count_among_largest(logits, classes({0, 0}), 1), 2);
  EXPECT_EQ(count_among_largest(Tensor::full({1, 3}, NAN), classes({1}), 3), 0);
}

TEST(ConfusionMatrix, LeavesOutWhatIsIgnored) {
  ConfusionMatrix matrix(3, /*ignore_index=*/255);
  matrix.add(logits_of({0, 1, 2, 2}, 3), classes({0, 255, 255, 1}));
  EXPECT_EQ(matrix.total(), 2);
  EXPECT_EQ(matrix.correct(), 1);
  EXPECT_EQ(matrix.count(1, 2), 1);
  expect_error(ErrorKind::argument, "targets: expected classes in [0, 3), got 254 at element 0",
               [&] { matrix.add(logits_of({0}, 3), classes({254})); });
  ConfusionMatrix of_two(2, /*ignore_index=*/0);
  of_two.add(logits_of({0, 1}, 2), classes({0, 1}));
  EXPECT_EQ(of_two.total(), 1) << "a class can be ignored too";
  EXPECT_EQ(count_among_largest(logits_of({0, 1, 2}, 3), classes({0, 255, 2}), 1, 255), 2);
}

}  // namespace
}  // namespace frit
