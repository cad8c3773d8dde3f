#include "apps/report/run_data.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>

#include "frit/core/text.h"

namespace frit::apps {
namespace {

/// The shortest that reads back the same; nothing for NaN.
std::string field(double value) {
  if (std::isnan(value)) return "";
  std::array<char, 32> buffer;
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr};
}

/// The columns of a row: its whole numbers, then the others. Files of older frits may have another header, and lack what `added` stands
/// for.
template <class Row>
struct Columns;

template <>
struct Columns<StepMetrics> {
  static constexpr const char* header = "step,epoch,seconds,loss,learning_rate,gradient_norm,examples_per_second\n";
  static constexpr const char *old_header = "", *added = "";
  static constexpr std::array integers = {&StepMetrics::step, &StepMetrics::epoch};
  static constexpr std::array numbers = {&StepMetrics::seconds, &StepMetrics::loss, &StepMetrics::learning_rate,
                                         &StepMetrics::gradient_norm, &StepMetrics::examples_per_second};
};

template <>
struct Columns<EpochMetrics> {
  static constexpr const char* header =
      "epoch,step,seconds,training_loss,training_accuracy,validation_loss,validation_accuracy,"
      "validation_top5,validation_dice,validation_iou\n";
  static constexpr const char* old_header = "epoch,step,seconds,training_loss,training_accuracy,validation_loss,validation_accuracy\n";
  static constexpr const char* added = ",,,";
  static constexpr std::array integers = {&EpochMetrics::epoch, &EpochMetrics::step};
  static constexpr std::array numbers = {
      &EpochMetrics::seconds,         &EpochMetrics::training_loss,       &EpochMetrics::training_accuracy,
      &EpochMetrics::validation_loss, &EpochMetrics::validation_accuracy, &EpochMetrics::validation_top5,
      &EpochMetrics::validation_dice, &EpochMetrics::validation_iou};
};

template <class Row>
std::string csv(const std::vector<Row>& rows) {
  std::string text = Columns<Row>::header;
  for (const Row& row : rows) {
    for (const auto member : Columns<Row>::integers) text += std::to_string(row.*member) + ',';
    for (const auto member : Columns<Row>::numbers) text += field(row.*member) + ',';
    text.back() = '\n';
  }
  return text;
}

/// Whether all of the field was a number; an empty one is what was not measured.
template <class T>
bool take(const std::string& text, T& value) {
  if (std::is_floating_point_v<T> && text.empty()) {
    value = static_cast<T>(not_measured);
    return true;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

template <class Row>
std::optional<Row> parse_line(const std::string& line) {
  Row row;
  std::istringstream fields(line + ',');
  std::string each;
  bool good = true;
  const auto next = [&](auto& value) { good = good && std::getline(fields, each, ',') && take(each, value); };
  for (const auto member : Columns<Row>::integers) next(row.*member);
  for (const auto member : Columns<Row>::numbers) next(row.*member);
  good = good && std::isfinite(row.seconds) && !std::getline(fields, each, ',');
  return good ? std::optional(row) : std::nullopt;
}

template <class Row>
std::vector<Row> parse(const std::string& text, const std::string& name, std::string& damage) {
  std::istringstream lines(text);
  std::vector<Row> rows;
  int number = 0;
  const char* missing = "";
  for (std::string line; std::getline(lines, line);) {
    const bool old = ++number == 1 && line + '\n' == Columns<Row>::old_header;
    const bool header = old || (number == 1 && line + '\n' == Columns<Row>::header);
    if (old) missing = Columns<Row>::added;
    const std::optional<Row> row = header ? std::nullopt : parse_line<Row>(line + missing);
    if (row) rows.push_back(*row);
    if (!row && !header && damage.empty()) damage = concat(name, ": line ", number, ": not a line of this file: \"", printable(line), '"');
  }
  return rows;
}

}  // namespace

std::string steps_csv(const std::vector<StepMetrics>& steps) { return csv(steps); }
std::string epochs_csv(const std::vector<EpochMetrics>& epochs) { return csv(epochs); }

std::string classes_csv(const ConfusionMatrix& confusion) {
  std::string text = "class,actual,predicted,correct,dice,iou\n";
  for (std::int64_t c = 0; c < confusion.classes(); ++c) {
    std::int64_t actual = 0, predicted = 0;
    for (std::int64_t other = 0; other < confusion.classes(); ++other) {
      actual += confusion.count(c, other);
      predicted += confusion.count(other, c);
    }
    text += concat(c, ',', actual, ',', predicted, ',', confusion.count(c, c), ',', field(confusion.dice(c)), ',', field(confusion.iou(c)),
                   '\n');
  }
  return text;
}

std::string confusion_csv(const ConfusionMatrix& confusion) {
  std::string text = "actual";
  for (std::int64_t c = 0; c < confusion.classes(); ++c) text += concat(",predicted_", c);
  for (std::int64_t actual = 0; actual < confusion.classes(); ++actual) {
    text += concat('\n', actual);
    for (std::int64_t c = 0; c < confusion.classes(); ++c) text += concat(',', confusion.count(actual, c));
  }
  return text + '\n';
}

std::vector<StepMetrics> parse_steps_csv(const std::string& text, const std::string& name, std::string& damage) {
  return parse<StepMetrics>(text, name, damage);
}
std::vector<EpochMetrics> parse_epochs_csv(const std::string& text, const std::string& name, std::string& damage) {
  return parse<EpochMetrics>(text, name, damage);
}

}  // namespace frit::apps
