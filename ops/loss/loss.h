#pragma once

#include <optional>

#include "frit/ops/operator/value.h"

namespace frit {

enum class Reduction { mean, sum, none };

Value mean_squared_error(Value prediction, Value target, Reduction reduction = Reduction::mean);
Value l1_loss(Value prediction, Value target, Reduction reduction = Reduction::mean);
/// logits (N, C, ...), target (N, ...) of class indices (i64) -> -log_softmax(logits)[target].
Value cross_entropy(Value logits, Value target, Reduction reduction = Reduction::mean);
/// target has the shape of logits, values in [0, 1].
Value binary_cross_entropy_with_logits(Value logits, Value target, Reduction reduction = Reduction::mean);

// Made of other operators; their values are PyTorch's.

struct ClassLossOptions {
  Value class_weights = {};                       ///< (C); a mean is then weighted by them
  std::optional<std::int64_t> ignore_index = {};  ///< targets that count for nothing, in a mean neither
  double label_smoothing = 0;                     ///< the part of the target that is shared out evenly among all classes
  Reduction reduction = Reduction::mean;
};
Value cross_entropy(Value logits, Value target, const ClassLossOptions& options);
/// log_probabilities (N, C, ...), target (N, ...) of class indices (i64 or i32) -> -log_probabilities[target].
Value nll_loss(Value log_probabilities, Value target, const ClassLossOptions& options = {});

/// target (log target - log_prediction), 0 where the target is 0. torch's "batchmean" is the sum divided by N.
Value kl_divergence(Value log_prediction, Value target, Reduction reduction = Reduction::mean);
/// d^2 / 2 for d = |prediction - target| <= delta, delta (d - delta / 2) beyond.
Value huber_loss(Value prediction, Value target, double delta = 1, Reduction reduction = Reduction::mean);
/// huber_loss divided by its delta, which is beta; l1_loss for beta 0.
Value smooth_l1_loss(Value prediction, Value target, double beta = 1, Reduction reduction = Reduction::mean);

struct FocalOptions {
  double alpha = 0.25;  ///< weight of target 1; that of target 0 is 1 - alpha. Negative: no weights
  double gamma = 2;
  Reduction reduction = Reduction::mean;
};
/// (1 - q)^gamma times the binary cross entropy of logits, q being the probability that they give the target (Lin et al., "Focal loss for
/// dense object detection", ICCV 2017). target has the shape of logits, values in [0, 1].
Value focal_loss(Value logits, Value target, const FocalOptions& options = {});

enum class DiceActivation { softmax, sigmoid, none };
struct DiceOptions {
  DiceActivation activation = DiceActivation::softmax;  ///< over the channels, or of each; none: the prediction is probabilities
  double smooth = 1;                                    ///< added to numerator and denominator
  bool over_batch = false;                              ///< a class' sums are over all of the batch, not of each sample
  Reduction reduction = Reduction::mean;
};
/// 1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth) of each sample and class, (N, C); of each class, (C), if over_batch. prediction
/// (N, C, ...); target of the same shape, or (N, ...) of class indices (i64 or i32).
Value dice_loss(Value prediction, Value target, const DiceOptions& options = {});

}  // namespace frit
