#pragma once

#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/cast_functor.h"

namespace frit::ops {

/// For an operator that can cast its one input as it goes, and has a field `dtype` for that: the attributes with which it does the work of
/// a cast that gives its input.
template <class A>
std::optional<Attributes> absorb_cast(const OperatorCall& producer, const TensorType&, std::size_t, const Attributes& own) {
  A attributes = own.as<A>();
  if (!producer.op->conversion || attributes.dtype) return std::nullopt;
  attributes.dtype = producer.attributes.as<CastAttributes>().dtype;
  return attributes;
}

/// The dtype of such an operator's output.
inline DType stored_dtype(const InferContext& call, std::optional<DType> dtype) {
  const DType given = call.inputs[0].dtype;
  call.require(!dtype || (is_half(*dtype) && given == DType::f32), "dtype ", dtype.value_or(given), " is for halves of float32, got ",
               given);
  return dtype.value_or(given);
}

/// Of one that can also load halves as float32.
inline DType converted_dtype(const InferContext& call, std::optional<DType> dtype) {
  const DType given = call.inputs[0].dtype;
  const bool loaded = dtype == DType::f32 && (is_half(given) || given == DType::f32);
  return loaded ? DType::f32 : stored_dtype(call, dtype);
}

struct ReshapeAttributes {
  Shape shape;
  void fields(FieldVisitor& v) { v.field("shape", shape); }
};

struct PermuteAttributes {
  Dims axes;  ///< output axis i is input axis axes[i]
  void fields(FieldVisitor& v) { v.field("axes", axes); }
};

struct PadAttributes {
  Dims before, after;  ///< elements added at each axis's ends
  double value = 0;
  std::optional<DType> dtype = {};  ///< a half that float32 is stored as; none: the input's
  std::string mode = "constant";    ///< or "reflect", "replicate", "circular" (see PaddingMode)
  void fields(FieldVisitor& v) {
    v.field("before", before);
    v.field("after", after);
    v.field("value", value);
    v.field("dtype", dtype);
    v.field("mode", mode);
  }
  bool repeats() const { return mode != "constant"; }  ///< what is padded with lies inside
};

struct PadBackwardAttributes {
  Dims before, after;
  std::string mode = "reflect";  ///< of the padding, but constant
  void fields(FieldVisitor& v) {
    v.field("before", before);
    v.field("after", after);
    v.field("mode", mode);
  }
};

struct SliceAttributes {
  std::int64_t axis = 0, begin = 0, end = INT64_MAX, step = 1;
  std::optional<DType> dtype = {};  ///< the other of float32 and a half; none: the input's
  void fields(FieldVisitor& v) {
    v.field("axis", axis);
    v.field("begin", begin);
    v.field("end", end);
    v.field("step", step);
    v.field("dtype", dtype);
  }
};

/// A slice of one axis with its bounds resolved: `count` elements from `begin` on.
struct SliceRange {
  int axis;
  std::int64_t begin, end, step, count;
};
SliceRange resolve(const Shape& shape, const SliceAttributes& attributes);

struct SliceBackwardAttributes {
  std::int64_t axis = 0, begin = 0, step = 1;
  std::int64_t size = 0;  ///< of the axis that was sliced
  void fields(FieldVisitor& v) {
    v.field("axis", axis);
    v.field("begin", begin);
    v.field("step", step);
    v.field("size", size);
  }
};

}  // namespace frit::ops
