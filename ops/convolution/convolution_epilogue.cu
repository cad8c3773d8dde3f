// Convolutions with an epilogue on CUDA devices. A plan of cuDNN's may do it; after any other kernel it is a pass over the result.

#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/convolution/convolution_epilogue.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/operator/run.h"

namespace frit::ops {
namespace {

using cudnn::ConvolutionKind;

void run_program(const ElementwiseAttributes& program, const Tensor& result, const std::vector<Tensor>& others, CUstream_st* stream) {
  const Operator& op = registry().find("elementwise");
  const Attributes attributes = program;
  std::vector<Tensor> operands = {result};
  operands.insert(operands.end(), others.begin(), others.end());
  op.cuda.run({op, attributes, operands, std::span(&result, 1), {}, stream});
}

ConvolutionCall read(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const Attributes& attributes) {
  const auto& options = attributes.as<EpilogueOptions>();
  const std::span<const Tensor> others = inputs.last(options.other_operands());
  const Tensor bias = inputs.size() > 2 + others.size() ? inputs[2] : Tensor();
  ConvolutionCall call{ConvolutionKind::forward, {}, {inputs[0], inputs[1], outputs[0], bias, {others.begin(), others.end()}}};
  call.geometry = convolution_geometry(inputs[0].shape(), inputs[1].shape(), options.convolution);
  std::vector<TensorType> types = types_of(others);
  types.insert(types.begin(), {outputs[0].dtype(), outputs[0].shape()});
  call.epilogue = *epilogue_of(options.epilogue.program, types);
  call.finish = [program = options.epilogue](const cudnn::ConvolutionOperands& operands, CUstream_st* stream) {
    run_program(program, operands.output, operands.others, stream);
  };
  call.program = &options.epilogue.program;
  return call;
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(convolution_epilogue) {
  for (const int image_rank : {2, 3}) {
    registry.add_cuda(convolution_name("conv", image_rank, "_epilogue"), convolution_kernel(read, {0, 1, 2}, {0}));
  }
}
