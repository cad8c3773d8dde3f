#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "frit/core/tensor.h"

namespace frit {

/// How often each class was taken for each: what accuracy, Dice and IoU come from, of whole inputs and of the positions of an image alike.
class ConfusionMatrix {
 public:
  static constexpr std::int64_t most_classes = 1024;

  /// Throws ErrorKind::argument unless there are 1 to most_classes classes. Targets of `ignore_index` count for nothing.
  explicit ConfusionMatrix(std::int64_t classes, std::optional<std::int64_t> ignore_index = {});

  /// Counts logits (N, classes, ...), of which the largest is the answer, the first of equal ones, against classes (N, ...). Throws
  /// ErrorKind::argument for other shapes, for targets that are not whole numbers, or outside [0, classes).
  void add(const Tensor& logits, const Tensor& target);

  /// Adds what a matrix of as many classes counted: see counts.
  void add_counts(std::span<const std::int64_t> counts);

  std::int64_t classes() const { return classes_; }
  const std::vector<std::int64_t>& counts() const { return counts_; }  ///< (actual, predicted)
  std::int64_t count(std::int64_t actual, std::int64_t predicted) const;
  std::int64_t total() const;
  std::int64_t correct() const;
  /// 2 TP / (2 TP + FP + FN) of one class, and TP / (TP + FP + FN); NaN for a class that neither occurs nor was predicted.
  double dice(std::int64_t c) const;
  double iou(std::int64_t c) const;
  /// The mean over the classes that have one; of several classes without the first, the background. NaN if none has.
  double mean_dice() const;
  double mean_iou() const;

 private:
  struct Shares {
    double both, actual, predicted;
  };
  Shares shares(std::int64_t c) const;
  double mean(double (ConfusionMatrix::*of)(std::int64_t) const) const;

  std::int64_t classes_;
  std::optional<std::int64_t> ignore_index_;
  std::vector<std::int64_t> counts_;
};

/// Of how many rows of logits (N, classes, ...) the target is among the k largest; one is not that is NaN, or ignored.
std::int64_t count_among_largest(const Tensor& logits, const Tensor& target, std::int64_t k, std::optional<std::int64_t> ignore_index = {});

}  // namespace frit
