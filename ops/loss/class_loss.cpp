#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/indexing/indexing.h"
#include "frit/ops/indexing/take_along_axis.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/image_axes.h"

namespace frit {
namespace {

void require_operands(const char* name, Value scores, Value target, const ClassLossOptions& o) {
  Shape expected = scores.shape();
  require(scores.rank() >= 2, name, ": scores must be (N, C, ...), got ", expected);
  expected.erase(1);
  require((target.dtype() == DType::i64 || target.dtype() == DType::i32) && target.shape() == expected, name, ": target is ", target.type(),
          ", scores ", scores.shape(), " need i64 ", expected);
  const TensorType weights{scores.dtype(), {scores.dim(1)}};
  if (o.class_weights) {
    require(o.class_weights.type() == weights, name, ": class_weights must be ", weights, ", got ", o.class_weights.type());
  }
  require(o.label_smoothing >= 0 && o.label_smoothing <= 1, name, ": label_smoothing must be in [0, 1], got ", o.label_smoothing);
}

/// Of operands that fit.
Value class_loss(Value log_probabilities, Value target, const ClassLossOptions& o) {
  const Value counts = o.ignore_index ? not_equal(target, static_cast<double>(*o.ignore_index)) : Value{};
  const auto counted = [&](Value x) { return counts ? where(counts, x, 0.0) : x; };
  const Value places = cast(counted(target), DType::i64);
  const auto of_target = [&](Value x) { return ops::take_along_axis(x, places, 1, /*keep_dims=*/false); };

  Value scores = -log_probabilities, weights;
  if (o.class_weights) {
    const Value for_each = ops::along_channels(o.class_weights, scores.rank());
    weights = index_select(o.class_weights, 0, places);
    scores = scores * for_each;
  }
  Value losses = of_target(scores);
  if (o.label_smoothing > 0) losses = losses * (1 - o.label_smoothing) + mean(scores, {1}) * o.label_smoothing;
  losses = counted(losses);
  if (o.reduction == Reduction::none) return losses;
  if (o.reduction == Reduction::sum) return sum(losses);
  if (!weights && !counts) return mean(losses);
  return sum(losses) / sum(weights ? counted(weights) : cast(counts, losses.dtype()));
}

}  // namespace

Value nll_loss(Value log_probabilities, Value target, const ClassLossOptions& options) {
  require_operands("nll_loss", log_probabilities, target, options);
  return class_loss(log_probabilities, target, options);
}

Value cross_entropy(Value logits, Value target, const ClassLossOptions& o) {
  if (!o.class_weights && !o.ignore_index && o.label_smoothing == 0) return cross_entropy(logits, target, o.reduction);
  require_operands("cross_entropy", logits, target, o);
  return class_loss(log_softmax(logits, 1), target, o);
}

}  // namespace frit
