#include "frit/core/cuda/device.h"
#include "frit/core/strided_copy.h"
#include "frit/core/strided_map.h"
#include "frit/core/tensor.h"

namespace frit {
namespace {

template <class To, class From>
void convert_rows(const void*, void* output, const void* const* operands, const MapRows& rows) {
  To* to = static_cast<To*>(output);
  const From* from = static_cast<const From*>(operands[0]);
  for (std::int64_t row = 0; row < rows.rows; ++row, to += rows.output_step, from += rows.steps[0]) {
    for (std::int64_t i = 0; i < rows.length; ++i) to[i] = convert<To>(from[i]);
  }
}

/// Elements of one dtype keep their bits.
template <class Word>
void copy_words(const Tensor& destination, const Tensor& source) {
  const bool inner_channels = has_inner_channels(destination) || has_inner_channels(source);
  const Dims axes = axes_in_memory(source.rank(), inner_channels ? Layout::channels_last : Layout::contiguous);
  const Tensor target = destination.permute(axes), origin = source.permute(axes);
  Shape shape = origin.shape();
  std::array<Strides, 2> strides = {target.strides(), origin.strides()};
  collapse_axes(shape, strides);
  const auto steps = [&](std::size_t operand) {
    const int inner = shape.rank() - 1;
    return PlaneSteps{inner > 0 ? strides[operand][inner - 1] : 0, strides[operand][inner]};
  };
  // Whole rows, and where these are short, enough of them for lines of the cache the other way.
  const std::int64_t width = shape.back(), grain = shape.rank() > 1 && width < elementwise_grain
                                                       ? std::max<std::int64_t>(16, elementwise_grain / width / 16 * 16) * width
                                                       : elementwise_grain;
  Word* const to = static_cast<Word*>(destination.raw());
  const Word* const from = static_cast<const Word*>(source.raw());
  parallel_for(source.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    for_each_plane(shape, strides, begin, end, [&](const auto& offsets, std::int64_t rows, std::int64_t columns) {
      detail::copy_plane(to + offsets[0], steps(0), from + offsets[1], steps(1), rows, columns);
    });
  });
}

}  // namespace

ElementFunction conversion(DType to, DType from) {
  return dispatch_all(
      to, [&]<class To>() { return dispatch_all(from, [&]<class From>() { return ElementFunction{convert_rows<To, From>}; }); });
}

void copy(const Tensor& destination, const Tensor& source) {
  require(destination.defined() && source.defined(), "copy: a tensor is undefined");
  require(destination.shape() == source.shape(), "copy: destination is ", destination.shape(), ", source is ", source.shape());
  if (destination.device() != Device::cpu() || source.device() != Device::cpu()) return cuda::copy(destination, source);
  if (source.elements() == 0) return;
  if (destination.dtype() == source.dtype()) {
    switch (size_of(source.dtype())) {
      case 1: return copy_words<std::uint8_t>(destination, source);
      case 2: return copy_words<std::uint16_t>(destination, source);
      case 4: return copy_words<std::uint32_t>(destination, source);
      default: return copy_words<std::uint64_t>(destination, source);
    }
  }
  strided_map(destination, std::span(&source, 1), conversion(destination.dtype(), source.dtype()));
}

void Tensor::fill(double value) const {
  if (elements_ == 0) return;
  const Tensor scalar = Tensor::over(&value, {}, DType::f64, Device::cpu(), nullptr);
  copy(*this, scalar.to(dtype_).to(device_).expand(shape_));
}

}  // namespace frit
