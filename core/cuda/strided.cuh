#pragma once

#include <array>
#include <optional>

#include "frit/core/cuda/divisor.cuh"
#include "frit/core/strided_loop.h"

namespace frit::cuda {

/// Where element i, in row-major order, of `operands` tensors of one shape lies: the device's form of strided_loop. Axes that can be walked
/// as one are merged.
template <int operands>
class StridedIndex {
 public:
  StridedIndex(Shape shape, std::array<Strides, operands> strides) {
    collapse_axes(shape, strides);
    rank_ = shape.rank();
    wide_ = element_count(shape) > INT32_MAX;
    for (int axis = 0; axis < rank_; ++axis) {
      sizes_[axis] = Divisor(std::max<std::int64_t>(shape[axis], 1));
      for (int k = 0; k < operands; ++k) strides_[k][axis] = strides[static_cast<std::size_t>(k)][axis];
    }
  }

  /// All operands are dense, in one order.
  bool is_dense() const {
    bool dense = rank_ == 1;
    for (int k = 0; k < operands; ++k) dense = dense && strides_[k][0] == 1;
    return dense;
  }

  /// From any element to the next one of the first operand; none if that depends on the element.
  std::optional<std::int64_t> stride() const { return rank_ == 1 ? std::optional(strides_[0][0]) : std::nullopt; }

  /// Two axes, of elements that 32 bits count.
  bool is_short() const { return rank_ == 2 && !wide_; }
  /// Of one operand with such axes.
  __device__ std::int64_t short_offset(std::int64_t i) const {
    const auto rest = static_cast<std::uint32_t>(i), quotient = sizes_[1].quotient(rest);
    return quotient * strides_[0][0] + sizes_[1].remainder(rest, quotient) * strides_[0][1];
  }

  /// Of one operand. A function that is called: inlined wherever it may be needed, it would take longer to load than to run.
  __device__ __noinline__ std::int64_t offset(std::int64_t i) const {
    std::int64_t result[operands];
    offsets(i, result);
    return result[0];
  }

  __device__ void offsets(std::int64_t i, std::int64_t (&result)[operands]) const {
    if (wide_) {
      decompose<std::uint64_t>(static_cast<std::uint64_t>(i), result);
    } else {
      decompose<std::uint32_t>(static_cast<std::uint32_t>(i), result);
    }
  }

 private:
  template <class Integer>
  __device__ void decompose(Integer rest, std::int64_t (&result)[operands]) const {
    for (int k = 0; k < operands; ++k) result[k] = 0;
#pragma unroll 1
    for (int axis = rank_ - 1; axis > 0; --axis) {
      const Integer quotient = sizes_[axis].quotient(rest);
      const auto index = static_cast<std::int64_t>(sizes_[axis].remainder(rest, quotient));
      rest = quotient;
      for (int k = 0; k < operands; ++k) result[k] += index * strides_[k][axis];
    }
    for (int k = 0; k < operands; ++k) result[k] += static_cast<std::int64_t>(rest) * strides_[k][0];
  }

  int rank_;
  bool wide_;
  Divisor sizes_[Dims::max_rank];
  std::int64_t strides_[operands][Dims::max_rank];
};

}  // namespace frit::cuda
