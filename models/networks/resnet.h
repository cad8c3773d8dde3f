#pragma once

#include "frit/core/fields.h"
#include "frit/models/nn.h"

namespace frit::models {

/// "resnet": the residual network of K. He et al., "Deep residual learning for image recognition" (2016), with the strides and the names of
/// torchvision's. The defaults are ResNet-50's; ResNet-18 is {"blocks": [2, 2, 2, 2], "bottleneck": false}.
struct ResNet {
  Dims blocks = {3, 4, 6, 3};  ///< of each stage, which halve the image and double the channels
  bool bottleneck = true;      ///< blocks of 1 x 1, 3 x 3 and 1 x 1 convolutions; else of two 3 x 3 ones
  std::int64_t in_channels = 3;
  std::int64_t width = 64;  ///< channels of the first stage
  std::int64_t num_classes = 1000;

  void fields(FieldVisitor& v);
};
/// (N, C, H, W) -> logits (N, num_classes).
Value resnet(const Scope& scope, Value input, const ResNet& config = {});

}  // namespace frit::models
