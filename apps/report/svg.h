#pragma once

#include <string>

namespace frit::apps {

/// A picture, part by part, in pixels from the upper left corner. Texts are escaped; colours and styles are CSS's.
class Svg {
 public:
  Svg(double width, double height) : width_(width), height_(height) {}

  enum class Anchor { start, middle, end };
  struct TextStyle {
    double size = 11;
    Anchor anchor = Anchor::start;
    std::string color = "#333";
    double angle = 0;  ///< degrees, clockwise, around its place
  };

  /// `tip` is shown when a pointer rests on it.
  void rectangle(double x, double y, double width, double height, const std::string& style, const std::string& tip = "");
  void circle(double x, double y, double radius, const std::string& style, const std::string& tip = "");
  void line(double x1, double y1, double x2, double y2, const std::string& style);
  void text(double x, double y, const std::string& text, const TextStyle& style);
  void text(double x, double y, const std::string& content) { text(x, y, content, TextStyle()); }
  /// "M0,0L1,2": SVG's own language of paths.
  void path(const std::string& points, const std::string& style);

  /// The whole element, to stand in a file of its own or in a page.
  std::string finish() const;

 private:
  double width_, height_;
  std::string body_;
};

/// `text` between tags or in an attribute of XML; bytes that XML cannot hold are replaced.
std::string escaped(const std::string& text);

/// At most so many round numbers of [0, most], from 0, in steps of 1, 2 or 5 times a power of ten, or, of bytes, of two.
struct Ticks {
  double step;
  int count;
};
Ticks ticks(double most, int at_most, bool bytes = false);

}  // namespace frit::apps
