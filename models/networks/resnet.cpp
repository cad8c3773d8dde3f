#include "frit/models/networks/resnet.h"

#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"

namespace frit::models {
namespace {

Value convolution(const Scope& scope, Value x, std::int64_t out_channels, std::int64_t kernel_size, std::int64_t stride = 1) {
  return nn::conv2d(
      scope, x,
      {.out_channels = out_channels, .kernel_size = {kernel_size}, .stride = {stride}, .padding = {kernel_size / 2}, .bias = false});
}

/// The last norm's result has as many channels as the block gives.
Value residual(const Scope& scope, Value x, std::int64_t width, std::int64_t stride, bool bottleneck) {
  Value y = x;
  if (bottleneck) {
    y = relu(nn::batch_norm(scope / "bn1", convolution(scope / "conv1", y, width, 1)));
    y = relu(nn::batch_norm(scope / "bn2", convolution(scope / "conv2", y, width, 3, stride)));
    return nn::batch_norm(scope / "bn3", convolution(scope / "conv3", y, 4 * width, 1));
  }
  y = relu(nn::batch_norm(scope / "bn1", convolution(scope / "conv1", y, width, 3, stride)));
  return nn::batch_norm(scope / "bn2", convolution(scope / "conv2", y, width, 3));
}

Value block(const Scope& scope, Value x, std::int64_t width, std::int64_t stride, bool bottleneck) {
  const Value y = residual(scope, x, width, stride, bottleneck);
  const bool same = stride == 1 && x.dim(1) == y.dim(1);
  const Scope down = scope / "downsample";
  const Value shortcut = same ? x : nn::batch_norm(down / "1", convolution(down / "0", x, y.dim(1), 1, stride));
  return relu(y + shortcut);
}

}  // namespace

void ResNet::fields(FieldVisitor& v) {
  v.field("blocks", blocks);
  v.field("bottleneck", bottleneck);
  v.field("in_channels", in_channels);
  v.field("width", width);
  v.field("num_classes", num_classes);
}

Value resnet(const Scope& scope, Value input, const ResNet& c) {
  constexpr std::int64_t most_width = 1 << 20, most_blocks = 1000;
  require(c.width >= 1 && c.width <= most_width, "width: expected 1 to ", most_width, ", got ", c.width);
  std::int64_t left = most_blocks;
  for (const std::int64_t count : c.blocks) {
    require(count >= 1 && count <= left, "blocks: expected at least 1 a stage and at most ", most_blocks, " in all, got ", c.blocks);
    left -= count;
  }
  Value x = relu(nn::batch_norm(scope / "bn1", convolution(scope / "conv1", input, c.width, 7, 2)));
  x = max_pool2d(x, {.kernel_size = {3}, .stride = {2}, .padding = {1}});
  for (int stage = 0; stage < c.blocks.rank(); ++stage) {
    const Scope layer = scope / concat("layer", stage + 1);
    for (std::int64_t i = 0; i < c.blocks[stage]; ++i) {
      x = block(layer / std::to_string(i), x, c.width << stage, i == 0 && stage > 0 ? 2 : 1, c.bottleneck);
    }
  }
  return nn::linear(scope / "fc", mean(x, {2, 3}), {.out_features = c.num_classes});
}

}  // namespace frit::models
