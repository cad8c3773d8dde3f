#include "apps/report/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "apps/common/text.h"
#include "apps/report/svg.h"
#include "frit/core/error.h"

namespace frit::apps {
namespace {

using Point = std::pair<double, double>;

constexpr double width = 560, height = 280, left = 64, right = 18, top = 46, bottom = 42;
constexpr double plot_width = width - left - right, plot_height = height - top - bottom;

/// A number of an axis, as short as it can be told from its neighbours.
std::string axis_text(double value, double step) {
  if (value == 0) return "0";
  if (std::abs(value) >= 1e6) return concat(fixed(value / 1e6, step < 1e6 ? 1 : 0), "M");
  if (std::abs(value) >= 1e4) return concat(fixed(value / 1e3, step < 1e3 ? 1 : 0), "k");
  if (step < 1e-6) return scientific(value);
  return fixed(value, std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 6));
}

/// What of a value stands on the axis.
struct Axis {
  double least, most;
  bool logarithmic = false;

  double place(double value) const {
    const auto f = [this](double v) { return logarithmic ? std::log10(v) : v; };
    return (f(value) - f(least)) / std::max(f(most) - f(least), 1e-300);
  }
};

/// Whether a value can be drawn: no difference of such overflows.
bool drawable(double y) { return std::abs(y) <= 1e300; }

/// The multiples of `step` on the axis, some tens at most: beyond that the step is too small to be told apart.
std::vector<double> marks(const Axis& axis, double step) {
  constexpr int most = 50;
  std::vector<double> values;
  const double first = std::ceil(axis.least / step);
  for (int i = 0; i < most && (first + i) * step <= axis.most; ++i) values.push_back((first + i) * step);
  return values;
}

Axis y_axis(const Chart& chart) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      if (!drawable(y)) continue;
      least = std::min(least, y);
      most = std::max(most, y);
    }
  }
  if (least > most) return {0, 1};
  if (chart.logarithmic && least > 1e-300) {
    const double low = std::pow(10, std::floor(std::log10(least))), high = std::pow(10, std::ceil(std::log10(most)));
    return {low, std::max(high, 10 * low), true};
  }
  if (chart.from_zero) least = std::min(least, 0.0);
  const double room = most > least ? 0.05 * (most - least) : std::max(0.1 * std::abs(most), 1e-12);
  return {chart.from_zero && least == 0 ? 0 : least - room, most + room};
}

/// At most some hundreds of points: of each stretch the least and the largest, so that no peak is lost.
std::vector<Point> thinned(const std::vector<Point>& points) {
  constexpr std::size_t stretches = 400;
  if (points.size() <= 2 * stretches) return points;
  std::vector<Point> result;
  for (std::size_t s = 0; s < stretches; ++s) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(s * points.size() / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((s + 1) * points.size() / stretches);
    const auto by_y = [](const Point& a, const Point& b) { return a.second < b.second; };
    auto [low, high] = std::minmax_element(begin, end, by_y);
    if (high < low) std::swap(low, high);
    result.push_back(*low);
    if (high != low) result.push_back(*high);
  }
  return result;
}

class LineChart {
 public:
  explicit LineChart(const Chart& chart) : chart_(chart), y_(y_axis(chart)), svg_(width, height) {
    double least = std::numeric_limits<double>::infinity(), most = -least;
    for (const Series& series : chart.series) {
      for (const auto& [x, y] : series.points) {
        least = std::min(least, x);
        most = std::max(most, x);
      }
    }
    x_ = least > most ? Axis{0, 1} : most > least ? Axis{least, most} : Axis{least - 1, least + 1};
  }

  std::string draw() {
    svg_.text(left, 18, chart_.title, {.size = 13, .color = "#111"});
    draw_legend();
    draw_y_marks();
    draw_x_marks();
    for (const Series& series : chart_.series) {
      if (series.faint) draw_series(series);
    }
    for (const Series& series : chart_.series) {
      if (!series.faint) draw_series(series);
    }
    return svg_.finish();
  }

 private:
  double x_of(double x) const { return left + plot_width * x_.place(x); }
  double y_of(double y) const { return top + plot_height * (1 - y_.place(y)); }

  void draw_legend() {
    if (chart_.series.size() < 2) return;
    double x = left;
    for (const Series& series : chart_.series) {
      svg_.line(x, 33, x + 14, 33, concat("stroke:", series.color, ";stroke-width:2;opacity:", series.faint ? "0.45" : "1"));
      svg_.text(x + 18, 37, series.name, {.size = 10.5, .color = "#555"});
      x += 34 + 6.0 * static_cast<double>(series.name.size());
    }
  }

  void mark_y(double value, const std::string& text) {
    svg_.line(left, y_of(value), left + plot_width, y_of(value), "stroke:#e6e6e6");
    svg_.text(left - 6, y_of(value) + 4, text, {.size = 10.5, .anchor = Svg::Anchor::end, .color = "#666"});
  }

  void draw_y_marks() {
    if (y_.logarithmic) {
      const double decades = std::round(std::log10(y_.most / y_.least)), stride = std::ceil(decades / 6);
      for (double d = 0; d <= decades; d += stride) {
        const double value = y_.least * std::pow(10, d);
        mark_y(value, value >= 1e-3 && value < 1e4 ? axis_text(value, value) : scientific(value));
      }
      return;
    }
    const double step = ticks(y_.most - y_.least, 6).step;
    for (const double value : marks(y_, step)) mark_y(value, axis_text(value, step));
  }

  void draw_x_marks() {
    const double step = std::max(ticks(x_.most - x_.least, 8).step, 1.0);
    for (const double value : marks(x_, step)) {
      svg_.line(x_of(value), top + plot_height, x_of(value), top + plot_height + 4, "stroke:#999");
      svg_.text(x_of(value), top + plot_height + 17, axis_text(value, step),
                {.size = 10.5, .anchor = Svg::Anchor::middle, .color = "#666"});
    }
    svg_.line(left, top + plot_height, left + plot_width, top + plot_height, "stroke:#999");
    svg_.text(left + plot_width, top + plot_height + 34, chart_.x_title, {.size = 10.5, .anchor = Svg::Anchor::end, .color = "#666"});
  }

  void draw_series(const Series& series) {
    std::string path;
    bool drawn = false;
    for (const auto& [x, y] : thinned(series.points)) {
      if (drawable(y)) path += concat(drawn ? 'L' : 'M', fixed(x_of(x), 1), ',', fixed(y_of(y), 1));
      drawn = drawable(y);
    }
    const char* const look = series.faint ? ";stroke-width:1;opacity:0.45" : ";stroke-width:2";
    svg_.path(path, concat("fill:none;stroke-linejoin:round;stroke:", series.color, look));
    if (!series.dots) return;
    for (const auto& [x, y] : thinned(series.points)) {
      if (drawable(y)) svg_.circle(x_of(x), y_of(y), 3, concat("fill:", series.color), concat(series.name, ": ", y, " at ", x));
    }
  }

  const Chart& chart_;
  Axis y_, x_ = {0, 1};
  Svg svg_;
};

}  // namespace

std::string line_chart(const Chart& chart) { return LineChart(chart).draw(); }

std::string bar_chart(const std::string& title, const std::vector<Bar>& bars) {
  constexpr double row = 21, notes = 150, whole = 2 * width + 16, head = 34;
  Svg svg(whole, head + row * static_cast<double>(bars.size()) + 8);
  svg.text(0, 18, title, {.size = 13, .color = "#111"});
  double most = 1e-300, longest = 0;
  for (const Bar& bar : bars) {
    most = std::max(most, bar.value);
    longest = std::max(longest, static_cast<double>(bar.name.size()));
  }
  const double names = std::clamp(7 * longest + 8, 120.0, 500.0);  // what their letters take
  double y = head;
  for (const Bar& bar : bars) {
    const double length = (whole - names - notes) * bar.value / most;
    svg.text(names - 8, y + 14, bar.name, {.anchor = Svg::Anchor::end});
    svg.rectangle(names, y + 3, std::max(length, 1.0), row - 6, "fill:#5b8fc7", bar.name + ": " + bar.note);
    svg.text(names + length + 8, y + 14, bar.note, {.size = 10.5, .color = "#666"});
    y += row;
  }
  return svg.finish();
}

std::vector<Point> smoothed(const std::vector<Point>& points, double span) {
  std::vector<double> sums = {0}, counts = {0};  // of the points before each
  for (const auto& [x, y] : points) {
    sums.push_back(sums.back() + (std::isfinite(y) ? y : 0));
    counts.push_back(counts.back() + (std::isfinite(y) ? 1 : 0));
  }
  const auto half = static_cast<std::size_t>(std::max(span, 1.0) / 2);
  std::vector<Point> result;
  for (std::size_t i = 0; i < points.size(); ++i) {
    // As many before as after, so that the curve does not lag.
    const std::size_t reach = std::min({half, i, points.size() - 1 - i});
    const std::size_t begin = i - reach, end = i + reach + 1;
    const double count = counts[end] - counts[begin];
    result.emplace_back(points[i].first, count > 0 ? (sums[end] - sums[begin]) / count : points[i].second);
  }
  return result;
}

}  // namespace frit::apps
