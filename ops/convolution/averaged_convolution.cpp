// Averages of what a convolution gives, over windows of its positions, from fewer products: the sums over taps t and positions o change
// places. On an axis on which the window is all there is, the input is averaged once for each tap,
//   mean over o of sum over t of weight[t] input[o + t] = sum over t of weight[t] (mean over o of input[o + t]),
// and on others the weight's taps are, to those of a larger kernel,
//   mean over o of sum over t of weight[t] input[o + t] = sum over u of (mean over o of weight[u - o]) input[u].

#include "frit/ops/convolution/averaged_convolution.h"

#include <algorithm>
#include <optional>

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

/// Elements first, ..., end - 1 of an axis.
struct Range {
  std::int64_t first, end;

  std::int64_t size() const { return end - first; }
  friend bool operator==(const Range&, const Range&) = default;
};
using Ranges = std::vector<Range>;

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return -floor_divide(-a, b); }

/// One image axis of a convolution, and of the averages of its output.
struct Axis {
  std::int64_t input, kernel, stride, padding, dilation, output, window, window_stride;

  std::int64_t averages() const { return (output - window) / window_stride + 1; }
  bool is_whole() const { return window == output; }
  bool is_kept() const { return window == 1 && window_stride == 1; }
};

/// What becomes of it: a convolution from averages of the input's elements with averages of the weight's taps.
struct AveragedAxis {
  std::int64_t kernel, stride = 1, padding = 0, dilation = 1;
  std::int64_t first_result = 0;                  ///< of the convolution's that is an average
  std::int64_t pool_window = 1, pool_stride = 1;  ///< of the input, before the convolution
  Ranges elements = {};                           ///< of the input, for each tap; none: all stay
  Ranges taps = {};                               ///< of the weight, for each of its new ones; none: all stay
};

/// On an axis that is averaged as a whole, so that there is one result.
AveragedAxis of_whole_axis(Ranges elements) {
  const bool alike = std::ranges::all_of(elements, [&](const Range& range) { return range == elements[0]; });
  AveragedAxis averaged{.kernel = alike ? 1 : static_cast<std::int64_t>(elements.size())};
  if (alike && elements.size() > 1) averaged.taps = {{0, static_cast<std::int64_t>(elements.size())}};
  averaged.elements = std::move(elements);
  if (alike) averaged.elements.resize(1);
  return averaged;
}

std::optional<AveragedAxis> of_convolution(const Axis& a) {
  if (a.is_kept()) return AveragedAxis{.kernel = a.kernel, .stride = a.stride, .padding = a.padding, .dilation = a.dilation};
  if (a.stride != 1) return std::nullopt;
  if (a.is_whole()) {
    Ranges elements;
    for (std::int64_t tap = 0; tap < a.kernel; ++tap) {
      const std::int64_t first = tap * a.dilation - a.padding;
      elements.push_back({std::max<std::int64_t>(first, 0), std::min(first + a.output, a.input)});
    }
    return of_whole_axis(std::move(elements));
  }
  if (a.kernel == 1 && a.padding == 0) return AveragedAxis{.kernel = 1, .pool_window = a.window, .pool_stride = a.window_stride};
  if (a.dilation != 1) return std::nullopt;
  AveragedAxis averaged{.kernel = a.kernel + a.window - 1, .stride = a.window_stride, .padding = a.padding};
  for (std::int64_t tap = 0; tap < averaged.kernel; ++tap) {
    averaged.taps.push_back({std::max<std::int64_t>(tap - a.window + 1, 0), std::min(tap + 1, a.kernel)});
  }
  return averaged;
}

/// Element i of the input and tap t meet at output i stride - padding + t.
std::optional<AveragedAxis> of_transposed(const Axis& a) {
  if (a.dilation != 1 || a.padding >= a.kernel) return std::nullopt;
  if (a.is_whole()) {
    Ranges elements;
    for (std::int64_t tap = 0; tap < a.kernel; ++tap) {
      elements.push_back({std::max<std::int64_t>(ceil_divide(a.padding - tap, a.stride), 0),
                          std::min(floor_divide(a.output - 1 + a.padding - tap, a.stride) + 1, a.input)});
    }
    return of_whole_axis(std::move(elements));
  }
  if (a.window_stride % a.stride != 0) return std::nullopt;
  // Average number n has the elements n step + first, ..., n step + last.
  const std::int64_t step = a.window_stride / a.stride, first = ceil_divide(a.padding - a.kernel + 1, a.stride),
                     last = floor_divide(a.window - 1 + a.padding, a.stride);
  const std::int64_t missing = (a.averages() - 1) * step + last - (a.input - 1), padding = std::max({-first, missing, std::int64_t{0}});
  if ((padding + first) % step != 0) return std::nullopt;
  AveragedAxis averaged{.kernel = last - first + 1, .stride = step, .padding = padding, .first_result = (padding + first) / step};
  for (std::int64_t element = first; element <= last; ++element) {
    const std::int64_t begin = a.padding - element * a.stride;
    averaged.taps.push_back({std::max<std::int64_t>(begin, 0), std::min(begin + a.window, a.kernel)});
  }
  return averaged;
}

/// `scale` times the sum of a range's elements along an axis, of which 1 remains. A mean, so that halves do not overflow.
Value sum_of(Value x, int axis, const Range& range, double scale) {
  const Value part = range.size() == x.dim(axis) ? x : slice(x, axis, range.first, range.end);
  if (range.size() == 1) return scale == 1 ? part : part * scale;
  return mean(part, {axis}, /*keep_dims=*/true) * (static_cast<double>(range.size()) * scale);
}

/// The same of several ranges, one after the other along the axis. What all share is summed once.
Value sums_of(Value x, int axis, const Ranges& ranges, double scale) {
  Range shared{0, x.dim(axis)};
  for (const Range& range : ranges) shared = {std::max(shared.first, range.first), std::min(shared.end, range.end)};
  const Value of_shared = ranges.size() > 1 && shared.size() > 1 ? sum_of(x, axis, shared, scale) : Value();
  Values sums;
  for (const Range& range : ranges) {
    const Ranges others = of_shared ? Ranges{{range.first, shared.first}, {shared.end, range.end}} : Ranges{range};
    Value sum = of_shared;
    for (const Range& other : others) {
      if (other.size() == 0) continue;
      const Value more = sum_of(x, axis, other, scale);
      sum = sum ? sum + more : more;
    }
    sums.push_back(sum);
  }
  return sums.size() == 1 ? sums[0] : concatenate(sums, axis);
}

struct AveragedConvolution {
  std::vector<Axis> given;
  std::vector<AveragedAxis> axes;

  /// Whether no sum is over nothing, and there are clearly fewer products. A pool goes before a convolution of size 1 where that has no
  /// more to read and write than the pool after it would have.
  bool pays(const Shape& weight, bool transposed) const {
    constexpr std::int64_t largest_kernel = 8;
    constexpr double most_products = 0.75;
    double before = 1, after = 1;
    std::int64_t pooled = 1;
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      const AveragedAxis& averaged = axes[axis];
      for (const Ranges& ranges : {averaged.elements, averaged.taps}) {
        if (std::ranges::any_of(ranges, [](const Range& range) { return range.size() <= 0; })) return false;
      }
      if (averaged.kernel > std::max(largest_kernel, given[axis].kernel)) return false;
      before *= static_cast<double>((transposed ? given[axis].input : given[axis].output) * given[axis].kernel);
      after *= static_cast<double>(given[axis].averages() * averaged.kernel);
      pooled *= averaged.pool_stride;
    }
    return after <= most_products * before && (pooled == 1 || weight[0] * pooled >= weight[1]);
  }

  Value averaged_input(Value x) const {
    PoolOptions pool;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      pool.kernel_size.push_back(axes[i].pool_window);
      pool.stride.push_back(axes[i].pool_stride);
      if (!axes[i].elements.empty()) x = sums_of(x, static_cast<int>(i) + 2, axes[i].elements, 1 / static_cast<double>(given[i].window));
    }
    const bool pools = std::ranges::any_of(axes, [](const AveragedAxis& axis) { return axis.pool_window > 1 || axis.pool_stride > 1; });
    return !pools ? x : axes.size() == 2 ? avg_pool2d(x, pool) : avg_pool3d(x, pool);
  }

  /// In float32 at least: in halves each sum would be rounded.
  Value averaged_weight(const Value& given_weight) const {
    const DType dtype = given_weight.dtype();
    Value weight = is_half(dtype) ? cast(given_weight, DType::f32) : given_weight;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (axes[i].taps.empty()) continue;
      const double scale = axes[i].elements.empty() ? 1 / static_cast<double>(given[i].window) : 1;
      weight = sums_of(weight, static_cast<int>(i) + 2, axes[i].taps, scale);
    }
    return cast(weight, dtype);
  }
};

Value average(std::span<const Value> inputs, const Attributes& attributes, const Averaging& averaging, bool transposed) {
  const Shape &input = inputs[0].shape(), &weight = inputs[1].shape();
  const int rank = input.rank() - 2;
  const ConvolutionOptions options = canonical(attributes.as<ConvolutionOptions>(), rank);
  if (options.groups != 1 || std::ranges::any_of(input, [](std::int64_t size) { return size == 0; })) return {};
  AveragedConvolution convolution;
  for (int axis = 0; axis < rank; ++axis) {
    const Axis a{.input = input[axis + 2],
                 .kernel = weight[axis + 2],
                 .stride = options.stride[axis],
                 .padding = options.padding[axis],
                 .dilation = options.dilation[axis],
                 .output = averaging.image[axis],
                 .window = averaging.window[axis],
                 .window_stride = averaging.stride[axis]};
    const std::optional<AveragedAxis> averaged = transposed ? of_transposed(a) : of_convolution(a);
    if (!averaged) return {};
    convolution.given.push_back(a);
    convolution.axes.push_back(*averaged);
  }
  if (!convolution.pays(weight, transposed)) return {};
  ConvolutionOptions left;
  for (const AveragedAxis& axis : convolution.axes) {
    left.stride.push_back(axis.stride);
    left.padding.push_back(axis.padding);
    left.dilation.push_back(axis.dilation);
  }
  const Value x = convolution.averaged_input(inputs[0]), averages = convolution.averaged_weight(inputs[1]);
  Value result = ops::convolution(x, transposed ? transpose(averages, 0, 1) : averages, left, bias_or_none(inputs));
  for (int axis = 0; axis < rank; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    const std::int64_t first = convolution.axes[i].first_result, end = first + convolution.given[i].averages();
    if (first > 0 || end < result.dim(axis + 2)) result = slice(result, axis + 2, first, end);
  }
  return result.shape() == averaging.result ? result : reshape(result, averaging.result);
}

}  // namespace

Value average_of_convolution(std::span<const Value> inputs, const Attributes& attributes, const Averaging& averaging) {
  return average(inputs, attributes, averaging, /*transposed=*/false);
}

Value average_of_transposed(std::span<const Value> inputs, const Attributes& attributes, const Averaging& averaging) {
  return average(inputs, attributes, averaging, /*transposed=*/true);
}

}  // namespace frit::ops
