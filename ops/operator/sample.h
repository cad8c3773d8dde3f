#pragma once

#include <string>
#include <vector>

#include "frit/core/tensor.h"
#include "frit/ops/operator/attributes.h"

namespace frit::ops {

/// How a sample input's values are drawn.
enum class Fill {
  normal,    ///< standard normal
  positive,  ///< uniform in [0.5, 2]
  unit,      ///< uniform in [0.05, 0.95]
  nonzero,   ///< sign times uniform in [0.5, 2]
  distinct,  ///< a random permutation of equally spaced values: no two are near each other (max, sort, pooling)
  ones,
  zeros,
  integers,  ///< 0 .. upper-1
};

struct SampleInput {
  Shape shape;
  Fill fill = Fill::normal;
  bool floating = true;      ///< takes the dtype under test; otherwise `dtype`
  DType dtype = DType::i64;  ///< of an input that is not floating
  std::int64_t upper = 2;    ///< for Fill::integers; 0: as many as the operator says (see IndexInput)

  SampleInput(Shape s, Fill f = Fill::normal) : shape(std::move(s)), fill(f) {}  // NOLINT
  /// Of this dtype, whichever is under test.
  static SampleInput of(DType dtype, Shape shape, Fill fill = Fill::normal);
  static SampleInput integers(Shape shape, std::int64_t upper, DType dtype = DType::i64);
  /// Any that the operator takes.
  static SampleInput indices(Shape shape, DType dtype = DType::i64);
};

/// One call that the generic checks make of an operator: inferred = actual shape, gradient = finite differences, views = contiguous,
/// in place = out of place, fused = decomposed, repeated = equal.
struct Sample {
  std::vector<SampleInput> inputs;
  Attributes attributes = {};
  bool smooth = true;     ///< false: has kinks where differences would be wrong; only the other checks run
  bool in_halves = true;  ///< false: in halves what wins hangs on how the steps between are rounded, and differs from device to device
};

/// The tensors of a sample; the same for the same seed.
std::vector<Tensor> sample_tensors(const Sample& sample, DType dtype, std::uint64_t seed);

}  // namespace frit::ops
