#include "frit/ops/shape/resize.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "frit/ops/linear/axis_product.h"
#include "frit/ops/shape/sizes.h"

namespace frit {
namespace {

/// One image axis.
struct Axis {
  int axis;
  std::int64_t from, to;
  std::optional<double> factor;

  /// Elements of the input for each of the result.
  double step(bool align_corners) const {
    const auto input = static_cast<double>(from), output = static_cast<double>(to);
    if (align_corners) return to > 1 ? (input - 1) / (output - 1) : 0;
    return factor ? 1 / *factor : input / output;
  }
  bool stays(const ResizeOptions& o) const { return from == to && (!factor || *factor == 1 || o.align_corners); }
};

std::vector<Axis> axes_of(Value input, const ResizeOptions& o) {
  const int images = input.rank() - 2;
  require(images >= 1 && images <= 3, "resize: input must be (N, C, ...) with 1 to 3 image axes, got ", input.shape());
  require(o.size.empty() != o.scale_factor.empty(), "resize: one of size and scale_factor is needed, got ",
          o.size.empty() ? "none" : "both");
  require(!o.align_corners || o.mode != ResizeMode::nearest, "resize: align_corners does not go with nearest");
  const std::size_t given = o.size.empty() ? o.scale_factor.size() : static_cast<std::size_t>(o.size.rank());
  require(given == 1 || given == static_cast<std::size_t>(images), "resize: ", o.size.empty() ? "scale_factor" : "size", " has ", given,
          " numbers, expected 1 or ", images, " (input ", input.shape(), ")");
  std::vector<Axis> axes;
  for (int i = 0; i < images; ++i) {
    Axis axis{i + 2, input.dim(i + 2), 0, std::nullopt};
    if (o.size.empty()) {
      axis.factor = o.scale_factor[given == 1 ? 0 : static_cast<std::size_t>(i)];
      require(std::isfinite(*axis.factor) && *axis.factor > 0 && *axis.factor < 1e9, "resize: scale_factor must be above 0, got ",
              *axis.factor);
      axis.to = static_cast<std::int64_t>(std::floor(static_cast<double>(axis.from) * *axis.factor));
    } else {
      axis.to = o.size[given == 1 ? 0 : i];
    }
    require(axis.from > 0 && axis.to > 0, "resize: axis ", axis.axis, " of ", axis.from, " cannot become ", axis.to, " (input ",
            input.shape(), ")");
    axes.push_back(axis);
  }
  return axes;
}

/// The weights of the elements `first` ... at a place `t` beyond element first + 1 if cubic, else beyond `first`.
std::vector<double> weights_at(double t, ResizeMode mode) {
  if (mode == ResizeMode::linear) return {1 - t, t};
  constexpr double a = -0.75;
  const auto near = [](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {far(1 + t), near(t), near(1 - t), far(2 - t)};
}

ops::Matrix interpolation(const Axis& axis, const ResizeOptions& o) {
  ops::Matrix matrix("resize", axis.to, axis.from);
  const double step = axis.step(o.align_corners);
  for (std::int64_t row = 0; row < axis.to; ++row) {
    const auto place = static_cast<double>(row);
    if (o.mode == ResizeMode::nearest) {  // float32, as in PyTorch
      const auto nearest = static_cast<std::int64_t>(std::floor(static_cast<float>(row) * static_cast<float>(step)));
      matrix.at(row, std::min(nearest, axis.from - 1)) = 1;
      continue;
    }
    double source = o.align_corners ? place * step : (place + 0.5) * step - 0.5;
    if (o.mode == ResizeMode::linear) source = std::max(0.0, source);
    const double below = std::floor(source);
    const std::vector<double> weights = weights_at(source - below, o.mode);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::int64_t column = static_cast<std::int64_t>(below) + static_cast<std::int64_t>(i) - (o.mode == ResizeMode::cubic ? 1 : 0);
      matrix.at(row, std::clamp<std::int64_t>(column, 0, axis.from - 1)) += weights[i];
    }
  }
  return matrix;
}

/// Every element so many times along each axis but the first.
Value repeat_elements(Value x, const Dims& times) {
  if (std::all_of(times.begin(), times.end(), [](std::int64_t n) { return n == 1; })) return x;
  Shape apart, wide, joined;
  for (int axis = 0; axis < x.rank(); ++axis) {
    for (Shape* shape : {&apart, &wide}) shape->push_back(x.dim(axis));
    if (times[axis] > 1) {
      apart.push_back(1);
      wide.push_back(times[axis]);
    }
    joined.push_back(x.dim(axis) * times[axis]);
  }
  wide[0] = -1;
  return ops::reshape_to(expand(ops::reshape_to(x, ops::with_batch_of(x, apart)), wide), ops::with_batch_of(x, joined));
}

}  // namespace

Value resize(Value input, const ResizeOptions& o) {
  const bool nearest = o.mode == ResizeMode::nearest;
  Dims times = Dims::filled(input.rank(), 1);
  Value result = input;
  for (const Axis& axis : axes_of(input, o)) {
    if (axis.stays(o)) continue;
    if (nearest && axis.to % axis.from == 0 && axis.step(false) * static_cast<double>(axis.to) == static_cast<double>(axis.from)) {
      times[axis.axis] = axis.to / axis.from;
    } else if (nearest && axis.from % axis.to == 0 && axis.step(false) == static_cast<double>(axis.from / axis.to)) {
      result = slice(result, axis.axis, 0, axis.from, axis.from / axis.to);
    } else {
      result = ops::axis_product(result, axis.axis, interpolation(axis, o));
    }
  }
  return repeat_elements(result, times);
}

}  // namespace frit
