#include "frit/core/cuda/runtime.h"
#include "frit/ops/convolution/convolution_stages.h"
#include "frit/ops/cuda/warpgroup_products.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"
#include "frit/ops/libraries/cuda/nvrtc.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {

bool compiles_warpgroup_products(Device device) {
  if (device.kind != DeviceKind::cuda || cuda::properties(device.index).capability != warpgroup::capability) return false;
  return nvrtc::is_available(device.index);
}

bool lies_for_tensor_cores(const ImageCall& call) {
  const bool weight = call.weight.is_contiguous() || call.weight.is_contiguous(Layout::channels_last);
  return weight && has_channel_vectors(call.image) && has_channel_vectors(call.result);
}

bool ConvolutionStages::finishes(const ConvolutionCall& call) {
  return call.program == nullptr || is_stage_possible(call.operands.others, call.operands.result(call.kind).shape());
}

ConvolutionStages::ConvolutionStages(const ConvolutionCall& call, bool adds, bool last) {
  const auto& [input, weight, output, bias, others] = call.operands;
  const Tensor& result = call.operands.result(call.kind);
  if (adds) operands_.push_back(result);
  if (bias.defined()) {
    Shape channels = Shape::filled(result.rank() - 1, 1);
    channels[0] = bias.elements();
    operands_.push_back(bias.reshape(channels));
  }
  const int sums = static_cast<int>(operands_.size());
  const bool follows = last && call.program != nullptr && finishes(call);
  if (follows) operands_.insert(operands_.end(), others.begin(), others.end());
  program_.inputs = 1 + static_cast<int>(operands_.size());
  int value = 0;
  const auto add = [&](const ElementwiseProgram::Instruction& instruction) {
    value = program_.values();
    program_.instructions.push_back(instruction);
  };
  const Operator& sum = registry().find("add");
  for (int k = 1; k <= sums; ++k) add({&sum, sum.default_attributes, {value, k}});
  if (follows) {
    // The program's inputs come after the sums' operands, and its results after theirs.
    const int own = call.program->inputs, given = value, to_results = program_.values() - own;
    for (ElementwiseProgram::Instruction instruction : call.program->instructions) {
      for (int& operand : instruction.operands) operand = operand == 0 ? given : operand + (operand < own ? sums : to_results);
      add(instruction);
    }
  }
  if (!program_.instructions.empty()) program_.outputs = {value};
}

}  // namespace frit::ops
