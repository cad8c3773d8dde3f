#pragma once

#include "frit/ops/convolution/lowerings/block_map.cuh"
#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// How the output of a call with `attributes` comes from its input, which may have any strides. The output is dense in one of the layouts.
BlockMap block_map(const BlockAttributes& attributes, const Tensor& output, const Tensor& input, bool to_space, int width);

}  // namespace frit::ops
