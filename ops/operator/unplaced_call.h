#pragma once

#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// A call whose tensors have no memory yet, as rules see it that look at types, layouts and the device alone.
class UnplacedCall {
 public:
  UnplacedCall(const InferContext& call, Device device) : op_(call.op), attributes_(call.attributes) {
    const auto add = [device](std::vector<Tensor>& tensors, std::span<const TensorType> types, const std::vector<Layout>& layouts) {
      for (const TensorType& type : types) {
        const Layout layout = tensors.size() < layouts.size() ? layouts[tensors.size()] : Layout::contiguous;
        tensors.push_back(Tensor::over(nullptr, type.shape, type.dtype, device, nullptr, layout));
      }
    };
    add(inputs_, call.inputs, call.layouts.inputs);
    add(outputs_, call.op.infer_types(call.inputs, call.attributes), call.layouts.outputs);
  }

  KernelContext context() const { return {op_, attributes_, inputs_, outputs_, {}}; }

 private:
  const Operator& op_;
  const Attributes& attributes_;
  std::vector<Tensor> inputs_, outputs_;
};

/// Tensors, of which some are parts of wider images, as they would lie in memory of their own, of which there is none yet.
inline std::vector<Tensor> wholes(std::span<const Tensor> tensors) {
  std::vector<Tensor> result(tensors.begin(), tensors.end());
  for (Tensor& tensor : result) {
    if (!tensor.defined() || tensor.rank() < 2 || tensor.pixel_pitch() <= tensor.dim(1)) continue;
    tensor = Tensor::over(nullptr, tensor.shape(), tensor.dtype(), tensor.device(), nullptr, Layout::channels_last);
  }
  return result;
}

}  // namespace frit::ops
