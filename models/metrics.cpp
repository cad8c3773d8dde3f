#include "frit/models/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace frit {
namespace {

constexpr std::int64_t ignored = -1;

/// The target as numbers of classes, or `ignored`. Throws for what is none.
std::vector<std::int64_t> classes_of(const Tensor& logits, const Tensor& target, std::optional<std::int64_t> ignore_index) {
  Shape of_targets = logits.shape();
  require(logits.rank() >= 2, "logits: expected (N, classes, ...), got ", logits.shape());
  of_targets.erase(1);
  require(target.shape() == of_targets, "targets: expected ", of_targets, " for logits ", logits.shape(), ", got ", target.shape());
  const std::vector<double> values = target.to_vector<double>();
  std::vector<std::int64_t> classes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (ignore_index && values[i] == static_cast<double>(*ignore_index)) {
      classes[i] = ignored;
      continue;
    }
    const bool known = values[i] >= 0 && values[i] < static_cast<double>(logits.dim(1)) && values[i] == std::floor(values[i]);
    require(known, "targets: expected classes in [0, ", logits.dim(1), "), got ", values[i], " at element ", i);
    classes[i] = static_cast<std::int64_t>(values[i]);
  }
  return classes;
}

/// Calls `visit(logits of one position, `stride` apart; its class)` where that is not ignored.
template <class Visit>
void for_each_position(const Tensor& logits, const Tensor& target, std::optional<std::int64_t> ignore_index, const Visit& visit) {
  const std::vector<std::int64_t> classes = classes_of(logits, target, ignore_index);
  const std::vector<float> values = logits.to_vector<float>();
  const auto count = static_cast<std::size_t>(logits.dim(1));
  const std::size_t positions = classes.size() / static_cast<std::size_t>(std::max<std::int64_t>(logits.dim(0), 1));
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (classes[i] != ignored) visit(values.data() + i / positions * positions * count + i % positions, positions, classes[i]);
  }
}

constexpr double none = std::numeric_limits<double>::quiet_NaN();

}  // namespace

ConfusionMatrix::ConfusionMatrix(std::int64_t classes, std::optional<std::int64_t> ignore_index)
    : classes_(classes), ignore_index_(ignore_index) {
  require(classes >= 1 && classes <= most_classes, "ConfusionMatrix: expected 1 to ", most_classes, " classes, got ", classes);
  counts_.resize(static_cast<std::size_t>(classes * classes));
}

void ConfusionMatrix::add(const Tensor& logits, const Tensor& target) {
  require(logits.rank() >= 2 && logits.dim(1) == classes_, "ConfusionMatrix: expected logits (N, ", classes_, ", ...), got ",
          logits.shape());
  for_each_position(logits, target, ignore_index_, [&](const float* values, std::size_t stride, std::int64_t actual) {
    std::int64_t largest = 0;
    for (std::int64_t c = 1; c < classes_; ++c) {
      const float value = values[static_cast<std::size_t>(c) * stride], best = values[static_cast<std::size_t>(largest) * stride];
      if (value > best || (std::isnan(value) && !std::isnan(best))) largest = c;  // as argmax has it
    }
    ++counts_[static_cast<std::size_t>(actual * classes_ + largest)];
  });
}

void ConfusionMatrix::add_counts(std::span<const std::int64_t> counts) {
  require(counts.size() == counts_.size(), "ConfusionMatrix: expected ", counts_.size(), " counts, got ", counts.size());
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += counts[i];
}

std::int64_t ConfusionMatrix::count(std::int64_t actual, std::int64_t predicted) const {
  require(actual >= 0 && actual < classes_ && predicted >= 0 && predicted < classes_, "ConfusionMatrix: no class ", actual, " or ",
          predicted, " of ", classes_);
  return counts_[static_cast<std::size_t>(actual * classes_ + predicted)];
}

std::int64_t ConfusionMatrix::total() const {
  std::int64_t sum = 0;
  for (const std::int64_t count : counts_) sum += count;
  return sum;
}

std::int64_t ConfusionMatrix::correct() const {
  std::int64_t sum = 0;
  for (std::int64_t c = 0; c < classes_; ++c) sum += count(c, c);
  return sum;
}

ConfusionMatrix::Shares ConfusionMatrix::shares(std::int64_t c) const {
  std::int64_t actual = 0, predicted = 0;
  for (std::int64_t other = 0; other < classes_; ++other) {
    actual += count(c, other);
    predicted += count(other, c);
  }
  return {static_cast<double>(count(c, c)), static_cast<double>(actual), static_cast<double>(predicted)};
}

double ConfusionMatrix::dice(std::int64_t c) const {
  const Shares s = shares(c);
  return s.actual + s.predicted > 0 ? 2 * s.both / (s.actual + s.predicted) : none;
}

double ConfusionMatrix::iou(std::int64_t c) const {
  const Shares s = shares(c);
  return s.actual + s.predicted > 0 ? s.both / (s.actual + s.predicted - s.both) : none;
}

double ConfusionMatrix::mean(double (ConfusionMatrix::*of)(std::int64_t) const) const {
  double sum = 0;
  int count = 0;
  for (std::int64_t c = classes_ > 1 ? 1 : 0; c < classes_; ++c) {
    const double value = (this->*of)(c);
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count > 0 ? sum / count : none;
}

double ConfusionMatrix::mean_dice() const { return mean(&ConfusionMatrix::dice); }
double ConfusionMatrix::mean_iou() const { return mean(&ConfusionMatrix::iou); }

std::int64_t count_among_largest(const Tensor& logits, const Tensor& target, std::int64_t k, std::optional<std::int64_t> ignore_index) {
  std::int64_t found = 0;
  for_each_position(logits, target, ignore_index, [&](const float* values, std::size_t stride, std::int64_t actual) {
    const float own = values[static_cast<std::size_t>(actual) * stride];
    std::int64_t before = 0;  // as sorting would leave them: of equal ones the first is first
    for (std::int64_t c = 0; c < logits.dim(1); ++c) {
      const float value = values[static_cast<std::size_t>(c) * stride];
      before += value > own || std::isnan(value) || (value == own && c < actual) ? 1 : 0;
    }
    found += !std::isnan(own) && before < k ? 1 : 0;
  });
  return found;
}

}  // namespace frit
