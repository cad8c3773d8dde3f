#include "frit/core/tensor.h"

#include <algorithm>
#include <ostream>

#include "frit/core/memory/allocator.h"
#include "frit/core/strided_loop.h"

namespace frit {

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device, Layout layout) {
  return empty_in(allocator_of(device), shape, dtype, device, layout);
}

Tensor Tensor::empty_in(Allocator& allocator, const Shape& shape, DType dtype, Device device, Layout layout) {
  const std::int64_t bytes = byte_count(shape, size_of(dtype));
  void* memory = allocator.allocate(static_cast<std::size_t>(bytes));
  std::shared_ptr<void> owner(memory, [&allocator](void* block) { allocator.deallocate(block); });
  return over(memory, shape, dtype, device, std::move(owner), layout);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) { return full(shape, 0, dtype, device); }

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  tensor.fill(value);
  return tensor;
}

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape) {
  require(static_cast<std::int64_t>(values.size()) == element_count(shape), "Tensor::from: shape ", shape, " has ", element_count(shape),
          " elements, got ", values.size(), " values");
  Tensor tensor = empty(shape, dtype_of<T>());
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

Tensor Tensor::over(void* memory, const Shape& shape, DType dtype, Device device, std::shared_ptr<void> owner, Layout layout) {
  Tensor tensor;
  tensor.elements_ = element_count(shape);
  tensor.owner_ = std::move(owner);
  tensor.memory_ = memory;
  tensor.shape_ = shape;
  tensor.strides_ = dense_strides(shape, layout);
  tensor.dtype_ = dtype;
  tensor.device_ = device;
  tensor.defined_ = true;
  return tensor;
}

bool Tensor::is_contiguous(Layout layout) const {
  if (elements_ == 0) return true;
  if (layout == Layout::channels_last && rank() < 3) return false;
  const Strides dense = dense_strides(shape_, layout);
  for (int axis = 0; axis < rank(); ++axis) {
    if (shape_[axis] != 1 && strides_[axis] != dense[axis]) return false;
  }
  return true;
}

Layout Tensor::layout() const {
  return is_contiguous() || !is_contiguous(Layout::channels_last) ? Layout::contiguous : Layout::channels_last;
}

std::int64_t Tensor::pixel_pitch() const {
  if (is_contiguous(Layout::channels_last)) return shape_[1];
  if (rank() < 3 || (shape_[1] > 1 && strides_[1] != 1)) return 0;
  // The innermost axis with more than one pixel tells how far these are apart, the others follow from it.
  std::int64_t pitch = 0, pixels = 1;
  for (int a = rank() - 1; a >= 1; --a) {
    const int axis = a > 1 ? a : 0;
    if (shape_[axis] == 1) continue;
    if (pitch == 0) pitch = strides_[axis];
    if (strides_[axis] != pixels * pitch) return 0;
    pixels *= shape_[axis];
  }
  return pitch >= shape_[1] ? pitch : 0;
}

double Tensor::item() const {
  require(elements_ == 1, "Tensor::item: needs one element, shape is ", shape_);
  double value = 0;
  copy(Tensor::over(&value, shape_, DType::f64, Device::cpu(), nullptr), to(Device::cpu()));
  return value;
}

Tensor Tensor::view(const Shape& shape, const Strides& strides, std::int64_t offset) const {
  Tensor tensor = *this;
  tensor.shape_ = shape;
  tensor.strides_ = strides;
  tensor.elements_ = element_count(shape);
  if (memory_ != nullptr) {
    tensor.memory_ = static_cast<std::byte*>(memory_) + offset * static_cast<std::int64_t>(size_of(dtype_));
  }
  return tensor;
}

void Tensor::refuse_dtype(DType asked) const {
  fail(ErrorKind::argument, "Tensor::data: the tensor has dtype ", dtype_, ", asked for ", asked, " (shape ", shape_, ')');
}

void Tensor::refuse_span() const {
  fail(ErrorKind::argument, "Tensor::span: needs a contiguous tensor on the CPU, got shape ", shape_, " with strides ", strides_, " on ",
       device_);
}

Tensor Tensor::reshape(const Shape& wanted) const {
  Shape shape = wanted;
  int inferred = -1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] != -1) continue;
    require(inferred < 0, "reshape: only one size can be inferred, got ", wanted);
    inferred = axis;
    shape[axis] = 1;
  }
  if (inferred >= 0) {
    const std::int64_t known = element_count(shape);
    require(known != 0 && elements_ % known == 0, "reshape: shape ", wanted, " does not fit ", elements_, " elements (input ", shape_, ")");
    shape[inferred] = elements_ / known;
  }
  require(element_count(shape) == elements_, "reshape: shape ", wanted, " does not fit ", elements_, " elements (input ", shape_, ")");
  const Tensor source = contiguous();
  return source.view(shape, dense_strides(shape), 0);
}

Tensor Tensor::permute(const Dims& axes) const {
  require(axes.rank() == rank(), "permute: ", axes.rank(), " axes for rank ", rank());
  Shape shape = shape_;
  Strides strides = strides_;
  unsigned seen = 0;
  for (int i = 0; i < rank(); ++i) {
    const int axis = normalize_axis(axes[i], rank(), "permute");
    require((seen & (1u << axis)) == 0, "permute: axis ", axis, " is named twice in ", axes);
    seen |= 1u << axis;
    shape[i] = shape_[axis];
    strides[i] = strides_[axis];
  }
  return view(shape, strides, 0);
}

Tensor Tensor::transpose(std::int64_t first, std::int64_t second) const {
  Dims axes;
  for (int i = 0; i < rank(); ++i) axes.push_back(i);
  std::swap(axes[normalize_axis(first, rank(), "transpose")], axes[normalize_axis(second, rank(), "transpose")]);
  return permute(axes);
}

Tensor Tensor::slice(std::int64_t axis, std::int64_t begin, std::int64_t end, std::int64_t step) const {
  const int a = normalize_axis(axis, rank(), "slice");
  require(step > 0, "slice: step must be positive, got ", step);
  require(0 <= begin && begin <= end && end <= shape_[a], "slice: [", begin, ", ", end, ") is outside axis ", a, " of shape ", shape_);
  Shape shape = shape_;
  Strides strides = strides_;
  step = std::min(step, std::max<std::int64_t>(end - begin, 1));
  shape[a] = (end - begin + step - 1) / step;
  strides[a] *= step;
  return view(shape, strides, shape[a] == 0 ? 0 : begin * strides_[a]);
}

Tensor Tensor::expand(const Shape& shape) const {
  require(shape.rank() >= rank() && broadcast_shapes(shape_, shape) == shape, "expand: shape ", shape_, " does not expand to ", shape);
  Strides strides = Dims::filled(shape.rank(), 0);
  for (int axis = 0; axis < rank(); ++axis) {
    const int target = axis + shape.rank() - rank();
    strides[target] = shape_[axis] == shape[target] ? strides_[axis] : 0;
  }
  return view(shape, strides, 0);
}

Tensor Tensor::contiguous(Layout layout) const {
  if (is_contiguous(layout)) return *this;
  Tensor result = empty(shape_, dtype_, device_, layout);
  copy(result, *this);
  return result;
}

Tensor Tensor::clone() const {
  Tensor result = empty(shape_, dtype_, device_);
  copy(result, *this);
  return result;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor result = empty(shape_, dtype, device_);
  copy(result, *this);
  return result;
}

Tensor Tensor::to(Device device) const {
  if (device == device_) return *this;
  Tensor result = empty(shape_, dtype_, device);
  copy(result, *this);
  return result;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor source = to(Device::cpu()).to(dtype_of<T>()).contiguous();
  const std::span<T> values = source.span<T>();
  return {values.begin(), values.end()};
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "undefined";
  out << tensor.dtype() << ' ' << tensor.shape() << " {";
  const std::vector<double> values = tensor.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i == 8) return out << ", ...}";
    out << (i == 0 ? "" : ", ") << values[i];
  }
  return out << '}';
}

#define FRIT_INSTANTIATE(T)                                          \
  template Tensor Tensor::from<T>(std::span<const T>, const Shape&); \
  template std::vector<T> Tensor::to_vector<T>() const;
FRIT_INSTANTIATE(double)
FRIT_INSTANTIATE(float)
FRIT_INSTANTIATE(Half)
FRIT_INSTANTIATE(BFloat16)
FRIT_INSTANTIATE(std::int64_t)
FRIT_INSTANTIATE(std::int32_t)
FRIT_INSTANTIATE(std::uint8_t)
#undef FRIT_INSTANTIATE

}  // namespace frit
