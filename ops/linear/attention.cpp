#include "frit/ops/linear/attention.h"

#include <cmath>
#include <limits>

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/linear/matmul.h"
#include "frit/ops/operator/emitter.h"
#include "frit/ops/reduction/reduction.h"

namespace frit {
namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();

/// 1 where position i may attend to j <= i.
Value lower_triangle(Value like, std::int64_t rows, std::int64_t columns) {
  const Tensor allowed = Tensor::zeros({rows, columns}, DType::u8);
  for (std::int64_t i = 0; i < rows; ++i) allowed.slice(0, i, i + 1).slice(1, 0, i + 1).fill(1);
  return like.emitter().constant(allowed);
}

}  // namespace

Value attention_weights(Value query, Value key, const AttentionOptions& o) {
  require(query.rank() >= 2 && key.rank() >= 2 && query.dim(-1) == key.dim(-1), "attention: query ", query.shape(), " and key ",
          key.shape(), " must be (..., L, E) and (..., S, E)");
  Value scores = ops::matmul(query / std::sqrt(static_cast<double>(query.dim(-1))), key, {.transpose_b = true});
  if (o.causal) scores = where(lower_triangle(scores, scores.dim(-2), scores.dim(-1)), scores, nothing);
  if (o.mask) {
    const Shape shape = scores.shape();
    require(broadcast_shapes(o.mask.shape(), shape) == shape, "attention: mask ", o.mask.shape(), " does not broadcast to ", shape);
    scores = is_floating(o.mask.dtype()) ? scores + o.mask : where(o.mask, scores, nothing);
  }
  return softmax(scores, -1);
}

Value scaled_dot_product_attention(Value query, Value key, Value value, const AttentionOptions& options) {
  return matmul(attention_weights(query, key, options), value);
}

}  // namespace frit
