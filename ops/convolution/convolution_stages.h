#pragma once

#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/operator/elementwise_program.h"

namespace frit::ops {

/// Whether kernels with warpgroups' products can be compiled for the device while the program runs: a Hopper GPU, with NVRTC.
bool compiles_warpgroup_products(Device device);

/// What follows a convolution in the kernel that computes it, as a program: the sum with what the result holds if it `adds`, with the bias,
/// and the epilogue if it is `last`.
class ConvolutionStages {
 public:
  ConvolutionStages(const ConvolutionCall& call, bool adds, bool last);

  /// For a kernel that writes the call's result; refer to this object.
  Stages stages() const { return {none_, 0, {}, {}, program_, operands_}; }
  /// Whether the epilogue is part of the program, as it is unless an operand lies as no stage reads it.
  bool finishes() const { return finishes_; }

 private:
  ElementwiseProgram none_ = {}, program_ = {};
  std::vector<Tensor> operands_ = {};
  bool finishes_;
};

}  // namespace frit::ops
