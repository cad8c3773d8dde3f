#include "frit/models/networks/mobilenet_v2.h"

#include <algorithm>

#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/reduction/reduction.h"

namespace frit::models {
namespace {

struct Stage {
  std::int64_t channels, stride, expansion;
};
constexpr Stage stages[] = {{16, 1, 1}, {24, 2, 6}, {32, 2, 6}, {64, 2, 6}, {96, 1, 6}, {160, 2, 6}, {320, 1, 6}};

/// The multiple of 8 that is nearest, 8 at least, and not below nine tenths.
std::int64_t scaled(std::int64_t channels, double width) {
  const double wanted = static_cast<double>(channels) * width;
  const std::int64_t nearest = std::max<std::int64_t>(8, static_cast<std::int64_t>(wanted + 4) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * wanted ? nearest + 8 : nearest;
}

/// Without bias, and with its norm.
Value convolution(const Scope& convolution_scope, const Scope& norm_scope, Value x, const nn::Convolution& layer) {
  return nn::batch_norm(norm_scope, nn::conv2d(convolution_scope, x, layer));
}

Value activated(const Scope& scope, Value x, nn::Convolution layer) {
  layer.bias = false;
  layer.padding = {layer.kernel_size[0] / 2};
  return clamp(convolution(scope / "0", scope / "1", x, layer), 0, 6);
}

/// 1 x 1 to more channels, 3 x 3 in each channel by itself, and 1 x 1 to `channels` without an activation.
Value block(const Scope& scope, Value x, std::int64_t channels, std::int64_t stride, std::int64_t expansion) {
  Value y = x;
  int layer = 0;
  const auto next = [&] { return scope / std::to_string(layer++); };
  if (expansion > 1) y = activated(next(), y, {.out_channels = expansion * x.dim(1), .kernel_size = {1}});
  y = activated(next(), y, {.out_channels = y.dim(1), .kernel_size = {3}, .stride = {stride}, .groups = y.dim(1)});
  const Scope last = next(), norm = next();
  y = convolution(last, norm, y, {.out_channels = channels, .kernel_size = {1}, .bias = false});
  return stride == 1 && x.dim(1) == channels ? x + y : y;
}

}  // namespace

void MobileNetV2::fields(FieldVisitor& v) {
  v.field("blocks", blocks);
  v.field("width", width);
  v.field("in_channels", in_channels);
  v.field("num_classes", num_classes);
}

Value mobilenet_v2(const Scope& scope, Value input, const MobileNetV2& c) {
  constexpr double most_width = 1000;
  constexpr std::int64_t most_blocks = 1000;
  require(c.width > 0 && c.width <= most_width, "width: expected above 0 and at most ", most_width, ", got ", c.width);
  require(c.blocks.rank() <= static_cast<int>(std::size(stages)), "blocks: expected at most ", std::size(stages), " stages, got ",
          c.blocks);
  int feature = 0;
  const auto next = [&] { return scope / "features" / std::to_string(feature++); };
  Value x = activated(next(), input, {.out_channels = scaled(32, c.width), .kernel_size = {3}, .stride = {2}});
  for (int i = 0; i < c.blocks.rank(); ++i) {
    const Stage& stage = stages[i];
    require(c.blocks[i] >= 1 && c.blocks[i] <= most_blocks, "blocks: expected 1 to ", most_blocks, " a stage, got ", c.blocks);
    for (std::int64_t k = 0; k < c.blocks[i]; ++k) {
      x = block(next() / "conv", x, scaled(stage.channels, c.width), k == 0 ? stage.stride : 1, stage.expansion);
    }
  }
  x = activated(next(), x, {.out_channels = scaled(1280, std::max(1.0, c.width)), .kernel_size = {1}});
  return nn::linear(scope / "classifier" / "1", mean(x, {2, 3}), {.out_features = c.num_classes});
}

}  // namespace frit::models
