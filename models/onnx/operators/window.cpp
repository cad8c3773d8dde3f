#include "frit/models/onnx/operators/window.h"

#include <algorithm>

namespace frit::onnx {
namespace {

/// One number an image axis.
Dims numbers(const Call& call, const char* attribute, int rank, std::int64_t otherwise) {
  const Sizes given = call.integers(attribute);
  if (given.empty()) return Dims::filled(rank, otherwise);
  call.require_support(static_cast<int>(given.size()) == rank, attribute, " has ", given.size(), " numbers, expected ", rank);
  for (const std::int64_t number : given) {
    call.require_support(number >= 0 && number <= INT32_MAX, attribute, " has ", number, ", expected 0 to 2^31 - 1");
  }
  return Dims(given);
}

void resolve_padding(const Call& call, const Shape& images, Window& window) {
  const int rank = window.rank();
  const std::string mode = call.text("auto_pad", "NOTSET");
  const Sizes pads = call.integers("pads");
  window.before = window.after = Dims::filled(rank, 0);
  if (mode == "NOTSET" || mode.empty()) {
    if (pads.empty()) return;
    call.require_support(static_cast<int>(pads.size()) == 2 * rank, "pads has ", pads.size(), " numbers, expected ", 2 * rank);
    for (int i = 0; i < rank; ++i) {
      window.before[i] = pads[static_cast<std::size_t>(i)];
      window.after[i] = pads[static_cast<std::size_t>(i + rank)];
      call.require_support(std::min(window.before[i], window.after[i]) >= 0, "pads has a negative number");
      call.require_support(std::max(window.before[i], window.after[i]) <= INT32_MAX, "pads has a number above 2^31 - 1");
    }
    return;
  }
  if (mode == "VALID") return;
  call.require_support(mode == "SAME_UPPER" || mode == "SAME_LOWER", "auto_pad = \"", mode, '"');
  const Dims extent = window.extent();
  for (int i = 0; i < rank; ++i) {
    const std::int64_t size = images[i + 2], stride = window.stride[i];
    call.require_support(stride > 0, "strides has ", stride);
    const std::int64_t outputs = (size + stride - 1) / stride;
    const std::int64_t all = std::max<std::int64_t>(0, (outputs - 1) * stride + extent[i] - size);
    window.before[i] = mode == "SAME_UPPER" ? all / 2 : all - all / 2;
    window.after[i] = all - window.before[i];
  }
}

}  // namespace

Dims Window::extent() const {
  Dims result = kernel;
  for (int i = 0; i < rank(); ++i) result[i] = dilation[i] * (kernel[i] - 1) + 1;
  return result;
}

Window window_of(const Call& call, const Shape& images, const Sizes& kernel) {
  const int rank = images.rank() - 2;
  call.require_support(rank >= 1 && rank <= 3, "images have ", rank, " axes, expected 1 to 3");
  Window window;
  window.kernel = kernel.empty() ? numbers(call, "kernel_shape", rank, 1) : to_shape(call, kernel);
  call.require_support(window.rank() == rank, "the kernel has ", window.rank(), " axes, the images ", rank);
  window.stride = numbers(call, "strides", rank, 1);
  window.dilation = numbers(call, "dilations", rank, 1);
  resolve_padding(call, images, window);
  if (rank > 1) return window;
  window.one_axis = true;
  for (Dims* dims : {&window.kernel, &window.stride, &window.dilation}) dims->insert(0, 1);
  for (Dims* dims : {&window.before, &window.after}) dims->insert(0, 0);
  return window;
}

Value with_two_axes(const Window& window, Value x) { return window.one_axis ? unsqueeze(x, 2) : x; }
Value as_given(const Window& window, Value x) { return window.one_axis ? squeeze(x, 2) : x; }

Value pad_image(Value x, const Dims& before, const Dims& after, double value) {
  Dims first = {0, 0}, last = {0, 0};
  for (const std::int64_t size : before) first.push_back(size);
  for (const std::int64_t size : after) last.push_back(size);
  return padded(x, first, last, value);
}

}  // namespace frit::onnx
