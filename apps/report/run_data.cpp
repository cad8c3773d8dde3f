#include "apps/report/run_data.h"

#include <array>
#include <charconv>
#include <cmath>
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

/// The columns of a row: its whole numbers, then the others.
template <class Row>
struct Columns;

template <>
struct Columns<StepMetrics> {
  static constexpr const char* header = "step,epoch,seconds,loss,learning_rate,gradient_norm,examples_per_second\n";
  static constexpr std::array integers = {&StepMetrics::step, &StepMetrics::epoch};
  static constexpr std::array numbers = {&StepMetrics::seconds, &StepMetrics::loss, &StepMetrics::learning_rate,
                                         &StepMetrics::gradient_norm, &StepMetrics::examples_per_second};
};

template <>
struct Columns<EpochMetrics> {
  static constexpr const char* header = "epoch,step,seconds,training_loss,training_accuracy,validation_loss,validation_accuracy\n";
  static constexpr std::array integers = {&EpochMetrics::epoch, &EpochMetrics::step};
  static constexpr std::array numbers = {&EpochMetrics::seconds, &EpochMetrics::training_loss, &EpochMetrics::training_accuracy,
                                         &EpochMetrics::validation_loss, &EpochMetrics::validation_accuracy};
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

template <class Row>
std::vector<Row> parse(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  std::string line;
  int number = 1;
  const auto bad = [&] { fail(ErrorKind::format, name, ": line ", number, ": not a line of this file: \"", printable(line), '"'); };
  if (!std::getline(lines, line) || line + '\n' != Columns<Row>::header) bad();
  std::vector<Row> rows;
  while (std::getline(lines, line)) {
    ++number;
    Row row;
    std::istringstream fields(line + ',');
    std::string each;
    const auto take = [&](auto& value) {
      using T = std::remove_reference_t<decltype(value)>;
      if (!std::getline(fields, each, ',')) bad();
      if (std::is_floating_point_v<T> && each.empty()) {
        value = static_cast<T>(not_measured);
      } else if (const auto [end, error] = std::from_chars(each.data(), each.data() + each.size(), value);
                 error != std::errc() || end != each.data() + each.size()) {
        bad();
      }
    };
    for (const auto member : Columns<Row>::integers) take(row.*member);
    for (const auto member : Columns<Row>::numbers) take(row.*member);
    if (std::getline(fields, each, ',')) bad();
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::string steps_csv(const std::vector<StepMetrics>& steps) { return csv(steps); }
std::string epochs_csv(const std::vector<EpochMetrics>& epochs) { return csv(epochs); }

std::vector<StepMetrics> parse_steps_csv(const std::string& text, const std::string& name) { return parse<StepMetrics>(text, name); }
std::vector<EpochMetrics> parse_epochs_csv(const std::string& text, const std::string& name) { return parse<EpochMetrics>(text, name); }

}  // namespace frit::apps
