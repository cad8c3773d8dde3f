#include "frit/core/shape.h"

#include <ostream>

#include "frit/core/error.h"

namespace frit {

Dims::Dims(std::initializer_list<std::int64_t> values) : Dims(std::span(values.begin(), values.size())) {}

Dims::Dims(std::span<const std::int64_t> values) {
  require(values.size() <= max_rank, "rank ", values.size(), " is over the limit of ", max_rank);
  std::copy(values.begin(), values.end(), values_.begin());
  rank_ = static_cast<int>(values.size());
}

Dims Dims::filled(int rank, std::int64_t value) {
  Dims dims;
  for (int i = 0; i < rank; ++i) dims.push_back(value);
  return dims;
}

void Dims::push_back(std::int64_t value) { insert(rank_, value); }

void Dims::insert(int axis, std::int64_t value) {
  require(rank_ < max_rank, "rank ", rank_ + 1, " is over the limit of ", max_rank);
  FRIT_CHECK(axis >= 0 && axis <= rank_);
  std::copy_backward(begin() + axis, end(), end() + 1);
  values_[static_cast<std::size_t>(axis)] = value;
  ++rank_;
}

void Dims::erase(int axis) {
  FRIT_CHECK(axis >= 0 && axis < rank_);
  std::copy(begin() + axis + 1, end(), begin() + axis);
  --rank_;
}

void Dims::require_rank(int expected) const { require(rank_ == expected, "expected a shape of rank ", expected, ", got ", *this); }

std::ostream& operator<<(std::ostream& out, const Dims& dims) {
  if (dims.empty()) return out << "scalar";
  for (int i = 0; i < dims.rank(); ++i) out << (i == 0 ? "" : "x") << dims[i];
  return out;
}

namespace {

std::int64_t checked_product(const Shape& shape, std::int64_t product) {
  for (const std::int64_t size : shape) {
    require(size >= 0, "shape ", shape, " has a negative size");
  }
  for (const std::int64_t size : shape) {
    if (size == 0) return 0;
  }
  for (const std::int64_t size : shape) {
    require(!__builtin_mul_overflow(product, size, &product), "shape ", shape, " has more elements or bytes than 2^63 - 1");
  }
  return product;
}

}  // namespace

std::int64_t element_count(const Shape& shape) { return checked_product(shape, 1); }

std::int64_t byte_count(const Shape& shape, std::size_t element_size) {
  return checked_product(shape, static_cast<std::int64_t>(element_size));
}

int normalize_axis(std::int64_t axis, int rank, const char* what) {
  require(axis >= -rank && axis < rank, what, ": axis ", axis, " is outside [", -rank, ", ", rank, ")");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Strides dense_strides(const Shape& shape, Layout layout) {
  Strides strides = Dims::filled(shape.rank(), 0);
  std::int64_t step = 1;
  const auto place = [&](int axis) {
    strides[axis] = step;
    // Only a shape without elements gets here with a product that big, and nothing follows its strides.
    if (__builtin_mul_overflow(step, std::max<std::int64_t>(shape[axis], 1), &step)) step = 1;
  };
  if (layout == Layout::contiguous) {
    for (int axis = shape.rank() - 1; axis >= 0; --axis) place(axis);
    return strides;
  }
  require(shape.rank() >= 3, "channels_last needs a shape of rank 3 or more, got ", shape);
  place(1);
  for (int axis = shape.rank() - 1; axis >= 2; --axis) place(axis);
  place(0);
  return strides;
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape result = Dims::filled(rank, 1);
  for (int i = 1; i <= rank; ++i) {
    const std::int64_t left = i <= a.rank() ? a[a.rank() - i] : 1;
    const std::int64_t right = i <= b.rank() ? b[b.rank() - i] : 1;
    require(left == right || left == 1 || right == 1, "shapes ", a, " and ", b, " do not broadcast: sizes ", left, " and ", right,
            " at axis ", rank - i);
    result[rank - i] = left == 1 ? right : left;
  }
  return result;
}

}  // namespace frit
