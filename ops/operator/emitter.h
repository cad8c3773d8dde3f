#pragma once

#include <initializer_list>
#include <string_view>

#include "frit/ops/operator/attributes.h"
#include "frit/ops/operator/value.h"

namespace frit::ops {

struct Operator;

/// What gradient rules, decompositions and the operators' C++ functions build with. `graph::Graph` implements it.
class Emitter {
 public:
  virtual ~Emitter() = default;
  /// Checks the inputs and infers the outputs' types; the error names the operator and the argument.
  virtual Values emit(const Operator& op, std::span<const Value> inputs, Attributes attributes) = 0;
  virtual Value constant(const Tensor& tensor) = 0;
  virtual const TensorType& type(int id) const = 0;
};

/// Emits a registered operator where its inputs live. Trailing inputs that are "none" are left out.
Values emit(std::string_view op, std::span<const Value> inputs, Attributes attributes = {});
Values emit(std::string_view op, std::initializer_list<Value> inputs, Attributes attributes = {});
/// The same for an operator with one result, or whose further results are for its gradient only.
Value emit_one(std::string_view op, std::initializer_list<Value> inputs, Attributes attributes = {});

/// x with so many elements of one value more at an axis's end: emits "pad". A negative axis counts from the last.
Value lengthened(Value x, int axis, std::int64_t more, double value);

/// A scalar constant of the dtype, where `like` lives. Throws ErrorKind::argument if an integer dtype does not have the value.
Value scalar(Value like, double value);

}  // namespace frit::ops
