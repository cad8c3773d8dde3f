#pragma once

#include <optional>

#include "frit/ops/elementwise/activation_functors.h"
#include "frit/ops/operator/kernel.h"
#include "frit/ops/pool/pool_geometry.h"

namespace frit::ops {

// clamp(max_pool2d(group_norm(input) * scale)): what follows a convolution. The forward operator gives
//   output (N, C, H', W')
//   argmax, likewise: which element of its window each maximum is, kernel row * kernel width + kernel column; u8 or i32
//   mean, rstd (N, G), f64
//   argmax_input, like the output: the input's element that each maximum was made of
// and the backward operator takes the last four: the gradient that enters the norm is that of one element a window. Rows and columns
// that the pool leaves over still count in the norm and have a gradient through it.

struct GroupNormScaleMaxPoolClampAttributes {
  std::int64_t num_groups = 1;
  double eps = 1e-5;
  Dims kernel_size = {}, stride = {}, padding = {}, dilation = {};  ///< as in PoolOptions
  bool ceil_mode = false;
  std::optional<double> min = {}, max = {};

  void fields(FieldVisitor& v) {
    v.field("num_groups", num_groups);
    v.field("eps", eps);
    v.field("kernel_size", kernel_size);
    v.field("stride", stride);
    v.field("padding", padding);
    v.field("dilation", dilation);
    v.field("ceil_mode", ceil_mode);
    v.field("min", min);
    v.field("max", max);
  }
  PoolOptions pool() const {
    return {.kernel_size = kernel_size, .stride = stride, .padding = padding, .dilation = dilation, .ceil_mode = ceil_mode};
  }
  ClampAttributes clamp() const { return {min, max}; }
};

/// One channel of one sample: the norm with its weight and bias as (x - mean) * slope + shift, and the factor after it.
template <class T>
struct ScaledGroupChannel {
  double mean, slope, shift;
  T scale;

  ScaledGroupChannel(double mean_, double rstd, T weight, T bias, T scale_)
      : mean(mean_), slope(rstd * static_cast<double>(weight)), shift(static_cast<double>(bias)), scale(scale_) {}
};

/// The sizes of a call. Image axis 0 of `pool` is unused.
struct GroupNormPoolGeometry {
  std::int64_t samples, channels, groups;
  PoolGeometry pool;

  GroupNormPoolGeometry(const Shape& input, const GroupNormScaleMaxPoolClampAttributes& attributes)
      : samples(input[0]), channels(input[1]), groups(attributes.num_groups), pool(pool_geometry(input, attributes.pool(), 2)) {}

  std::int64_t slices() const { return samples * groups; }
  std::int64_t group_channels() const { return channels / groups; }
  std::int64_t pixels() const { return pool.image[1] * pool.image[2]; }
  std::int64_t group_pixels() const { return group_channels() * pixels(); }
  std::int64_t windows() const { return pool.output[1] * pool.output[2]; }
  std::int64_t kernel_elements() const { return pool.kernel[1] * pool.kernel[2]; }
};

/// The forward operator's results, given the number of `input`, after which weight, bias and scale come. Refuses what does not fit, and
/// windows that the kernels do not do.
std::vector<TensorType> group_norm_scale_max_pool_clamp_types(const InferContext& call, std::size_t input);

}  // namespace frit::ops
