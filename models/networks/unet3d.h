#pragma once

#include "frit/core/fields.h"
#include "frit/models/nn.h"

namespace frit::models {

/// "unet3d": the U-Net of F. Isensee et al., "nnU-Net" (2021), with the names of its plain network: convolutions, instance norms and leaky
/// ReLUs, strided going down and transposed going up.
struct UNet3d {
  Dims channels = {32, 64, 128, 256, 320};  ///< of each stage, the finest first
  std::int64_t in_channels = 1;
  std::int64_t num_classes = 3;

  void fields(FieldVisitor& v);
};
/// (N, C, D, H, W) -> logits (N, num_classes, D, H, W). The image is halved once for each stage but the first.
Value unet3d(const Scope& scope, Value input, const UNet3d& config = {});

}  // namespace frit::models
