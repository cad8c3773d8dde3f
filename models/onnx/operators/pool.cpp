#include <algorithm>
#include <cmath>

#include "frit/models/onnx/operators/window.h"

namespace frit::onnx {
namespace {

/// The window's result sizes, rounded as ceil_mode says, and the padding after the image with which they come out without it.
Dims whole_padding(const Call& call, const Window& window, const Shape& images) {
  const bool up = call.integer("ceil_mode", 0) != 0;
  const Dims extent = window.extent();
  Dims after = window.after;
  for (int i = 0; i < window.rank(); ++i) {
    const std::int64_t stride = window.stride[i];
    call.require_support(stride > 0, "strides has ", stride);
    const std::int64_t room = images[i + 2] + window.before[i] + window.after[i] - extent[i];
    call.require_support(room >= 0, "the kernel is larger than the padded image");
    std::int64_t outputs = (room + (up ? stride - 1 : 0)) / stride + 1;
    // A window that would begin in the padding after the image is left out.
    if (up && (outputs - 1) * stride >= images[i + 2] + window.before[i]) --outputs;
    after[i] = std::max(after[i], (outputs - 1) * stride + extent[i] - images[i + 2] - window.before[i]);
  }
  return after;
}

/// Whether frit's pools have such padding themselves.
bool is_plain(const Window& window, const Dims& after) {
  bool plain = window.before == after;
  for (int i = 0; i < window.rank(); ++i) plain = plain && after[i] <= window.kernel[i] / 2;
  return plain;
}

Values max_pool(const Call& call) {
  const Window window = window_of(call, call[0].shape());
  const Value images = with_two_axes(window, as_floating(call[0]));
  const Dims after = whole_padding(call, window, images.shape());
  PoolOptions options{.kernel_size = window.kernel, .stride = window.stride, .dilation = window.dilation};
  const bool plain = is_plain(window, after);
  if (plain) options.padding = after;
  const Value x = plain ? images : pad_image(images, window.before, after, -HUGE_VAL);
  const Value y = window.rank() == 3 ? max_pool3d(x, options) : max_pool2d(x, options);
  return {cast(as_given(window, y), call[0].dtype())};
}

/// The mean over windows with a dilation, which frit's own pools do not have, of a padded image: of as many slices as the kernel has
/// elements.
Value dilated_average(const Call& call, const Window& window, Value x) {
  constexpr std::int64_t most_elements = 1024;
  const std::int64_t count = element_count(window.kernel);
  call.require_support(count >= 1 && count <= most_elements, "dilations with a kernel of ", count, " elements");
  const Dims extent = window.extent();
  Value sums;
  for (std::int64_t element = 0; element < count; ++element) {
    Value part = x;
    for (int i = window.rank(), rest = static_cast<int>(element); i-- > 0; rest /= static_cast<int>(window.kernel[i])) {
      const std::int64_t first = rest % window.kernel[i] * window.dilation[i];
      part = slice(part, i + 2, first, first + x.dim(i + 2) - extent[i] + 1, window.stride[i]);
    }
    sums = sums ? sums + part : part;
  }
  return sums / static_cast<double>(count);
}

Value window_average(const Call& call, const Window& window, Value x, PoolOptions options = {}) {
  if (window.is_dilated()) return dilated_average(call, window, x);
  options.kernel_size = window.kernel;
  options.stride = window.stride;
  return window.rank() == 3 ? avg_pool3d(x, options) : avg_pool2d(x, options);
}

/// Where padding is not frit's own: the mean over padded windows divided by the share of them that counts.
Values average_pool(const Call& call) {
  const Window window = window_of(call, call[0].shape());
  const Value x = with_two_axes(window, call[0]);
  const Dims after = whole_padding(call, window, x.shape());
  const bool counted = call.integer("count_include_pad", 0) != 0;
  if (is_plain(window, after) && !window.is_dilated()) {
    return {as_given(window, window_average(call, window, x, {.kernel_size = {}, .padding = after, .count_include_pad = counted}))};
  }
  Shape image = x.shape();
  image[0] = image[1] = 1;
  Dims uncounted = after;
  Value share = expand(call.graph().constant(Tensor::full(Dims::filled(x.rank(), 1), 1, x.dtype())), image);
  if (counted) {
    share = pad_image(share, window.before, window.after, 1);
    for (int i = 0; i < window.rank(); ++i) uncounted[i] = after[i] - window.after[i];
  }
  share = pad_image(share, counted ? Dims::filled(window.rank(), 0) : window.before, uncounted, 0);
  const Value sums = window_average(call, window, pad_image(x, window.before, after, 0));
  return {as_given(window, sums / window_average(call, window, share))};
}

// Numbers whose sum is the norm's power, and the norm of such a sum.
Value powers(Value x, double p) { return p == 1 ? abs(x) : p == 2 ? square(x) : power(abs(x), p); }
Value root(Value sum, double p) { return p == 1 ? sum : p == 2 ? sqrt(sum) : power(sum, 1 / p); }

/// The norm of a window's elements, by their mean.
Values norm_pool(const Call& call) {
  const Window window = window_of(call, call[0].shape());
  const double p = static_cast<double>(call.integer("p", 2));
  const Value x = powers(with_two_axes(window, call[0]), p);
  const Value padded_image = pad_image(x, window.before, whole_padding(call, window, x.shape()), 0);
  const Value means = window_average(call, window, padded_image);
  return {as_given(window, root(means * static_cast<double>(element_count(window.kernel)), p))};
}

Dims image_axes(const Call& call) {
  Dims axes;
  for (int axis = 2; axis < call[0].rank(); ++axis) axes.push_back(axis);
  call.require_support(!axes.empty(), "images have no axes");
  return axes;
}

/// Over all image axes, which stay with size 1.
template <Value (*reduce)(Value, const Dims&, bool)>
Values global(const Call& call) {
  return {reduce(call[0], image_axes(call), /*keep_dims=*/true)};
}

Values global_norm_pool(const Call& call) {
  const double p = static_cast<double>(call.integer("p", 2));
  return {root(sum(powers(call[0], p), image_axes(call), /*keep_dims=*/true), p)};
}

}  // namespace

void add_pools(OperatorTable& table) {
  table["MaxPool"] = max_pool;
  table["AveragePool"] = average_pool;
  table["LpPool"] = norm_pool;
  table["GlobalLpPool"] = global_norm_pool;
  table["GlobalAveragePool"] = global<mean>;
  table["GlobalMaxPool"] = global<max>;
}

}  // namespace frit::onnx
