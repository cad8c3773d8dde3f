#pragma once

#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <vector>

#include "frit/core/device.h"
#include "frit/core/dtype.h"
#include "frit/core/shape.h"

namespace frit {

class Allocator;

/// A strided view of shared memory: shape, strides and offset in elements. Copying a Tensor copies the handle, not the data.
/// A default-constructed Tensor is undefined. Views (permute, slice, expand, ...) share memory with their source.
class Tensor {
 public:
  Tensor() = default;

  /// Uninitialised memory of the device's allocator. Throws ErrorKind::argument for a bad shape, ErrorKind::out_of_memory.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = {}, Layout layout = Layout::contiguous);
  /// Likewise of another allocator, which outlives the tensor.
  static Tensor empty_in(Allocator& allocator, const Shape& shape, DType dtype, Device device, Layout layout = Layout::contiguous);
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {});
  /// The values in row-major order; throws ErrorKind::argument if their count is not the shape's.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape);
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }
  template <class T>
  static Tensor from(std::initializer_list<T> values, const Shape& shape) {
    return from(std::span<const T>(values.begin(), values.size()), shape);
  }
  /// A dense tensor over memory that `owner` keeps alive (an arena, a foreign buffer; null: the caller keeps it alive).
  static Tensor over(void* memory, const Shape& shape, DType dtype, Device device, std::shared_ptr<void> owner,
                     Layout layout = Layout::contiguous);

  bool defined() const { return defined_; }
  /// Whether other tensors (copies of this one, views) keep its memory alive too.
  bool shared() const { return owner_.use_count() > 1; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  int rank() const { return shape_.rank(); }
  std::int64_t dim(std::int64_t axis) const { return shape_[normalize_axis(axis, rank(), "Tensor::dim")]; }
  std::int64_t elements() const { return elements_; }
  std::int64_t bytes() const { return elements_ * static_cast<std::int64_t>(size_of(dtype_)); }
  bool is_contiguous(Layout layout = Layout::contiguous) const;
  /// channels_last where it lies so and not in row-major order.
  Layout layout() const;
  /// Of an image of rank 3 or more whose channels are neighbours: elements from a pixel to the next. Its channels if it lies channels-last,
  /// more if it is a part of the channels of one that does; 0 if it lies in another way.
  std::int64_t pixel_pitch() const;

  /// The first element. The typed form throws ErrorKind::argument for another dtype.
  void* raw() const { return memory_; }
  template <class T>
  T* data() const {
    if (dtype_ != dtype_of<T>()) refuse_dtype(dtype_of<T>());
    return static_cast<T*>(memory_);
  }
  /// Row-major elements of a contiguous CPU tensor. Throws ErrorKind::argument for another tensor.
  template <class T>
  std::span<T> span() const {
    if (!is_contiguous() || device_ != Device::cpu()) refuse_span();
    return {data<T>(), static_cast<std::size_t>(elements_)};
  }
  /// All elements in row-major order, converted to T; any strides and dtype.
  template <class T>
  std::vector<T> to_vector() const;
  /// The value of a one-element tensor. Throws ErrorKind::argument otherwise.
  double item() const;

  // Views. Each throws ErrorKind::argument when the arguments do not fit the shape.
  /// One size may be -1. Copies if the strides do not allow a view.
  Tensor reshape(const Shape& shape) const;
  Tensor permute(const Dims& axes) const;
  Tensor transpose(std::int64_t first, std::int64_t second) const;
  /// Elements begin, begin + step, ... below end of one axis; step > 0.
  Tensor slice(std::int64_t axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1) const;
  /// Axes of size 1, and new leading ones, repeat with stride 0.
  Tensor expand(const Shape& shape) const;

  // Copies.
  Tensor contiguous(Layout layout = Layout::contiguous) const;  ///< itself if it is already so
  Tensor clone() const;                                         ///< a fresh contiguous copy
  Tensor to(DType dtype) const;                                 ///< itself if it has the dtype
  Tensor to(Device device) const;                               ///< itself if it is there
  void fill(double value) const;

 private:
  Tensor view(const Shape& shape, const Strides& strides, std::int64_t offset) const;
  [[noreturn, gnu::cold]] void refuse_dtype(DType asked) const;
  [[noreturn, gnu::cold]] void refuse_span() const;

  std::shared_ptr<void> owner_;
  void* memory_ = nullptr;
  Shape shape_;
  Strides strides_;
  std::int64_t elements_ = 0;
  DType dtype_ = DType::f32;
  bool defined_ = false;
  Device device_;
};

/// Copies element by element, converting the dtype; any strides. Throws ErrorKind::argument if the shapes differ.
void copy(const Tensor& destination, const Tensor& source);

/// "f32 2x3 {0.5, 1, ...}", at most eight values.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace frit
