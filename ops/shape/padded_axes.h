#pragma once

#include <string>

#include "frit/core/half.h"
#include "frit/ops/operator/kernel.h"
#include "frit/ops/operator/memory_order.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {

// What padding on the CPU and on a GPU share: which elements a place along an axis is made of, on the way there and on the way back.

inline const char* name_of(PaddingMode mode) {
  constexpr const char* names[] = {"constant", "reflect", "replicate", "circular"};
  return names[static_cast<int>(mode)];
}

/// An axis and its margins: its element i lies at place before + i * step of the padded axis.
struct PaddedAxis {
  std::int64_t size = 1, padded = 1;  ///< without the margins, and with them
  std::int64_t before = 0;            ///< places of the first margin
  std::int64_t step = 1;              ///< 1 where margins repeat
  /// Margins are made of the axis itself: place i < 0, counted from its first element, of element sign * i + first, and place i >= size of
  /// sign * i + last. Else of a constant, and so is what lies between the elements.
  bool repeats = false;
  std::int64_t sign = 0, first = 0, last = 0;

  static PaddedAxis constant(std::int64_t size, std::int64_t padded, std::int64_t before, std::int64_t step) {
    return {size, padded, before, std::min(step, std::max<std::int64_t>(padded, 1))};
  }
  static PaddedAxis repeated(std::int64_t size, std::int64_t padded, std::int64_t before, const std::string& mode) {
    PaddedAxis axis{size, padded, before, 1, /*repeats=*/true};
    const bool reflects = mode == name_of(PaddingMode::reflect), circular = mode == name_of(PaddingMode::circular);
    axis.sign = reflects ? -1 : circular ? 1 : 0;
    axis.first = circular ? size : 0;
    axis.last = circular ? -size : reflects ? 2 * (size - 1) : size - 1;
    return axis;
  }

  std::int64_t after() const { return padded - before - size; }
  bool stays() const { return size == padded && step == 1; }
  void join_inner(std::int64_t inner_size) { size *= inner_size, padded *= inner_size; }

  /// The element that a place of the padded axis is made of; -1: the constant.
  template <class Integer>
  FRIT_HOST_DEVICE Integer element_at(Integer place) const {
    const Integer i = place - static_cast<Integer>(before), elements = static_cast<Integer>(size);
    if (!repeats && step != 1) {
      const Integer element = i / static_cast<Integer>(step);
      return i >= 0 && element < elements && element * static_cast<Integer>(step) == i ? element : -1;
    }
    if (i >= 0 && i < elements) return i;
    return repeats ? static_cast<Integer>(sign) * i + static_cast<Integer>(i < 0 ? first : last) : -1;
  }

  /// The places that are made of an element, where margins repeat: first its own, then those of the margin before, then those after.
  template <class Integer>
  FRIT_HOST_DEVICE Integer places_of(Integer element) const {
    return 1 + places_before(element) + places_after(element);
  }
  template <class Integer>
  FRIT_HOST_DEVICE Integer place_of(Integer element, Integer k) const {
    const Integer own = static_cast<Integer>(before), in_front = places_before(element);
    if (k == 0) return own + element;
    if (k <= in_front) return sign == 0 ? k - 1 : own + mirrored(element, first);
    return own + (sign == 0 ? static_cast<Integer>(size) + k - 1 - in_front : mirrored(element, last));
  }

  /// Elements begin <= i < end that no margin is made of.
  std::int64_t inside_begin() const { return sign > 0 ? after() : before == 0 || !repeats ? 0 : sign < 0 ? before + 1 : 1; }
  std::int64_t inside_end() const { return size - (sign > 0 ? before : after() == 0 || !repeats ? 0 : sign < 0 ? after() + 1 : 1); }

 private:
  template <class Integer>
  FRIT_HOST_DEVICE Integer mirrored(Integer element, std::int64_t constant) const {
    return static_cast<Integer>(sign) * (element - static_cast<Integer>(constant));
  }
  template <class Integer>
  FRIT_HOST_DEVICE Integer places_before(Integer element) const {
    const Integer margin = static_cast<Integer>(before), i = mirrored(element, first);
    if (sign == 0) return element == static_cast<Integer>(first) ? margin : 0;
    return i < 0 && i >= -margin ? 1 : 0;
  }
  template <class Integer>
  FRIT_HOST_DEVICE Integer places_after(Integer element) const {
    const Integer elements = static_cast<Integer>(size), end = static_cast<Integer>(padded - before), i = mirrored(element, last);
    if (sign == 0) return element == static_cast<Integer>(last) ? end - elements : 0;
    return i >= elements && i < end ? 1 : 0;
  }
};

/// The padded axes of a call, in the order of its output's memory, the innermost first; those that can be passed over as one are merged.
/// A place of the innermost is a unit: neighbours that nothing is added between.
struct PaddedAxes {
  /// What an element, or a unit, of the output is made of.
  template <class Integer>
  struct Parts {
    std::int64_t offset = 0;  ///< of one part in the input
    Integer count = 1;        ///< of the parts; 0: it is the constant
  };

  bool backward;  ///< the output is the axes without margins
  std::int64_t unit = 1, unit_stride = 1;
  int rank = 0;  ///< 1 at least in the end
  PaddedAxis axes[Dims::max_rank];
  std::int64_t strides[Dims::max_rank] = {};  ///< of the input

  /// An axis of the tensors each.
  PaddedAxes(const Tensor& output, const Tensor& input, std::span<const PaddedAxis> given, bool way_back) : backward(way_back) {
    const Dims order = memory_order(output);
    for (int i = order.rank() - 1; i >= 0; --i) {
      const int axis = static_cast<int>(order[i]);
      add(given[static_cast<std::size_t>(axis)], input.strides()[axis]);
    }
    if (rank == 0) strides[rank++] = unit * unit_stride;  // nothing is padded
  }

  /// Of the output.
  std::int64_t size(int axis) const { return backward ? axes[axis].size : axes[axis].padded; }
  std::int64_t rows() const {
    std::int64_t result = 1;
    for (int axis = 1; axis < rank; ++axis) result *= size(axis);
    return result;
  }
  /// Places begin <= p < end of the innermost axis that are made of one element each: of neighbours, the first at begin + shift.
  std::int64_t inside_begin() const { return backward ? axes[0].inside_begin() : axes[0].before; }
  std::int64_t inside_end() const { return backward ? axes[0].inside_end() : axes[0].before + (axes[0].size - 1) * axes[0].step + 1; }
  std::int64_t inside_shift() const { return backward ? axes[0].before : -axes[0].before; }

  /// Part k of what lies at a place of the innermost axis, or, from axis 1 on, in a row. The innermost axis counts fastest.
  /// `take(axis, index)` takes the place along an axis, which it returns, off the index.
  template <bool way_back, class Integer, class Index, class Take>
  FRIT_HOST_DEVICE Parts<Integer> find(int first_axis, Index index, Integer k, const Take& take) const {
    Parts<Integer> result;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (int axis = first_axis; axis < rank; ++axis) add_axis<way_back>(result, axis, static_cast<Integer>(take(axis, index)), k);
    return result;
  }
  /// The same of one axis, at a place. Takes what it counts off k.
  template <bool way_back, class Integer>
  FRIT_HOST_DEVICE void add_axis(Parts<Integer>& parts, int axis, Integer place, Integer& k) const {
    Integer element = 0, count = 1;
    if constexpr (way_back) {
      count = axes[axis].places_of(place);
      const Integer own = count == 1 ? 0 : k % count;
      if (count > 1) k /= count;
      element = axes[axis].place_of(place, own);
    } else {
      element = axes[axis].element_at(place);
      count = element >= 0 ? 1 : 0;
    }
    parts.offset += static_cast<std::int64_t>(element) * strides[axis];
    parts.count *= count;
  }

 private:
  void add(PaddedAxis axis, std::int64_t stride) {
    if (axis.size == 1 && axis.padded == 1) return;
    const std::int64_t inner = rank == 0 ? unit * unit_stride : strides[rank - 1] * axes[rank - 1].size;
    const bool neighbours = (rank == 0 && unit == 1) || (stride == inner && (rank == 0 || axes[rank - 1].stays()));
    if (!axis.stays() || !neighbours) {
      strides[rank] = stride;
      axes[rank++] = axis;
    } else if (rank == 0) {
      if (unit == 1) unit_stride = stride;
      unit *= axis.size;
    } else {
      axes[rank - 1].join_inner(axis.size);
    }
  }
};

/// The axes of a call in one of the modes but constant.
PaddedAxes repeated_margins(const Tensor& output, const Tensor& input, const Dims& before, const std::string& mode, bool backward);
/// The axes of a call whose input's elements lie at before + i * step, with a constant around and between them.
PaddedAxes constant_margins(const Tensor& output, const Tensor& input, const Dims& before, const Dims& step);

/// Computes the output, backward in float64 and float32. The tensors lie as for pad_on_gpu; the input's dtype may be float32 for a half.
void pad_on_cpu(const Tensor& output, const Tensor& input, const PaddedAxes& axes);
/// Computes the output on the stream, forward with `value` where it is made of nothing. The output is contiguous or channels-last, the
/// input of any strides; forward its dtype may be the other of float32 and a half.
void pad_on_gpu(CUstream_st* stream, const Tensor& output, const Tensor& input, const PaddedAxes& axes, double value);
/// How that is done.
std::string describe_padding(const Tensor& output, const PaddedAxes& axes);
/// The kernel of an operator that pads by zeros, or backward.
Kernel padding_kernel(PaddedAxes (*axes_of)(const KernelContext& call));

}  // namespace frit::ops
