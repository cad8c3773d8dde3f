#include "frit/models/networks/convnext_tiny.h"

#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::models {
namespace {

constexpr double eps = 1e-6;

Value channels_last(Value x) { return permute(x, {0, 2, 3, 1}); }
Value channels_first(Value x) { return permute(x, {0, 3, 1, 2}); }

/// Over the channels at each position.
Value norm(const Scope& scope, Value x) { return channels_first(nn::layer_norm(scope, channels_last(x), 1, eps)); }

/// A convolution of each channel by itself, and two linear layers at each position.
Value block(const Scope& scope, Value x) {
  const std::int64_t channels = x.dim(1);
  const Scope layers = scope / "block";
  Value y = nn::conv2d(layers / "0", x, {.out_channels = channels, .kernel_size = {7}, .padding = {3}, .groups = channels});
  y = nn::layer_norm(layers / "2", channels_last(y), 1, eps);
  y = gelu(nn::linear(layers / "3", y, {.out_features = 4 * channels}));
  y = channels_first(nn::linear(layers / "5", y, {.out_features = channels}));
  return x + scope.parameter("layer_scale", {channels, 1, 1}, init::constant(1e-6)) * y;
}

/// Patches of the image, side by side.
Value patches(const Scope& scope, Value x, std::int64_t out_channels, std::int64_t size) {
  return nn::conv2d(scope, x, {.out_channels = out_channels, .kernel_size = {size}, .stride = {size}});
}

}  // namespace

void ConvNextTiny::fields(FieldVisitor& v) {
  v.field("blocks", blocks);
  v.field("in_channels", in_channels);
  v.field("width", width);
  v.field("num_classes", num_classes);
}

Value convnext_tiny(const Scope& scope, Value input, const ConvNextTiny& c) {
  constexpr std::int64_t most_width = 1 << 20, most_blocks = 1000;
  require(c.width >= 1 && c.width <= most_width, "width: expected 1 to ", most_width, ", got ", c.width);
  const Scope features = scope / "features", stem = features / "0", head = scope / "classifier";
  Value x = norm(stem / "1", patches(stem / "0", input, c.width, 4));
  for (int stage = 0; stage < c.blocks.rank(); ++stage) {
    require(c.blocks[stage] >= 1 && c.blocks[stage] <= most_blocks, "blocks: expected 1 to ", most_blocks, " a stage, got ", c.blocks);
    const Scope down = features / std::to_string(2 * stage), layer = features / std::to_string(2 * stage + 1);
    if (stage > 0) x = patches(down / "1", norm(down / "0", x), c.width << stage, 2);
    for (std::int64_t i = 0; i < c.blocks[stage]; ++i) x = block(layer / std::to_string(i), x);
  }
  x = nn::layer_norm(head / "0", mean(x, {2, 3}), 1, eps);
  return nn::linear(head / "2", x, {.out_features = c.num_classes});
}

}  // namespace frit::models
