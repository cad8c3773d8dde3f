#pragma once

#include "frit/core/fields.h"
#include "frit/models/nn.h"

namespace frit::models {

/// "mobilenet_v2": M. Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks" (2018), with the names of torchvision's. It
/// has no dropout before its last layer.
struct MobileNetV2 {
  Dims blocks = {1, 2, 3, 4, 3, 3, 1};  ///< of each stage; fewer numbers leave out the last stages
  double width = 1;                     ///< multiplies the channels, which are then rounded to multiples of 8
  std::int64_t in_channels = 3;
  std::int64_t num_classes = 1000;

  void fields(FieldVisitor& v);
};
/// (N, C, H, W) -> logits (N, num_classes).
Value mobilenet_v2(const Scope& scope, Value input, const MobileNetV2& config = {});

}  // namespace frit::models
