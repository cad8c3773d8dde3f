#pragma once

#include <iosfwd>
#include <span>
#include <vector>

#include "frit/core/tensor.h"

namespace frit {

/// What is known of a value before it is computed.
struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  std::int64_t elements() const { return element_count(shape); }
  std::int64_t bytes() const { return byte_count(shape, size_of(dtype)); }
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

std::ostream& operator<<(std::ostream& out, const TensorType& type);  ///< "f32 2x3"

namespace ops {
class Emitter;
}

/// A handle of one result in a graph that is being built. Copying it copies the handle. A default-constructed Value means "none": a
/// missing optional input, or a gradient that is zero everywhere.
class Value {
 public:
  Value() = default;
  Value(ops::Emitter& emitter, int id) : emitter_(&emitter), id_(id) {}

  explicit operator bool() const { return emitter_ != nullptr; }
  ops::Emitter& emitter() const;  ///< throws ErrorKind::argument on "none"
  int id() const { return id_; }

  const TensorType& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int rank() const { return shape().rank(); }
  std::int64_t dim(std::int64_t axis) const { return shape()[normalize_axis(axis, rank(), "Value::dim")]; }
  /// select(*this, 0, index), see shape_ops.h.
  Value operator[](std::int64_t index) const;

  friend bool operator==(const Value&, const Value&) = default;

 private:
  ops::Emitter* emitter_ = nullptr;
  int id_ = -1;
};

using Values = std::vector<Value>;

}  // namespace frit
