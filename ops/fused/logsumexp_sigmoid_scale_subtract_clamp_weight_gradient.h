#pragma once

#include "frit/ops/convolution/geometry.h"
#include "frit/ops/fused/logsumexp_sigmoid_scale_subtract_clamp.h"

namespace frit::ops {

// The weight gradient of the convolution whose output is the input of logsumexp_sigmoid_scale_subtract_clamp, and the gradient of that
// one's bias. The gradient between the two need not be stored.

struct LogsumexpWeightGradientAttributes {
  LogsumexpSigmoidScaleSubtractClampAttributes chain;
  WeightGradientOptions product;

  void fields(FieldVisitor& v) {
    chain.fields(v);
    product.fields(v);
  }
};

/// The operator's call as one of the chain's backward operator and one of the convolution's: inputs (gradient, input, bias, image), outputs
/// (weight_gradient, bias_gradient).
class LogsumexpWeightGradientInTurn {
 public:
  LogsumexpWeightGradientInTurn(int image_rank, const LogsumexpWeightGradientAttributes& attributes);

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const;
  std::size_t scratch(std::span<const TensorType> inputs, const CallLayouts& layouts, Device device) const;
  void run(const KernelContext& call) const;

 private:
  const Operator &backward_, &product_;
  Attributes of_backward_, of_product_;
};

}  // namespace frit::ops
