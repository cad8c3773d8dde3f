#include "frit/ops/indexing/grid_sample.h"

#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/indexing/take_along_axis.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/sizes.h"

namespace frit {
namespace {

/// An element of one axis that a place takes, and how much of it.
struct Tap {
  Value index, weight;
};

class AxisSampler {
 public:
  AxisSampler(std::int64_t size, const GridSampleOptions& options) : size_(static_cast<double>(size)), options_(options) {}

  /// Of places from -1 to 1.
  std::vector<Tap> taps(Value place) const {
    const Value at = options_.align_corners ? (place + 1.0) * (0.5 * (size_ - 1)) : (place + 1.0) * (0.5 * size_) - 0.5;
    switch (options_.mode) {
      case ResizeMode::nearest: return {tap(round(inner(at)), {})};
      case ResizeMode::linear: return linear(inner(at));
      case ResizeMode::cubic: return cubic(at);
    }
    return {};
  }

 private:
  /// Where the padding has what stands at a place outside of the image.
  Value inner(Value at) const {
    if (options_.padding == GridSampleOptions::Padding::zeros) return at;
    if (options_.padding == GridSampleOptions::Padding::reflection) at = reflected(at);
    return clamp(at, 0, size_ - 1);
  }

  /// A wave of triangles between the mirrors.
  Value reflected(Value at) const {
    const double low = options_.align_corners ? 0 : -0.5, span = options_.align_corners ? size_ - 1 : size_;
    if (span == 0) return at * 0.0;
    const Value distance = abs(at - low), rest = distance - floor(distance * (0.5 / span)) * (2 * span);
    return span - abs(rest - span) + low;
  }

  /// Without a weight: 1.
  Tap tap(Value index, Value weight) const {
    if (!weight) weight = index * 0.0 + 1.0;
    const double middle = 0.5 * (size_ - 1);
    if (options_.padding == GridSampleOptions::Padding::zeros) weight = where(less_equal(abs(index - middle), middle), weight, 0.0);
    return {cast(clamp(index, 0, size_ - 1), DType::i64), weight};
  }

  std::vector<Tap> linear(Value at) const {
    const Value before = floor(at), rest = at - before;
    return {tap(before, 1.0 - rest), tap(before + 1.0, rest)};
  }

  /// Keys' kernel with a = -0.75.
  std::vector<Tap> cubic(Value at) const {
    constexpr double a = -0.75;
    const auto near = [](Value d) { return ((a + 2) * d - (a + 3)) * square(d) + 1.0; };  // within 1
    const auto far = [](Value d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };   // from 1 to 2
    const Value before = floor(at), rest = at - before, left = 1.0 - rest;
    const Value weights[] = {far(rest + 1.0), near(rest), near(left), far(left + 1.0)};
    std::vector<Tap> taps;
    for (int i = 0; i < 4; ++i) taps.push_back(tap(inner(before + (i - 1.0)), weights[i]));
    return taps;
  }

  double size_;
  GridSampleOptions options_;
};

}  // namespace

Value grid_sample(Value x, Value grid, const GridSampleOptions& options) {
  const int axes = x.rank() - 2;
  require(axes >= 1 && grid.rank() == x.rank() && grid.dim(0) == x.dim(0) && grid.dim(-1) == axes && is_floating(grid.dtype()) &&
              is_floating(x.dtype()),
          "grid_sample: both must be floating, the grid (N, the result's image axes, one number an image axis), for the input ", x.type(),
          " got ", grid.type());
  if (is_half(grid.dtype())) grid = cast(grid, DType::f32);  // halves do not have every place
  const std::int64_t elements = element_count(Shape(std::span(x.shape().begin() + 2, x.shape().end())));
  require(elements > 0, "grid_sample: the image has no elements (input ", x.shape(), ')');
  const std::int64_t results = element_count(Shape(std::span(grid.shape().begin() + 1, grid.shape().end() - 1)));
  const Value places = reshape(grid, {size_of(grid, 0), 1, results, axes});
  // Every choice of a tap on each axis is an element: its index in the whole image, and its weight.
  std::vector<Tap> taps = {{}};
  for (int axis = 0; axis < axes; ++axis) {
    const std::int64_t size = x.dim(axis + 2);
    const std::vector<Tap> own = AxisSampler(size, options).taps(select(places, -1, axes - 1 - axis));
    std::vector<Tap> joined;
    for (const Tap& first : taps) {
      for (const Tap& second : own) {
        joined.push_back(!first.index ? second : Tap{first.index * static_cast<double>(size) + second.index, first.weight * second.weight});
      }
    }
    taps = std::move(joined);
  }
  const Value flat = reshape(x, {size_of(x, 0), size_of(x, 1), elements});
  Value sum;
  for (const Tap& tap : taps) {
    const Value term = ops::take_along_axis(flat, tap.index, 2, /*keep_dims=*/true) * cast(tap.weight, x.dtype());
    sum = sum ? sum + term : term;
  }
  std::vector<Size> sizes = ops::sizes_of(grid);
  sizes.pop_back();
  sizes.insert(sizes.begin() + 1, size_of(x, 1));
  return ops::reshape_to(sum, sizes);
}

}  // namespace frit
