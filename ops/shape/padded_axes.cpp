#include "frit/ops/shape/padded_axes.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "frit/core/convert.h"
#include "frit/core/strided_loop.h"
#include "frit/core/thread_pool.h"

namespace frit::ops {
namespace {

/// Stores elements, or adds them to what is there.
template <bool add, class T, class From>
void put(T* to, const From* from, std::int64_t stride, std::int64_t count) {
  const auto each = [&](auto step) {
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (add) {
        to[i] += from[i * step];
      } else {
        to[i] = convert<T>(from[i * step]);
      }
    }
  };
  if (stride == 1) return each(std::integral_constant<std::int64_t, 1>());
  each(stride);
}

/// Places of the innermost axis, in one row of the output.
template <bool backward, class T, class From>
class RowPart {
 public:
  RowPart(const PaddedAxes& axes, std::int64_t row, std::int64_t first, std::int64_t end, T* output, const From* input)
      : axes_(axes), row_(row), first_(first), end_(end), output_(output), input_(input) {}

  void compute() const {
    compute_part<false>(0);
    if constexpr (backward) {
      for (std::int64_t k = 1; k < part(0).count; ++k) compute_part<true>(k);
    }
  }

 private:
  using Parts = PaddedAxes::Parts<std::int64_t>;

  Parts part(std::int64_t k) const {
    return axes_.find<backward>(1, row_, k, [&](int axis, std::int64_t& index) {
      const std::int64_t size = axes_.size(axis), place = index % size;
      index /= size;
      return place;
    });
  }
  T* at(std::int64_t place) const { return output_ + (place - first_) * axes_.unit; }

  template <bool add>
  void compute_part(std::int64_t k) const {
    const std::int64_t from = part(k).offset;
    const std::int64_t begin = std::clamp(axes_.inside_begin(), first_, end_), end = std::clamp(axes_.inside_end(), begin, end_);
    for (std::int64_t place = first_; place < begin; ++place) compute_unit<add>(from, place);
    compute_inside<add>(from + (begin + axes_.inside_shift()) * axes_.strides[0], begin, end);
    for (std::int64_t place = end; place < end_; ++place) compute_unit<add>(from, place);
  }
  /// Places that are made of one element each, which are neighbours.
  template <bool add>
  void compute_inside(std::int64_t from, std::int64_t begin, std::int64_t end) const {
    const std::int64_t unit = axes_.unit, stride = axes_.strides[0];
    if (unit == 1) return put<add>(at(begin), input_ + from, stride, end - begin);
    if (stride == unit * axes_.unit_stride) return put<add>(at(begin), input_ + from, axes_.unit_stride, (end - begin) * unit);
    for (std::int64_t i = 0; i < end - begin; ++i) put<add>(at(begin + i), input_ + from + i * stride, axes_.unit_stride, unit);
  }
  template <bool add>
  void compute_unit(std::int64_t from, std::int64_t place) const {
    const std::int64_t count = compute_unit_part<add>(from, place, 0);
    for (std::int64_t k = 1; k < count; ++k) compute_unit_part<backward>(from, place, k);
  }
  /// Returns how many parts there are.
  template <bool add>
  std::int64_t compute_unit_part(std::int64_t from, std::int64_t place, std::int64_t k) const {
    Parts parts{from, 1};
    axes_.add_axis<backward>(parts, 0, place, k);
    put<add>(at(place), input_ + parts.offset, axes_.unit_stride, axes_.unit);
    return parts.count;
  }

  const PaddedAxes& axes_;
  std::int64_t row_, first_, end_;
  T* output_;
  const From* input_;
};

template <bool backward, class T, class From>
void compute(const Tensor& output, const Tensor& input, const PaddedAxes& axes) {
  const std::int64_t places = axes.size(0), grain = std::max<std::int64_t>(1, elementwise_grain / axes.unit);
  T* const to = output.data<T>();
  const From* const from = input.data<From>();
  parallel_for(axes.rows() * places, grain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t first = begin % places, count = std::min(places - first, end - begin);
      RowPart<backward, T, From>(axes, begin / places, first, first + count, to + begin * axes.unit, from).compute();
      begin += count;
    }
  });
}

std::int64_t size_along(const Tensor& tensor, int axis) { return tensor.shape()[axis]; }

}  // namespace

PaddedAxes repeated_margins(const Tensor& output, const Tensor& input, const Dims& before, const std::string& mode, bool backward) {
  const Tensor &plain = backward ? output : input, &padded = backward ? input : output;
  std::vector<PaddedAxis> axes;
  for (int axis = 0; axis < before.rank(); ++axis) {
    axes.push_back(PaddedAxis::repeated(size_along(plain, axis), size_along(padded, axis), before[axis], mode));
  }
  return {output, input, axes, backward};
}

PaddedAxes constant_margins(const Tensor& output, const Tensor& input, const Dims& before, const Dims& step) {
  std::vector<PaddedAxis> axes;
  for (int axis = 0; axis < before.rank(); ++axis) {
    axes.push_back(PaddedAxis::constant(size_along(input, axis), size_along(output, axis), before[axis], step[axis]));
  }
  return {output, input, axes, /*backward=*/false};
}

void pad_on_cpu(const Tensor& output, const Tensor& input, const PaddedAxes& axes) {
  if (output.elements() == 0) return;
  if (axes.backward) {
    dispatch_floating(output.dtype(), [&]<class T>() { compute<true, T, T>(output, input, axes); });
    return;
  }
  dispatch_all(output.dtype(), [&]<class T>() {
    if constexpr (is_half_type<T>) {
      if (input.dtype() == DType::f32) return compute<false, T, float>(output, input, axes);
    }
    compute<false, T, T>(output, input, axes);
  });
}

}  // namespace frit::ops
