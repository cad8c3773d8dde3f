#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

// y = (x - mean) / sqrt(variance + eps) * weight + bias, with the biased variance. weight and bias come both or not at all.
// Means are kept in double: float32 results and gradients are exact to about 1e-6 however far the data lies from zero, and a constant slice
// gives exactly the bias. An infinity or a NaN makes the slice that it is in NaN.

/// Statistics over (D, H, W) of each sample and channel. input (N, C, ...), weight and bias (C). Needs more than one spatial element.
Value instance_norm(Value input, Value weight = {}, Value bias = {}, double eps = 1e-5);
/// Statistics over each sample's group of C / num_groups channels. input (N, C, ...), weight and bias (C).
Value group_norm(Value input, std::int64_t num_groups, Value weight = {}, Value bias = {}, double eps = 1e-5);
/// Statistics over the last `normalized_rank` axes; weight and bias have the shape of those axes.
Value layer_norm(Value input, std::int64_t normalized_rank, Value weight = {}, Value bias = {}, double eps = 1e-5);

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;
};
/// Statistics over the batch and space of each channel while training; running_mean and running_variance (C), variables, are then updated
/// in place by `momentum` (the variance unbiased). At inference the running ones are used instead. weight and bias (C). Running
/// statistics of f16 and bf16 data may be f32.
Value batch_norm(Value input, Value weight, Value bias, Value running_mean, Value running_variance, const BatchNormOptions& options = {});

}  // namespace frit
