#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "frit/models/onnx/operators/helpers.h"
#include "frit/ops/shape/resize_axis.h"
#include "frit/ops/shape/sizes.h"

namespace frit::onnx {
namespace {

struct Interpolation {
  std::string mode, coordinates, nearest;
  double cubic = -0.75, extrapolated = 0;
  bool exclude_outside = false;

  bool crops() const { return coordinates == "tf_crop_and_resize"; }
};

/// How one axis is resized.
struct Axis {
  std::int64_t from, to;
  double scale;
  double begin = 0, end = 1;  ///< of the region that tf_crop_and_resize takes
};

/// The output's element i lies at step * i + offset between the input's elements.
struct Places {
  double step, offset;
};

Places places_of(const Interpolation& kind, const Axis& axis) {
  const double size = static_cast<double>(axis.from), to = static_cast<double>(axis.to), step = 1 / axis.scale;
  if (kind.crops()) {
    if (axis.to == 1) return {0, 0.5 * (axis.begin + axis.end) * (size - 1)};
    return {(axis.end - axis.begin) * (size - 1) / (to - 1), axis.begin * (size - 1)};
  }
  if (axis.from == axis.to && axis.scale == 1) return {1, 0};
  // The standard divides by the size that the scale gives, which need not be whole.
  if (kind.coordinates == "align_corners") return {axis.to == 1 ? 0 : (size - 1) / (size * axis.scale - 1), 0};
  if (kind.coordinates == "asymmetric") return {step, 0};
  if (kind.coordinates == "half_pixel_symmetric") return {step, 0.5 * size * (1 - to / (size * axis.scale)) + 0.5 * step - 0.5};
  if (kind.coordinates == "pytorch_half_pixel" && axis.to == 1) return {0, 0};
  return {step, kind.coordinates == "tf_half_pixel_for_nn" ? 0.5 * step : 0.5 * step - 0.5};
}

bool stays(const Interpolation& kind, const Axis& axis) {
  const auto [step, offset] = places_of(kind, axis);
  return axis.from == axis.to && (axis.from == 1 || (step == 1 && offset == 0));
}

/// The axes of an image.
ops::ResizeAttributes attributes_for(const Interpolation& kind, std::span<const Axis> axes) {
  ops::ResizeAttributes attributes{.mode = kind.mode, .cubic = kind.cubic, .exclude_outside = kind.exclude_outside};
  attributes.round_up = kind.nearest == "ceil" || kind.nearest == "round_prefer_floor";
  const bool rounds = kind.mode == "nearest" && kind.nearest.starts_with("round");
  const double half = !rounds ? 0 : attributes.round_up ? -0.5 : 0.5;
  for (const Axis& axis : axes) {
    const auto [step, offset] = places_of(kind, axis);
    stays(kind, axis) ? attributes.add_axis(axis.from, axis.to, 1, 0) : attributes.add_axis(axis.from, axis.to, step, offset + half);
  }
  return attributes;
}

/// Of any tensor, as images with one channel.
Value resize_axis(Value x, int dim, const Interpolation& kind, const Axis& axis) {
  Shape shape = x.shape();
  const std::int64_t outer = element_count(Shape(std::span(shape.begin(), shape.begin() + dim)));
  const std::int64_t inner = element_count(Shape(std::span(shape.begin() + dim + 1, shape.end())));
  const Value images = ops::reshape_to(x, ops::with_batch_of(x, {outer, 1, axis.from, inner}));
  const Value resized = ops::resize_by(images, attributes_for(kind, std::array{axis, Axis{inner, inner, 1}}));
  shape[dim] = axis.to;
  return ops::reshape_to(resized, ops::with_batch_of(x, shape));
}

/// What lies outside of the input is a number.
Value extrapolated(const Call& call, Value y, int dim, const Interpolation& kind, const Axis& axis) {
  constexpr double tolerance = 1e-6;
  const auto [step, offset] = places_of(kind, axis);
  std::vector<double> outside;
  for (std::int64_t to = 0; to < axis.to; ++to) {
    const double place = step * static_cast<double>(to) + offset;
    outside.push_back(place < -tolerance || place > static_cast<double>(axis.from - 1) + tolerance);
  }
  if (std::none_of(outside.begin(), outside.end(), [](double is) { return is > 0; })) return y;
  Shape shape = Dims::filled(y.rank(), 1);
  shape[dim] = axis.to;
  return where(call.emit(outside, shape, DType::u8), ops::scalar(y, kind.extrapolated), y);
}

/// The axes that are named, or all.
std::vector<std::size_t> resized_axes(const Call& call, int rank) {
  const Sizes named = call.integers("axes");
  std::vector<std::size_t> places;
  for (const std::int64_t axis : named) places.push_back(static_cast<std::size_t>(normalize_axis(axis, rank, "axes")));
  for (int axis = 0; axis < rank && named.empty(); ++axis) places.push_back(static_cast<std::size_t>(axis));
  return places;
}

/// Sizes of which one alone holds, all axes having its scale: the least one, or the largest.
void keep_aspect_ratio(const Call& call, const std::string& policy, std::vector<Axis>& axes, const std::vector<std::size_t>& places) {
  if (policy == "stretch" || places.empty()) return;
  const auto [least, largest] =
      std::minmax_element(places.begin(), places.end(), [&](std::size_t a, std::size_t b) { return axes[a].scale < axes[b].scale; });
  const double scale = axes[policy == "not_larger" ? *least : *largest].scale;
  for (const std::size_t place : places) {
    const double size = static_cast<double>(axes[place].from) * scale;
    call.require_support(size >= 0 && size < 1e9, "sizes of a scale of ", scale);
    axes[place].scale = scale;
    axes[place].to = static_cast<std::int64_t>(std::floor(size + 0.5));
  }
}

/// The new sizes and the scales.
std::vector<Axis> axes_to_resize(const Call& call, const Shape& shape, const std::vector<double>& scales, const Sizes& sizes) {
  const std::vector<std::size_t> places = resized_axes(call, shape.rank());
  call.require_support((scales.empty() ? sizes.size() : scales.size()) == places.size(),
                       "it has scales or sizes for another number of axes");
  std::vector<Axis> axes;
  for (const std::int64_t size : shape) axes.push_back({size, size, 1});
  for (std::size_t i = 0; i < places.size(); ++i) {
    Axis& axis = axes[places[i]];
    const auto from = static_cast<double>(axis.from);
    if (scales.empty()) {
      axis.to = sizes[i];
      axis.scale = static_cast<double>(axis.to) / from;
    } else {
      call.require_support(scales[i] > 0 && from * scales[i] < 1e9, "scales has ", scales[i]);
      axis.scale = scales[i];
      axis.to = static_cast<std::int64_t>(std::floor(from * scales[i]));
    }
  }
  if (scales.empty()) keep_aspect_ratio(call, call.text("keep_aspect_ratio_policy", "stretch"), axes, places);
  return axes;
}

Values resize_all(const Call& call, const Interpolation& kind, const std::vector<Axis>& axes) {
  Value x = as_floating(call[0]);
  std::vector<int> resized;
  for (int dim = 0; dim < x.rank(); ++dim) {
    const Axis& axis = axes[static_cast<std::size_t>(dim)];
    if (stays(kind, axis)) continue;
    call.require_support(axis.from > 0 && axis.to > 0 && axis.to <= longest_list, "an axis of ", axis.from, " elements to ", axis.to);
    resized.push_back(dim);
  }
  if (resized.empty()) return {call[0]};
  call.require_support(x.type().elements() > 0, "an input without elements");
  if (resized.front() >= 2 && x.rank() <= 5) {
    x = ops::resize_by(x, attributes_for(kind, std::span(axes).subspan(2)));
  } else {
    for (const int dim : resized) x = resize_axis(x, dim, kind, axes[static_cast<std::size_t>(dim)]);
  }
  for (const int dim : resized) {
    if (kind.crops()) x = extrapolated(call, x, dim, kind, axes[static_cast<std::size_t>(dim)]);
  }
  return {cast(x, call[0].dtype())};
}

bool is_any_of(const std::string& text, std::initializer_list<const char*> known) {
  return std::find(known.begin(), known.end(), text) != known.end();
}

/// Inputs: x, [region,] scales, sizes; opset 10 has x and scales alone, and no attribute but the mode.
Values resize(const Call& call) {
  const bool old = call.opset() < 11;
  Interpolation kind{.mode = call.text("mode", "nearest"),
                     .coordinates = call.text("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel"),
                     .nearest = call.text("nearest_mode", old ? "floor" : "round_prefer_floor"),
                     .cubic = call.real("cubic_coeff_a", -0.75),
                     .extrapolated = call.real("extrapolation_value", 0),
                     .exclude_outside = call.integer("exclude_outside", 0) != 0};
  call.require_support(is_any_of(kind.mode, {"nearest", "linear", "cubic"}), "mode = \"", kind.mode, '"');
  call.require_support(is_any_of(kind.coordinates, {"half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners",
                                                    "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"}),
                       "coordinate_transformation_mode = \"", kind.coordinates, '"');
  call.require_support(is_any_of(kind.nearest, {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"}), "nearest_mode = \"",
                       kind.nearest, '"');
  call.require_support(call.integer("antialias", 0) == 0, "antialias");
  call.require_support(is_any_of(call.text("keep_aspect_ratio_policy", "stretch"), {"stretch", "not_larger", "not_smaller"}),
                       "keep_aspect_ratio_policy");
  const std::size_t place = old ? 1 : 2;
  const std::vector<double> scales = call.has_input(place) ? call.reals(place) : std::vector<double>();
  const Sizes sizes = scales.empty() ? call.integers(3) : Sizes();
  std::vector<Axis> axes = axes_to_resize(call, call[0].shape(), scales, sizes);
  if (kind.crops()) {
    const std::vector<double> region = call.reals(1);
    const std::vector<std::size_t> places = resized_axes(call, call[0].rank());
    call.require_support(region.size() == 2 * places.size(), "its region has ", region.size(), " numbers, expected ", 2 * places.size());
    for (const double bound : region) call.require_support(std::abs(bound) < 1e9, "its region has ", bound);
    for (std::size_t i = 0; i < places.size(); ++i) {
      axes[places[i]].begin = region[i];
      axes[places[i]].end = region[i + places.size()];
    }
  }
  return resize_all(call, kind, axes);
}

Values upsample(const Call& call) {
  const Interpolation kind{.mode = call.text("mode", "nearest"), .coordinates = "asymmetric", .nearest = "floor"};
  call.require_support(is_any_of(kind.mode, {"nearest", "linear"}), "mode = \"", kind.mode, '"');
  const std::vector<double> scales = call.has("scales") ? call.reals("scales") : call.reals(1);
  return resize_all(call, kind, axes_to_resize(call, call[0].shape(), scales, {}));
}

}  // namespace

void add_resizing(OperatorTable& table) {
  table["Resize"] = resize;
  table["Upsample"] = upsample;
}

}  // namespace frit::onnx
