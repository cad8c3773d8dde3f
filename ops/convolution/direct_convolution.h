#pragma once

#include "frit/ops/libraries/cuda/cudnn.h"

namespace frit::ops {

/// A convolution or one of its gradients by its definition: for what cuDNN has no plan for. Needs no memory, and is slow. Any sizes, an
/// empty batch too; all floating dtypes; each operand contiguous or channels-last, as it comes.
void direct_convolution(cudnn::ConvolutionKind kind, const ConvolutionGeometry& g, const cudnn::ConvolutionOperands& operands,
                        CUstream_st* stream);

}  // namespace frit::ops
