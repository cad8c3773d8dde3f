#include <algorithm>

#include "frit/models/onnx/operators/window.h"

namespace frit::onnx {
namespace {

Sizes kernel_of(const Shape& weight) { return Sizes(weight.begin() + std::min(weight.rank(), 2), weight.end()); }

Values convolution(const Call& call) {
  const Window window = window_of(call, call[0].shape(), kernel_of(call[1].shape()));
  Value x = with_two_axes(window, call[0]);
  const Value weight = with_two_axes(window, call[1]);
  ConvolutionOptions options{.stride = window.stride, .dilation = window.dilation, .groups = call.integer("group", 1)};
  if (window.symmetric()) {
    options.padding = window.before;
  } else {
    x = pad_image(x, window.before, window.after, 0);
  }
  const Value bias = call.optional(2);
  return {as_given(window, window.rank() == 3 ? conv3d(x, weight, bias, options) : conv2d(x, weight, bias, options))};
}

/// The whole result is cut to what pads or output_shape ask for.
Values transposed_convolution(const Call& call) {
  Window window = window_of(call, call[0].shape(), kernel_of(call[1].shape()));
  const Value x = with_two_axes(window, call[0]), weight = with_two_axes(window, call[1]);
  const int rank = window.rank();
  const auto per_axis = [&](const char* attribute) {
    Dims numbers = to_shape(call, call.integers(attribute));
    if (window.one_axis && !numbers.empty()) numbers.insert(0, attribute[7] == 's' ? 1 : 0);
    call.require_support(numbers.empty() || numbers.rank() == rank, attribute, " has ", numbers.rank(), " numbers, expected ", rank);
    for (const std::int64_t number : numbers) call.require_support(number >= 0 && number <= INT32_MAX, attribute, " has ", number);
    return numbers;
  };
  Dims extra = per_axis("output_padding");
  const Dims sizes = per_axis("output_shape");
  const std::string mode = call.text("auto_pad", "NOTSET");
  const bool same = mode.starts_with("SAME");
  if (extra.empty()) extra = Dims::filled(rank, 0);
  const Dims extent = window.extent();
  for (int i = 0; i < rank && (same || !sizes.empty()); ++i) {
    const std::int64_t size = x.dim(i + 2), wanted = sizes.empty() ? size * window.stride[i] : sizes[i];
    std::int64_t all = (size - 1) * window.stride[i] + extra[i] + extent[i] - wanted;
    extra[i] += std::max<std::int64_t>(0, -all);
    all = std::max<std::int64_t>(0, all);
    window.before[i] = mode == "SAME_UPPER" ? all / 2 : all - all / 2;
    window.after[i] = all - window.before[i];
  }
  ConvolutionOptions options{
      .stride = window.stride, .output_padding = extra, .dilation = window.dilation, .groups = call.integer("group", 1)};
  if (window.symmetric()) options.padding = window.before;
  const Value bias = call.optional(2);
  Value y = rank == 3 ? conv_transpose3d(x, weight, bias, options) : conv_transpose2d(x, weight, bias, options);
  for (int i = 0; i < rank && !window.symmetric(); ++i) y = slice(y, i + 2, window.before[i], y.dim(i + 2) - window.after[i]);
  return {as_given(window, y)};
}

}  // namespace

void add_convolutions(OperatorTable& table) {
  table["Conv"] = convolution;
  table["ConvTranspose"] = transposed_convolution;
}

}  // namespace frit::onnx
