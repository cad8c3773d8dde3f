#include "frit/models/reference.h"

#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::models {

void ConvInstanceNormMax::fields(FieldVisitor& v) {
  v.field("in_channels", in_channels);
  v.field("out_channels", out_channels);
  v.field("kernel_size", kernel_size);
  v.field("padding", padding);
  v.field("clamp_min", clamp_min);
  v.field("clamp_max", clamp_max);
}

Value conv_instance_norm_max(const Scope& scope, Value input, const ConvInstanceNormMax& c) {
  const Value m = scope.parameter("multiplier", {c.out_channels, 1, 1, 1}, init::normal());
  const Value y =
      nn::conv3d(scope / "conv", input, {.out_channels = c.out_channels, .kernel_size = {c.kernel_size}, .padding = {c.padding}});
  return max(clamp(instance_norm(y * m), c.clamp_min, c.clamp_max) * m, /*axis=*/1);
}

void ConvGroupNormPool::fields(FieldVisitor& v) {
  v.field("in_channels", in_channels);
  v.field("out_channels", out_channels);
  v.field("kernel_size", kernel_size);
  v.field("num_groups", num_groups);
  v.field("pool_kernel_size", pool_kernel_size);
  v.field("clamp_min", clamp_min);
  v.field("clamp_max", clamp_max);
}

Value conv_group_norm_pool(const Scope& scope, Value input, const ConvGroupNormPool& c) {
  const Value y = nn::conv2d(scope / "conv", input, {.out_channels = c.out_channels, .kernel_size = {c.kernel_size}});
  const Value normalized = nn::group_norm(scope / "group_norm", y, {.num_groups = c.num_groups});
  const Value scale = scope.parameter("scale", {c.out_channels, 1, 1}, init::ones());
  return clamp(max_pool2d(normalized * scale, {.kernel_size = {c.pool_kernel_size}}), c.clamp_min, c.clamp_max);
}

void ConvTransposeLogSumExp::fields(FieldVisitor& v) {
  v.field("in_channels", in_channels);
  v.field("out_channels", out_channels);
  v.field("kernel_size", kernel_size);
  v.field("stride", stride);
  v.field("padding", padding);
}

Value conv_transpose_logsumexp(const Scope& scope, Value input, const ConvTransposeLogSumExp& c) {
  const Value bias = scope.parameter("bias", {1, 1, 1, 1}, init::normal());
  const Value y =
      nn::conv_transpose3d(scope / "conv_transpose", input,
                           {.out_channels = c.out_channels, .kernel_size = {c.kernel_size}, .stride = {c.stride}, .padding = {c.padding}});
  const Value x = logsumexp(y, {1}, /*keep_dims=*/true);
  return clamp(x * sigmoid(x + 3.0) / 6.0 - bias, -1, 1);
}

void Classifier::fields(FieldVisitor& v) {
  block.fields(v);
  v.field("image_size", image_size);
  v.field("num_classes", num_classes);
}

Value classifier(const Scope& scope, Value input, const Classifier& c) {
  require(c.num_classes >= 1, "num_classes is ", c.num_classes, ", expected 1 or more");
  const Value features = conv_group_norm_pool(scope / "block", input, c.block);
  return nn::linear(scope / "linear", flatten(features), {.out_features = c.num_classes});
}

}  // namespace frit::models
