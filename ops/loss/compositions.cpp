#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/indexing/indexing.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

Value reduced(Value losses, Reduction reduction) {
  return reduction == Reduction::none ? losses : reduction == Reduction::sum ? sum(losses) : mean(losses);
}

void require_alike(const char* name, Value prediction, Value target) {
  require(prediction.type() == target.type(), name, ": prediction is ", prediction.type(), ", target is ", target.type());
}

}  // namespace

Value kl_divergence(Value log_prediction, Value target, Reduction reduction) {
  require_alike("kl_divergence", log_prediction, target);
  const Value positive = greater(target, 0.0);
  return reduced(where(positive, target * log(where(positive, target, 1.0)), 0.0) - target * log_prediction, reduction);
}

Value huber_loss(Value prediction, Value target, double delta, Reduction reduction) {
  require_alike("huber_loss", prediction, target);
  require(delta > 0, "huber_loss: delta must be above 0, got ", delta);
  const Value distance = abs(prediction - target), near = clamp(distance, std::nullopt, delta);
  return reduced(near * (distance - near * 0.5), reduction);
}

Value smooth_l1_loss(Value prediction, Value target, double beta, Reduction reduction) {
  require_alike("smooth_l1_loss", prediction, target);
  require(beta >= 0, "smooth_l1_loss: beta must not be negative, got ", beta);
  if (beta == 0) return l1_loss(prediction, target, reduction);
  return huber_loss(prediction, target, beta, reduction) / beta;
}

Value focal_loss(Value logits, Value target, const FocalOptions& o) {
  require_alike("focal_loss", logits, target);
  require(o.gamma >= 0 && o.alpha <= 1, "focal_loss: gamma must not be negative and alpha not above 1, got ", o.gamma, " and ", o.alpha);
  const Value p = sigmoid(logits), other = 1.0 - target;
  Value losses = binary_cross_entropy_with_logits(logits, target, Reduction::none) * power(p * other + (1.0 - p) * target, o.gamma);
  if (o.alpha >= 0) losses = losses * (o.alpha * target + (1 - o.alpha) * other);
  return reduced(losses, o.reduction);
}

Value dice_loss(Value prediction, Value target, const DiceOptions& o) {
  require(prediction.rank() >= 2, "dice_loss: prediction must be (N, C, ...), got ", prediction.shape());
  require(o.smooth >= 0, "dice_loss: smooth must not be negative, got ", o.smooth);
  Value p = prediction;
  if (o.activation == DiceActivation::softmax) p = softmax(p, 1);
  if (o.activation == DiceActivation::sigmoid) p = sigmoid(p);
  const Value t = is_floating(target.dtype()) ? target : one_hot(target, p.dim(1), p.dtype(), 1);
  require_alike("dice_loss", p, t);
  Dims over = o.over_batch ? Dims{0} : Dims{};
  for (int axis = 2; axis < p.rank(); ++axis) over.push_back(axis);
  const auto total = [&](Value x) { return over.empty() ? x : sum(x, over); };
  return reduced(1.0 - (2.0 * total(p * t) + o.smooth) / (total(p) + total(t) + o.smooth), o.reduction);
}

}  // namespace frit
