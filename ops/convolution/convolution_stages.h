#pragma once

#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/operator/elementwise_program.h"

namespace frit::ops {

/// Whether kernels with warpgroups' products can be compiled for the device while the program runs: a Hopper GPU, with NVRTC.
bool compiles_warpgroup_products(Device device);

/// Whether the images have vectors of channels, and the weight lies in either layout.
bool lies_for_tensor_cores(const ImageCall& call);

/// What follows a convolution in the kernel that computes it, as a program: the sum with what the result holds if it `adds`, with the bias,
/// and the epilogue if it is `last`.
class ConvolutionStages {
 public:
  explicit ConvolutionStages(const ConvolutionCall& call, bool adds = false, bool last = true);

  /// For a kernel that writes the call's result; refer to this object.
  Stages stages() const { return {none_, 0, {}, {}, program_, operands_}; }
  /// Whether the epilogue of a call is part of the last one's program, as it is unless an operand lies as no stage reads it.
  static bool finishes(const ConvolutionCall& call);

 private:
  ElementwiseProgram none_ = {}, program_ = {};
  std::vector<Tensor> operands_ = {};
};

}  // namespace frit::ops
