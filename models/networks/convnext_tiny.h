#pragma once

#include "frit/core/fields.h"
#include "frit/models/nn.h"

namespace frit::models {

/// "convnext_tiny": Z. Liu et al., "A ConvNet for the 2020s" (2022), with the names of torchvision's, and without stochastic depth.
struct ConvNextTiny {
  Dims blocks = {3, 3, 9, 3};  ///< of each stage, which halve the image and double the channels
  std::int64_t in_channels = 3;
  std::int64_t width = 96;  ///< channels of the first stage
  std::int64_t num_classes = 1000;

  void fields(FieldVisitor& v);
};
/// (N, C, H, W) -> logits (N, num_classes). The image has at least 4 pixels an axis, twice as many for each further stage.
Value convnext_tiny(const Scope& scope, Value input, const ConvNextTiny& config = {});

}  // namespace frit::models
