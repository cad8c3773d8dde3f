#include <algorithm>
#include <cmath>

#include "frit/models/onnx/operators/helpers.h"

namespace frit::onnx {
namespace {

struct Interpolation {
  std::string mode, coordinates, nearest;
  double cubic = -0.75, extrapolated = 0;
  bool exclude_outside = false;
};

/// How one axis is resized.
struct Axis {
  std::int64_t from, to;
  double scale;
  double begin = 0, end = 1;  ///< of the region that tf_crop_and_resize takes
};

/// The place in the input of an output's element.
double source_place(const Interpolation& kind, const Axis& axis, std::int64_t to) {
  const auto x = static_cast<double>(to), size = static_cast<double>(axis.from);
  // The standard divides by the size that the scale gives, which need not be whole.
  if (kind.coordinates == "align_corners") return axis.to == 1 ? 0 : x * (size - 1) / (size * axis.scale - 1);
  if (kind.coordinates == "asymmetric") return x / axis.scale;
  if (kind.coordinates == "pytorch_half_pixel" && axis.to == 1) return 0;
  if (kind.coordinates == "tf_half_pixel_for_nn") return (x + 0.5) / axis.scale;
  if (kind.coordinates == "tf_crop_and_resize") {
    if (axis.to == 1) return 0.5 * (axis.begin + axis.end) * (size - 1);
    return axis.begin * (size - 1) + x * (axis.end - axis.begin) * (size - 1) / static_cast<double>(axis.to - 1);
  }
  return (x + 0.5) / axis.scale - 0.5;
}

double nearest_place(const Interpolation& kind, double place) {
  if (kind.nearest == "floor") return std::floor(place);
  if (kind.nearest == "ceil") return std::ceil(place);
  return kind.nearest == "round_prefer_ceil" ? std::floor(place + 0.5) : std::ceil(place - 0.5);
}

double weight_at(const Interpolation& kind, double distance) {
  const double d = std::abs(distance), a = kind.cubic;
  if (kind.mode == "linear") return std::max(0.0, 1 - d);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/// Row by row of the output, what the input's elements count. Rows outside of the input that are to be extrapolated are zero.
std::vector<double> weights_of(const Interpolation& kind, const Axis& axis, std::vector<bool>& outside) {
  std::vector<double> weights(static_cast<std::size_t>(axis.from * axis.to), 0);
  const std::int64_t reach = kind.mode == "linear" ? 1 : 2;
  for (std::int64_t to = 0; to < axis.to; ++to) {
    double* const row = weights.data() + to * axis.from;
    const double place = source_place(kind, axis, to), last = static_cast<double>(axis.from - 1);
    const bool is_outside = kind.coordinates == "tf_crop_and_resize" && (place < 0 || place > last);
    outside.push_back(is_outside);
    if (is_outside) continue;
    const auto base = static_cast<std::int64_t>(std::floor(place));
    double total = 0;
    for (std::int64_t i = base - reach + 1; i <= base + reach; ++i) {
      const bool beyond = i < 0 || i >= axis.from;
      if (beyond && kind.exclude_outside) continue;
      const double weight = weight_at(kind, place - static_cast<double>(i));
      row[std::clamp<std::int64_t>(i, 0, axis.from - 1)] += weight;
      total += weight;
    }
    for (std::int64_t i = 0; i < axis.from && kind.exclude_outside; ++i) row[i] /= total;
  }
  return weights;
}

Value resize_nearest(const Call& call, Value x, int dim, const Interpolation& kind, const Axis& axis) {
  Sizes places;
  const bool whole = axis.from > 0 && axis.to % axis.from == 0;
  bool repeated = whole;
  for (std::int64_t to = 0; to < axis.to; ++to) {
    const double last = static_cast<double>(axis.from - 1);
    places.push_back(static_cast<std::int64_t>(std::clamp(nearest_place(kind, source_place(kind, axis, to)), 0.0, last)));
    repeated = repeated && places.back() == to / (axis.to / axis.from);
  }
  if (!repeated || x.rank() == Dims::max_rank) return take(call, x, dim, places);
  Shape wide = x.shape(), shape = wide;
  wide.insert(dim + 1, axis.to / axis.from);
  shape[dim] = axis.to;
  return reshape(expand(unsqueeze(x, dim + 1), wide), shape);
}

Value resize_by_weights(const Call& call, Value x, int dim, const Interpolation& kind, const Axis& axis) {
  std::vector<bool> outside;
  const std::vector<double> weights = weights_of(kind, axis, outside);
  const Value matrix = call.emit(weights, {axis.to, axis.from}, x.dtype());
  Value y = x;
  if (x.rank() == 1) {
    y = squeeze(matmul(matrix, unsqueeze(x, 1)), 1);
  } else if (dim == x.rank() - 2) {
    y = matmul(matrix, x);
  } else {
    y = transpose(matmul(transpose(x, dim, -1), transpose(matrix, 0, 1)), dim, -1);
  }
  if (std::none_of(outside.begin(), outside.end(), [](bool is) { return is; })) return y;
  Shape shape = Dims::filled(x.rank(), 1);
  shape[dim] = axis.to;
  const std::vector<double> mask(outside.begin(), outside.end());
  const Value is_outside = call.emit(mask, shape, DType::u8);
  return where(is_outside, ops::scalar(y, kind.extrapolated), y);
}

Value resize_axis(const Call& call, Value x, int dim, const Interpolation& kind, const Axis& axis) {
  constexpr std::int64_t most_weights = 1 << 22;
  const bool crops = kind.coordinates == "tf_crop_and_resize";
  if (axis.from == axis.to && axis.scale == 1 && !crops) return x;
  const bool nearest = kind.mode == "nearest";
  call.require_support(!nearest || !crops, "mode = \"nearest\" of a region");
  call.require_support(axis.from > 0 && axis.to > 0 && axis.to <= (nearest ? longest_list : most_weights / axis.from), "an axis of ",
                       axis.from, " elements to ", axis.to);
  if (nearest) return resize_nearest(call, x, dim, kind, axis);
  return resize_by_weights(call, x, dim, kind, axis);
}

/// The new sizes and the scales, of the axes that are named, or all.
std::vector<Axis> axes_to_resize(const Call& call, const Shape& shape, const std::vector<double>& scales, const Sizes& sizes) {
  const Sizes named = call.integers("axes");
  const auto count = named.empty() ? static_cast<std::size_t>(shape.rank()) : named.size();
  call.require_support((scales.empty() ? sizes.size() : scales.size()) == count, "it has scales or sizes for another number of axes");
  std::vector<Axis> axes;
  for (const std::int64_t size : shape) axes.push_back({size, size, 1});
  for (std::size_t i = 0; i < count; ++i) {
    Axis& axis = axes[named.empty() ? i : static_cast<std::size_t>(normalize_axis(named[i], shape.rank(), "axes"))];
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
  return axes;
}

Values resize_all(const Call& call, const Interpolation& kind, const std::vector<Axis>& axes) {
  Value x = as_floating(call[0]);
  for (int dim = 0; dim < x.rank(); ++dim) x = resize_axis(call, x, dim, kind, axes[static_cast<std::size_t>(dim)]);
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
  call.require_support(is_any_of(kind.coordinates, {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric",
                                                    "tf_half_pixel_for_nn", "tf_crop_and_resize"}),
                       "coordinate_transformation_mode = \"", kind.coordinates, '"');
  call.require_support(is_any_of(kind.nearest, {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"}), "nearest_mode = \"",
                       kind.nearest, '"');
  call.require_support(call.integer("antialias", 0) == 0, "antialias");
  call.require_support(call.text("keep_aspect_ratio_policy", "stretch") == "stretch", "keep_aspect_ratio_policy");
  const std::size_t place = old ? 1 : 2;
  const std::vector<double> scales = call.has_input(place) ? call.reals(place) : std::vector<double>();
  const Sizes sizes = scales.empty() ? call.integers(3) : Sizes();
  std::vector<Axis> axes = axes_to_resize(call, call[0].shape(), scales, sizes);
  if (kind.coordinates == "tf_crop_and_resize") {
    const std::vector<double> region = call.reals(1);
    call.require_support(region.size() == 2 * axes.size(), "its region has ", region.size(), " numbers, expected ", 2 * axes.size());
    for (const double bound : region) call.require_support(std::abs(bound) < 1e9, "its region has ", bound);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      axes[i].begin = region[i];
      axes[i].end = region[i + axes.size()];
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
