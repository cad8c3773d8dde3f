#pragma once

#include "frit/ops/operator/attributes.h"
#include "frit/ops/operator/value.h"

namespace frit {

/// Dims fields as in ConvolutionOptions.
struct PoolOptions {
  Dims kernel_size;
  Dims stride = {};    ///< default: kernel_size
  Dims padding = {};   ///< at most half the kernel; default 0
  Dims dilation = {};  ///< max_pool only; default 1
  bool ceil_mode = false;
  bool count_include_pad = true;  ///< avg_pool only

  void fields(FieldVisitor& v);
};

/// input (N, C, [D,] H, W). The first of equal maxima has the gradient, the last NaN wins, padding never does.
Value max_pool2d(Value input, const PoolOptions& options);
Value max_pool3d(Value input, const PoolOptions& options);
Value avg_pool2d(Value input, const PoolOptions& options);
Value avg_pool3d(Value input, const PoolOptions& options);
/// The mean over all image axes, which are kept with size 1; emits "mean".
Value global_avg_pool(Value input);

}  // namespace frit
