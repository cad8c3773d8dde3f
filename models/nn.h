#pragma once

#include <concepts>

#include "frit/models/scope.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/shape/shape_ops.h"

/// Layers: functions that make their parameters in a scope, named and initialised as PyTorch's modules do, and apply the operator.
namespace frit::nn {

/// Dims fields: one number an image axis, or one for all.
struct Convolution {
  std::int64_t out_channels;
  Dims kernel_size;
  Dims stride = {};
  Dims padding = {};
  Dims output_padding = {};  ///< transposed only
  Dims dilation = {};
  std::int64_t groups = 1;
  bool bias = true;
  /// So that with stride 1 the output has the input's size; `padding` is then none. Not transposed, as is the next.
  bool same_padding = false;
  PaddingMode padding_mode = PaddingMode::zeros;
  Initializer initialize_weight = {}, initialize_bias = {};  ///< default: PyTorch's
};
Value conv1d(const Scope& scope, Value input, const Convolution& layer);
Value conv2d(const Scope& scope, Value input, const Convolution& layer);
Value conv3d(const Scope& scope, Value input, const Convolution& layer);
Value conv_transpose1d(const Scope& scope, Value input, const Convolution& layer);
Value conv_transpose2d(const Scope& scope, Value input, const Convolution& layer);
Value conv_transpose3d(const Scope& scope, Value input, const Convolution& layer);

struct Linear {
  std::int64_t out_features;
  bool bias = true;
  Initializer initialize_weight = {}, initialize_bias = {};  ///< default: PyTorch's
};
Value linear(const Scope& scope, Value input, const Linear& layer);
template <std::integral Integer>  // in braces stand fields
Value linear(const Scope& scope, Value input, Integer out_features) {
  return linear(scope, input, Linear{.out_features = static_cast<std::int64_t>(out_features)});
}

/// indices (...), i64 or i32 -> rows (..., embedding_dim) of "weight" (num_embeddings, embedding_dim), which is standard normal at first.
struct Embedding {
  std::int64_t num_embeddings;
  std::int64_t embedding_dim;
};
Value embedding(const Scope& scope, Value indices, const Embedding& layer);

/// frit::prelu with "weight" (num_parameters): 1, or the number of channels.
Value prelu(const Scope& scope, Value input, std::int64_t num_parameters = 1, double initial = 0.25);

// Norms have the parameters "weight" and "bias" of each channel, unless `affine` is false; they start as ones and zeros unless an
// initialiser is given.

struct GroupNorm {
  std::int64_t num_groups;
  double eps = 1e-5;
  bool affine = true;
  Initializer initialize_weight = {}, initialize_bias = {};
};
Value group_norm(const Scope& scope, Value input, const GroupNorm& layer);
template <std::integral Integer>
Value group_norm(const Scope& scope, Value input, Integer num_groups) {
  return group_norm(scope, input, GroupNorm{.num_groups = static_cast<std::int64_t>(num_groups)});
}

/// Over the last `normalized_rank` axes, of whose shape the parameters are.
struct LayerNorm {
  std::int64_t normalized_rank = 1;
  double eps = 1e-5;
  bool affine = true;
  Initializer initialize_weight = {}, initialize_bias = {};
};
Value layer_norm(const Scope& scope, Value input, const LayerNorm& layer = {});
template <std::integral Integer>
Value layer_norm(const Scope& scope, Value input, Integer normalized_rank, double eps = 1e-5) {
  return layer_norm(scope, input, LayerNorm{.normalized_rank = static_cast<std::int64_t>(normalized_rank), .eps = eps});
}

/// PyTorch's is affine only if it is asked to be.
struct InstanceNorm {
  double eps = 1e-5;
  bool affine = true;
  Initializer initialize_weight = {}, initialize_bias = {};
};
Value instance_norm(const Scope& scope, Value input, const InstanceNorm& layer = {});

/// Running statistics are "running_mean" and "running_var", as in PyTorch.
struct BatchNorm {
  double eps = 1e-5;
  double momentum = 0.1;
  bool affine = true;
  Initializer initialize_weight = {}, initialize_bias = {};
};
Value batch_norm(const Scope& scope, Value input, const BatchNorm& layer = {});
/// The mask's seed comes from the scope's name.
Value dropout(const Scope& scope, Value input, double probability = 0.5);
/// Stochastic depth (Huang et al., ECCV 2016): zeroes each sample of a residual branch with this probability and scales the others by
/// 1 / (1 - probability). The identity at inference.
Value drop_path(const Scope& scope, Value input, double probability);

}  // namespace frit::nn
