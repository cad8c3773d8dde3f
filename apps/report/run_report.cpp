#include <algorithm>
#include <cmath>

#include "apps/common/text.h"
#include "apps/report/chart.h"
#include "apps/report/run_data.h"
#include "apps/report/svg.h"
#include "frit/core/error.h"

namespace frit::apps {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr const char* training_color = "#3b78b5";
constexpr const char* validation_color = "#d9822b";

constexpr const char* style = R"(
body { font: 14px/1.5 system-ui, Helvetica, Arial, sans-serif; color: #222; background: #fff; max-width: 1180px; margin: 24px auto; padding: 0 16px; }
h1 { font-size: 22px; margin: 0 0 4px; }
h2 { font-size: 16px; margin: 28px 0 8px; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(520px, 1fr)); gap: 12px 16px; }
.charts svg, .wide svg { width: 100%; height: auto; }
table { border-collapse: collapse; margin: 8px 0; }
td, th { padding: 3px 16px 3px 0; text-align: left; border-bottom: 1px solid #eee; font-variant-numeric: tabular-nums; }
th { color: #666; font-weight: 500; }
td.number, th.number { text-align: right; }
.note { color: #666; }
)";

template <class Row>
Points points(const std::vector<Row>& rows, std::int64_t Row::*x, double Row::*y) {
  Points result;
  for (const Row& row : rows) result.emplace_back(static_cast<double>(row.*x), row.*y);
  return result;
}

bool measured(const Points& points) {
  return std::any_of(points.begin(), points.end(), [](const auto& point) { return std::isfinite(point.second); });
}

Points percent(Points points) {
  for (auto& point : points) point.second *= 100;
  return points;
}

/// A long row of values that jump is shown faintly behind its mean.
void add_steps(Chart& chart, const std::string& name, const Points& values) {
  const double span = static_cast<double>(values.size()) / 40;
  if (!measured(values)) return;
  if (span <= 2) return chart.series.push_back({.name = name, .color = training_color, .points = values});
  chart.series.push_back({.name = "each step", .color = training_color, .points = values, .faint = true});
  chart.series.push_back({.name = name + ", smoothed", .color = training_color, .points = smoothed(values, span)});
}

std::string loss_chart(const RunData& run) {
  Chart chart{.title = "Loss", .series = {}};
  add_steps(chart, "training", points(run.steps, &StepMetrics::step, &StepMetrics::loss));
  const Points validation = points(run.epochs, &EpochMetrics::step, &EpochMetrics::validation_loss);
  if (measured(validation)) {
    chart.series.push_back({.name = "validation", .color = validation_color, .points = validation, .dots = true});
  }
  return line_chart(chart);
}

std::string accuracy_chart(const RunData& run) {
  Chart chart{.title = "Accuracy, %", .series = {}};
  const Points training = points(run.epochs, &EpochMetrics::step, &EpochMetrics::training_accuracy);
  const Points validation = points(run.epochs, &EpochMetrics::step, &EpochMetrics::validation_accuracy);
  if (measured(training)) {
    chart.series.push_back({.name = "training", .color = training_color, .points = percent(training), .dots = true});
  }
  if (measured(validation)) {
    chart.series.push_back({.name = "validation", .color = validation_color, .points = percent(validation), .dots = true});
  }
  return chart.series.empty() ? "" : line_chart(chart);
}

std::string overlap_chart(const RunData& run) {
  const Points dice = points(run.epochs, &EpochMetrics::step, &EpochMetrics::validation_dice);
  const Points iou = points(run.epochs, &EpochMetrics::step, &EpochMetrics::validation_iou);
  if (!measured(dice)) return "";
  return line_chart({.title = "Dice and IoU of the validation, means over the classes",
                     .series = {{.name = "Dice", .color = training_color, .points = dice, .dots = true},
                                {.name = "IoU", .color = validation_color, .points = iou, .dots = true}}});
}

std::string rate_chart(const RunData& run) {
  const Points values = points(run.steps, &StepMetrics::step, &StepMetrics::learning_rate);
  if (!measured(values)) return "";
  const Series series{.name = "learning rate", .color = training_color, .points = values};
  return line_chart({.title = "Learning rate", .series = {series}, .from_zero = true});
}

std::string step_chart(const RunData& run, Chart chart, const std::string& name, double StepMetrics::*y) {
  add_steps(chart, name, points(run.steps, &StepMetrics::step, y));
  return chart.series.empty() ? "" : line_chart(chart);
}

std::string operators_chart(const RunData& run) {
  constexpr std::size_t shown = 14;
  double total = 0, rest = 0;
  for (const OperatorTime& time : run.operators) total += time.microseconds;
  std::vector<Bar> bars;
  const auto note = [total](double microseconds) {
    return concat(fixed(microseconds, 1), " us, ", fixed(100 * microseconds / std::max(total, 1e-300), 1), " %");
  };
  for (std::size_t i = 0; i < run.operators.size(); ++i) {
    const OperatorTime& time = run.operators[i];
    const std::string name = concat(time.op, time.calls > 1 ? concat(" (", time.calls, " calls)") : "");
    if (i < shown)
      bars.push_back({name, note(time.microseconds), time.microseconds});
    else
      rest += time.microseconds;
  }
  if (rest > 0) bars.push_back({concat(run.operators.size() - shown, " others"), note(rest), rest});
  return bar_chart(concat("Time by operator, each by itself: ", fixed(total, 1), " us in all"), bars);
}

std::string cell(const std::string& text, bool number) { return concat(number ? "<td class=\"number\">" : "<td>", escaped(text), "</td>"); }

std::string epochs_table(const RunData& run) {
  const auto loss = [](double value) { return std::isnan(value) ? std::string() : fixed(value, 4); };
  const auto per_cent = [](double value) { return std::isnan(value) ? std::string() : fixed(100 * value, 2) + " %"; };
  struct Column {
    const char* title;
    double EpochMetrics::*value;
    std::string (*text)(double);
    bool always = true;
  };
  const Column all[] = {
      {"training loss", &EpochMetrics::training_loss, loss},      {"accuracy", &EpochMetrics::training_accuracy, per_cent},
      {"validation loss", &EpochMetrics::validation_loss, loss},  {"accuracy", &EpochMetrics::validation_accuracy, per_cent},
      {"top-5", &EpochMetrics::validation_top5, per_cent, false}, {"Dice", &EpochMetrics::validation_dice, loss, false},
      {"IoU", &EpochMetrics::validation_iou, loss, false}};
  std::vector<Column> columns;
  for (const Column& column : all) {
    if (column.always || measured(points(run.epochs, &EpochMetrics::step, column.value))) columns.push_back(column);
  }
  std::string html = "<table><tr>";
  for (const char* const title : {"epoch", "step", "seconds"}) html += concat("<th class=\"number\">", title, "</th>");
  for (const Column& column : columns) html += concat("<th class=\"number\">", column.title, "</th>");
  html += "</tr>\n";
  // The first and the last of many.
  constexpr std::size_t head = 5, tail = 25;
  for (std::size_t i = 0; i < run.epochs.size(); ++i) {
    if (run.epochs.size() > head + tail && i == head) {
      html += concat("<tr><td colspan=\"", 3 + columns.size(), "\" class=\"note\">", run.epochs.size() - head - tail, " more</td></tr>\n");
      i = run.epochs.size() - tail;
    }
    const EpochMetrics& e = run.epochs[i];
    html += "<tr>" + cell(std::to_string(e.epoch), true) + cell(grouped(e.step), true) + cell(fixed(e.seconds, 1), true);
    for (const Column& column : columns) html += cell(column.text(e.*column.value), true);
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

/// Dice and IoU of each class, and what it was taken for, darker the more often; of few classes, as more are in the CSV files.
std::string classes_table(const ConfusionMatrix& confusion) {
  constexpr std::int64_t most = 40;
  const std::int64_t shown = std::min(confusion.classes(), most);
  std::string html = "<table><tr><th>class</th><th class=\"number\">Dice</th><th class=\"number\">IoU</th>";
  for (std::int64_t c = 0; c < shown; ++c) html += concat("<th class=\"number\">taken for ", c, "</th>");
  html += "</tr>\n";
  const auto share = [](double value) { return std::isnan(value) ? std::string() : fixed(value, 4); };
  for (std::int64_t actual = 0; actual < shown; ++actual) {
    std::int64_t total = 0;
    for (std::int64_t c = 0; c < confusion.classes(); ++c) total += confusion.count(actual, c);
    html +=
        "<tr>" + cell(std::to_string(actual), false) + cell(share(confusion.dice(actual)), true) + cell(share(confusion.iou(actual)), true);
    for (std::int64_t c = 0; c < shown; ++c) {
      const double part = static_cast<double>(confusion.count(actual, c)) / static_cast<double>(std::max<std::int64_t>(total, 1));
      html += concat("<td class=\"number\" style=\"background: rgba(59, 120, 181, ", fixed(0.6 * part, 3), ")\">",
                     grouped(confusion.count(actual, c)), "</td>");
    }
    html += "</tr>\n";
  }
  html += "</table>\n";
  if (shown < confusion.classes()) html += concat("<p class=\"note\">", confusion.classes() - shown, " more in classes.csv</p>\n");
  return html;
}

}  // namespace

std::string report_html(const RunData& run) {
  std::string html = concat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", escaped(run.title),
                            "</title>\n<style>", style, "</style></head><body>\n<h1>", escaped(run.title), "</h1>\n");
  html += "<table>\n";
  for (const auto& [name, value] : run.facts) html += concat("<tr><th>", escaped(name), "</th>", cell(value, false), "</tr>\n");
  html += "</table>\n<div class=\"charts\">\n";
  html += loss_chart(run) + accuracy_chart(run) + overlap_chart(run);
  html += rate_chart(run);
  html += step_chart(run, {.title = "Norm of the gradients", .series = {}, .logarithmic = true}, "norm", &StepMetrics::gradient_norm);
  html += step_chart(run, {.title = "Examples a second", .series = {}, .from_zero = true}, "rate", &StepMetrics::examples_per_second);
  html += "</div>\n";
  if (!run.operators.empty()) html += "<h2>Where the time of a step goes</h2>\n<div class=\"wide\">" + operators_chart(run) + "</div>\n";
  if (!run.memory_picture.empty()) html += "<h2>Memory over a step</h2>\n<div class=\"wide\">" + run.memory_picture + "</div>\n";
  if (run.confusion) html += "<h2>Classes of the last validation</h2>\n" + classes_table(*run.confusion);
  if (!run.epochs.empty()) html += "<h2>Epochs</h2>\n" + epochs_table(run);
  return html + "</body></html>\n";
}

}  // namespace frit::apps
