#include "frit/models/networks/unet2d.h"

#include <cmath>
#include <vector>

#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::models {
namespace {

Value norm(const Scope& scope, Value x) { return nn::group_norm(scope, x, {.num_groups = 8}); }

Value convolution(const Scope& scope, Value x, std::int64_t out_channels, std::int64_t kernel_size = 3, std::int64_t stride = 1) {
  return nn::conv2d(scope, x,
                    {.out_channels = out_channels, .kernel_size = {kernel_size}, .stride = {stride}, .padding = {kernel_size / 2}});
}

Value residual(const Scope& scope, Value x, Value time, std::int64_t channels) {
  const Value shift = nn::linear(scope / "time", silu(time), {.out_features = channels});
  Value y = convolution(scope / "conv1", silu(norm(scope / "norm1", x)), channels);
  y = y + reshape(shift, {-1, channels, 1, 1});
  y = convolution(scope / "conv2", silu(norm(scope / "norm2", y)), channels);
  return (x.dim(1) == channels ? x : convolution(scope / "skip", x, channels, 1)) + y;
}

/// Each position takes from all, by softmax(q k / sqrt(C)).
Value attention(const Scope& scope, Value x) {
  const std::int64_t channels = x.dim(1), height = x.dim(2), width = x.dim(3);
  const Value y = norm(scope / "norm", x);
  const auto project = [&](const char* name) {  // (N, H W, C)
    return reshape(permute(convolution(scope / name, y, channels, 1), {0, 2, 3, 1}), {-1, height * width, channels});
  };
  const Value q = project("q"), k = project("k"), v = project("v");
  const Value share = softmax(matmul(q, transpose(k, 1, 2)) / std::sqrt(static_cast<double>(channels)), -1);
  const Value taken = reshape(matmul(share, v), {-1, height, width, channels});
  return x + convolution(scope / "out", permute(taken, {0, 3, 1, 2}), channels, 1);
}

/// Each pixel twice along both axes.
Value doubled(Value x) {
  const std::int64_t channels = x.dim(1), height = x.dim(2), width = x.dim(3);
  const Value pixels = reshape(permute(x, {0, 2, 3, 1}), {-1, height, 1, width, 1, channels});
  const Value twice = reshape(expand(pixels, {-1, height, 2, width, 2, channels}), {-1, 2 * height, 2 * width, channels});
  return permute(twice, {0, 3, 1, 2});
}

}  // namespace

void UNet2d::fields(FieldVisitor& v) {
  v.field("channels", channels);
  v.field("in_channels", in_channels);
  v.field("base", base);
  v.field("image_size", image_size);
  v.field("time_input", time_input);
}

Value unet2d(const Scope& scope, Value input, Value time, const UNet2d& c) {
  const int levels = c.channels.rank();
  require(levels >= 1, "channels: expected 1 level or more");
  const std::int64_t least = std::int64_t{1} << (levels - 1);
  require(input.rank() == 4 && input.dim(2) % least == 0 && input.dim(3) % least == 0,
          "the image's height and width: expected multiples of ", least, ", got an input of shape ", input.shape());
  const auto level = [&](const char* way, int i) { return scope / way / std::to_string(i); };
  time = silu(nn::linear(scope / "time1", time, {.out_features = 4 * c.base}));
  time = nn::linear(scope / "time2", time, {.out_features = 4 * c.base});
  Value x = convolution(scope / "conv_in", input, c.base);
  std::vector<Value> skips = {x};
  for (int i = 0; i < levels; ++i) {
    for (const char* const name : {"0", "1"}) {
      skips.push_back(x = residual(level("down", i) / "blocks" / name, x, time, c.channels[i]));
    }
    if (i + 1 < levels) skips.push_back(x = convolution(level("down", i) / "downsample", x, c.channels[i], 3, 2));
  }
  x = residual(scope / "middle1", x, time, x.dim(1));
  x = residual(scope / "middle2", attention(scope / "attention", x), time, x.dim(1));
  for (int i = levels - 1; i >= 0; --i) {
    for (const char* const name : {"0", "1", "2"}) {
      const Value joined[] = {x, skips.back()};
      skips.pop_back();
      x = residual(level("up", i) / "blocks" / name, concatenate(joined, 1), time, c.channels[i]);
    }
    if (i > 0) x = convolution(level("up", i) / "upsample", doubled(x), c.channels[i]);
  }
  return convolution(scope / "conv_out", silu(norm(scope / "norm_out", x)), c.in_channels);
}

Value unet2d(const Scope& scope, const NamedValues& inputs, const UNet2d& c) {
  constexpr std::int64_t most_base = 1 << 20;
  require(c.base >= 8 && c.base <= most_base, "base: expected 8 to ", most_base, ", got ", c.base);
  require(c.image_size.rank() == 2, "image_size: expected 2 sizes, got ", c.image_size);
  const Value input = inputs.at("input");
  const Value time = c.time_input ? inputs.at("time") : Graph::of(input).constant(Tensor::full({1, c.base}, 1, input.dtype()));
  return unet2d(scope, input, time, c);
}

}  // namespace frit::models
