#pragma once

#include "frit/core/fields.h"
#include "frit/models/nn.h"

/// The reference models, in primitive operators, with KernelBench's configurations as defaults (level 2, problems 79, 85 and 58).
namespace frit::models {

/// A, "conv3d-instnorm-max".
struct ConvInstanceNormMax {
  std::int64_t in_channels = 3;
  std::int64_t out_channels = 16;
  std::int64_t kernel_size = 3;
  std::int64_t padding = 0;
  double clamp_min = -1;
  double clamp_max = 1;

  void fields(FieldVisitor& v);
};
/// conv3d -> * m -> instance norm -> clamp -> * m -> max over channels. (N, C, D, H, W) -> (N, D', H', W').
Value conv_instance_norm_max(const Scope& scope, Value input, const ConvInstanceNormMax& config = {});

/// B, "conv2d-groupnorm-pool".
struct ConvGroupNormPool {
  std::int64_t in_channels = 8;
  std::int64_t out_channels = 64;
  std::int64_t kernel_size = 3;
  std::int64_t num_groups = 16;
  std::int64_t pool_kernel_size = 4;
  double clamp_min = 0;
  double clamp_max = 1;

  void fields(FieldVisitor& v);
};
/// conv2d -> group norm -> * scale -> max pool -> clamp. (N, C, H, W) -> (N, K, H', W').
Value conv_group_norm_pool(const Scope& scope, Value input, const ConvGroupNormPool& config = {});

/// C, "convt3d-logsumexp".
struct ConvTransposeLogSumExp {
  std::int64_t in_channels = 3;
  std::int64_t out_channels = 16;
  std::int64_t kernel_size = 3;
  std::int64_t stride = 2;
  std::int64_t padding = 1;

  void fields(FieldVisitor& v);
};
/// conv_transpose3d -> logsumexp over channels -> x * sigmoid(x + 3) / 6 -> - bias -> clamp to [-1, 1]. (N, C, D, H, W) -> (N, 1, D', H',
/// W').
Value conv_transpose_logsumexp(const Scope& scope, Value input, const ConvTransposeLogSumExp& config = {});

/// "classifier": block B on images of a fixed size, flattened, and a linear layer. The defaults are for Fashion-MNIST.
struct Classifier {
  ConvGroupNormPool block = {.in_channels = 1, .pool_kernel_size = 2};
  Dims image_size = {28, 28};
  std::int64_t num_classes = 10;

  /// The block's fields stand among the classifier's own.
  void fields(FieldVisitor& v);
};
/// (N, C, H, W) -> logits (N, num_classes).
Value classifier(const Scope& scope, Value input, const Classifier& config = {});

}  // namespace frit::models
