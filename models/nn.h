#pragma once

#include "frit/models/scope.h"
#include "frit/ops/norm/norm.h"

/// Layers: functions that make their parameters in a scope, named and initialised as PyTorch's modules do, and apply the operator.
namespace frit::nn {

/// Dims fields: one number an image axis, or one for all.
struct Convolution {
  std::int64_t out_channels;
  Dims kernel_size;
  Dims stride = {};
  Dims padding = {};
  Dims dilation = {};
  std::int64_t groups = 1;
  Dims output_padding = {};  ///< transposed only
  bool bias = true;
};
Value conv2d(const Scope& scope, Value input, const Convolution& layer);
Value conv3d(const Scope& scope, Value input, const Convolution& layer);
Value conv_transpose2d(const Scope& scope, Value input, const Convolution& layer);
Value conv_transpose3d(const Scope& scope, Value input, const Convolution& layer);

struct Linear {
  std::int64_t out_features;
  bool bias = true;
};
Value linear(const Scope& scope, Value input, const Linear& layer);

struct GroupNorm {
  std::int64_t num_groups;
  double eps = 1e-5;
};
Value group_norm(const Scope& scope, Value input, const GroupNorm& layer);
/// Over the last `normalized_rank` axes.
Value layer_norm(const Scope& scope, Value input, std::int64_t normalized_rank = 1, double eps = 1e-5);
/// With weight and bias; without them call frit::instance_norm.
Value instance_norm(const Scope& scope, Value input, double eps = 1e-5);
/// Running statistics are "running_mean" and "running_var", as in PyTorch.
Value batch_norm(const Scope& scope, Value input, const BatchNormOptions& options = {});
/// The mask's seed comes from the scope's name.
Value dropout(const Scope& scope, Value input, double probability = 0.5);

}  // namespace frit::nn
