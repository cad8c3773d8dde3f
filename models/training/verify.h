#pragma once

#include <string>
#include <vector>

#include "frit/core/io/safetensors.h"

namespace frit {

/// One reference tensor of a golden case next to what frit computes for it.
struct VerifyRow {
  std::string name;
  Shape shape;
  double absolute = 0;  ///< largest difference
  double relative =
      0;  ///< the same, divided by the reference's largest value; for a gradient that is all but zero, by the case's largest gradient
  double tolerance = 0;     ///< of `relative`
  std::string remark = {};  ///< "all but zero: relative to the case's largest gradient", or what else than a difference is wrong
  bool passed = false;
};

/// Runs a case that another implementation wrote down in float64 and compares every result, as the pipeline runs it, fused operators
/// included:
/// - a model: metadata "model" and "config", tensors "input", "param.*", "cotangent", "output", "grad.*";
/// - a training trace: also "optimizer" and "optimizer_config", tensors "input", "target", "param.*", "losses", "final.*";
/// - an operator's cases: metadata "operator", "K.attributes", tensors "K.input.I", "K.output", "K.cotangent", "K.grad.I".
/// NaN and infinite values must stand where the reference has them. Throws ErrorKind::format for a file that is none of these, or that its
/// model or operator does not fit.
/// A `precision` of f16 or bf16 goes with a dtype of f32: mixed precision. Its rounding may move a maximum to another element; the gradient
/// then goes there too, and is not within tolerance.
std::vector<VerifyRow> verify_case(const TensorFile& file, DType dtype, Device device = {}, DType precision = DType::f32);

}  // namespace frit
