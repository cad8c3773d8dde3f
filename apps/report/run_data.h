#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/report/operator_time.h"
#include "frit/models/metrics.h"

namespace frit::apps {

inline constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();

/// What was measured of one training step. NaN where something was not.
struct StepMetrics {
  std::int64_t step = 0;   ///< from 1
  std::int64_t epoch = 0;  ///< from 1
  double seconds = 0;      ///< since the training began
  double loss = not_measured;
  double learning_rate = not_measured;
  double gradient_norm = not_measured;
  double examples_per_second = not_measured;
};

/// And of one epoch. Accuracies are of 1.
struct EpochMetrics {
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t step = 0;   ///< the last of it
  double seconds = 0;      ///< since the training began
  double training_loss = not_measured, training_accuracy = not_measured;
  double validation_loss = not_measured, validation_accuracy = not_measured;
  double validation_top5 = not_measured;                                 ///< of a classifier of more than five classes
  double validation_dice = not_measured, validation_iou = not_measured;  ///< of a segmentation: means over its classes
};

/// All that is known of a training run.
struct RunData {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts = {};  ///< shown as a table
  std::vector<StepMetrics> steps = {};
  std::vector<EpochMetrics> epochs = {};
  std::optional<ConfusionMatrix> confusion = {};  ///< of the last validation
  std::vector<OperatorTime> operators = {};       ///< of one step, the longest first; may be empty
  std::string memory_picture = {};                ///< an SVG element; may be empty
};

/// CSV files of RFC 4180 with a header line; what was not measured is an empty field.
std::string steps_csv(const std::vector<StepMetrics>& steps);
std::string epochs_csv(const std::vector<EpochMetrics>& epochs);
/// A line a class: how many were of it, how many were taken for it, how many of both, its Dice and IoU.
std::string classes_csv(const ConfusionMatrix& confusion);
/// A line an actual class, a column a predicted one.
std::string confusion_csv(const ConfusionMatrix& confusion);
/// Reads them back, for a run that goes on. A line that is none of such a file is left out; `damage` names the first.
std::vector<StepMetrics> parse_steps_csv(const std::string& text, const std::string& name, std::string& damage);
std::vector<EpochMetrics> parse_epochs_csv(const std::string& text, const std::string& name, std::string& damage);

/// One HTML page that needs nothing else: loss, accuracy, what became of each class, learning rate, gradient norm, throughput, time by
/// operator, memory over a step.
std::string report_html(const RunData& run);

}  // namespace frit::apps
