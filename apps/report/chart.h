#pragma once

#include <string>
#include <utility>
#include <vector>

namespace frit::apps {

struct Series {
  std::string name;
  std::string color;
  std::vector<std::pair<double, double>> points;  ///< by x; a y that is not finite leaves a gap
  bool dots = false;                              ///< a mark at each point
  bool faint = false;                             ///< behind the others
};

struct Chart {
  std::string title;
  std::string x_title = "step";
  std::vector<Series> series;
  bool from_zero = false;    ///< the axis of y begins at 0
  bool logarithmic = false;  ///< where all values are positive
};

/// An SVG element.
std::string line_chart(const Chart& chart);

struct Bar {
  std::string name, note;
  double value;
};
/// Bars that lie one under another, each with its note after it.
std::string bar_chart(const std::string& title, const std::vector<Bar>& bars);

/// A curve that follows another: each point is the mean of the `span` points around it.
std::vector<std::pair<double, double>> smoothed(const std::vector<std::pair<double, double>>& points, double span);

}  // namespace frit::apps
