#include "apps/report/svg.h"

#include <cmath>

#include "apps/common/text.h"
#include "frit/core/error.h"

namespace frit::apps {
namespace {

std::string number(double value) { return fixed(value, 1); }

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    }
  }
  return result;
}

void Svg::rectangle(double x, double y, double width, double height, const std::string& style, const std::string& tip) {
  body_ += concat("<rect x=\"", number(x), "\" y=\"", number(y), "\" width=\"", number(std::max(width, 0.0)), "\" height=\"",
                  number(std::max(height, 0.0)), "\" style=\"", style, "\"");
  body_ += tip.empty() ? "/>\n" : concat("><title>", escaped(tip), "</title></rect>\n");
}

void Svg::circle(double x, double y, double radius, const std::string& style, const std::string& tip) {
  body_ += concat("<circle cx=\"", number(x), "\" cy=\"", number(y), "\" r=\"", number(radius), "\" style=\"", style, "\"");
  body_ += tip.empty() ? "/>\n" : concat("><title>", escaped(tip), "</title></circle>\n");
}

void Svg::line(double x1, double y1, double x2, double y2, const std::string& style) {
  body_ += concat("<line x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"", number(x2), "\" y2=\"", number(y2), "\" style=\"", style,
                  "\"/>\n");
}

void Svg::text(double x, double y, const std::string& content, const TextStyle& style) {
  constexpr const char* anchors[] = {"start", "middle", "end"};
  const std::string turn =
      style.angle == 0 ? "" : concat(" transform=\"rotate(", number(style.angle), ' ', number(x), ' ', number(y), ")\"");
  body_ += concat("<text x=\"", number(x), "\" y=\"", number(y), "\" font-size=\"", number(style.size), "\" text-anchor=\"",
                  anchors[static_cast<int>(style.anchor)], "\" fill=\"", style.color, '"', turn, '>', escaped(content), "</text>\n");
}

void Svg::path(const std::string& points, const std::string& style) {
  body_ += concat("<path d=\"", points, "\" style=\"", style, "\"/>\n");
}

std::string Svg::finish() const {
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", number(width_), ' ', number(height_), "\" width=\"",
                number(width_), "\" height=\"", number(height_), "\" font-family=\"system-ui,Helvetica,Arial,sans-serif\">\n", body_,
                "</svg>\n");
}

Ticks ticks(double most, int at_most, bool bytes) {
  constexpr double least_range = 1e-300;  // of which a part can be told from zero
  if (!(most >= least_range) || !std::isfinite(most)) return {1, 1};
  const double rough = most / at_most;
  double step = bytes ? std::exp2(std::floor(std::log2(rough))) : std::pow(10, std::floor(std::log10(rough)));
  if (bytes) {
    while (most / step > at_most) step *= 2;
  } else {
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
      if (most / (step * factor) > at_most) continue;
      step *= factor;
      break;
    }
  }
  return {step, static_cast<int>(std::floor(most / step * (1 + 1e-9))) + 1};
}

}  // namespace frit::apps
