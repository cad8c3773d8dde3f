#pragma once

#include "frit/ops/loss/loss.h"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

struct LossAttributes {
  std::string reduction = "mean";  ///< or "sum", "none"
  void fields(FieldVisitor& v) { v.field("reduction", reduction); }
};

inline LossAttributes loss_attributes(Reduction reduction) {
  return {reduction == Reduction::mean ? "mean" : reduction == Reduction::sum ? "sum" : "none"};
}

inline Reduction reduction_of(const Attributes& attributes) {
  const std::string& name = attributes.as<LossAttributes>().reduction;
  require(name == "mean" || name == "sum" || name == "none", "reduction must be \"mean\", \"sum\" or \"none\", got \"", name, '"');
  return name == "mean" ? Reduction::mean : name == "sum" ? Reduction::sum : Reduction::none;
}

/// The shape of a loss that has one value for each element of `shape`.
inline Shape loss_shape(const Attributes& attributes, const Shape& shape) {
  return reduction_of(attributes) == Reduction::none ? shape : Shape{};
}

/// The target classes of columns, in one of two types.
struct Targets {
  const std::int64_t* wide;
  const std::int32_t* narrow;

  explicit Targets(const Tensor& target)
      : wide(target.dtype() == DType::i64 ? target.data<std::int64_t>() : nullptr),
        narrow(target.dtype() == DType::i64 ? nullptr : target.data<std::int32_t>()) {}
  FRIT_HOST_DEVICE std::int64_t operator[](std::int64_t column) const { return wide != nullptr ? wide[column] : narrow[column]; }
};

}  // namespace frit::ops
