#pragma once

#include "frit/core/fields.h"
#include "frit/models/nn.h"

namespace frit::models {

/// "unet2d": a U-Net that predicts the noise in an image, as J. Ho et al., "Denoising diffusion probabilistic models" (2020), has it:
/// residual blocks with group norms of 8 groups, which are told the time, and attention between the positions of the coarsest image.
struct UNet2d {
  Dims channels = {64, 128, 256};  ///< of each level, the finest first; multiples of 8, as base is
  std::int64_t in_channels = 3;
  std::int64_t base = 64;      ///< channels of the first convolution, and numbers that say the time
  Dims image_size = {64, 64};  ///< of the registered model
  /// The registered model has an input "time" (N, base) besides its image; otherwise every image is at the same time, which is all ones.
  bool time_input = false;

  void fields(FieldVisitor& v);
};
/// (N, C, H, W) -> the same shape. The image is halved once for each level but the first, and H and W stay what they are for the graph.
/// `time`, (N, base) or (1, base), is an embedding of the time.
Value unet2d(const Scope& scope, Value input, Value time, const UNet2d& config = {});
/// On "input", and on "time" if the configuration says so.
Value unet2d(const Scope& scope, const NamedValues& inputs, const UNet2d& config = {});

}  // namespace frit::models
