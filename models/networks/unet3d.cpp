#include "frit/models/networks/unet3d.h"

#include <vector>

#include "frit/ops/elementwise/activation.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::models {
namespace {

/// Two convolutions, each with its norm and activation; the first has the stride.
Value stage(const Scope& scope, Value x, std::int64_t channels, std::int64_t stride) {
  for (const char* const name : {"0", "1"}) {
    const Scope layer = scope / "convs" / name;
    x = nn::conv3d(layer / "conv", x, {.out_channels = channels, .kernel_size = {3}, .stride = {stride}, .padding = {1}});
    x = leaky_relu(nn::instance_norm(layer / "norm", x), 0.01);
    stride = 1;
  }
  return x;
}

}  // namespace

void UNet3d::fields(FieldVisitor& v) {
  v.field("channels", channels);
  v.field("in_channels", in_channels);
  v.field("num_classes", num_classes);
}

Value unet3d(const Scope& scope, Value input, const UNet3d& c) {
  const Scope encoder = scope / "encoder" / "stages", decoder = scope / "decoder";
  const int stages = c.channels.rank();
  std::vector<Value> skips;
  Value x = input;
  for (int i = 0; i < stages; ++i) skips.push_back(x = stage(encoder / std::to_string(i), x, c.channels[i], i == 0 ? 1 : 2));
  for (int i = 0; i + 1 < stages; ++i) {
    const std::int64_t channels = c.channels[stages - 2 - i];
    const Value up =
        nn::conv_transpose3d(decoder / "transpconvs" / std::to_string(i), x, {.out_channels = channels, .kernel_size = {2}, .stride = {2}});
    const Value joined[] = {up, skips[static_cast<std::size_t>(stages - 2 - i)]};
    x = stage(decoder / "stages" / std::to_string(i), concatenate(joined, 1), channels, 1);
  }
  return nn::conv3d(decoder / "seg_layer", x, {.out_channels = c.num_classes, .kernel_size = {1}});
}

}  // namespace frit::models
