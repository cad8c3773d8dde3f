// Chains after a convolution, each a model of this program, which is frit's: `chains bench chain49 --precision f16`. They are 40 problems
// of KernelBench, level 2, by their numbers; the other three of its kind are frit's reference models.

#include <algorithm>

#include "frit/command_line.h"
#include "frit/models/model.h"
#include "frit/models/nn.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

using Build = Value (*)(const Scope& scope, Value x);

/// `full` is the problem's input; `small` one for a gradient check.
void add_chain(int number, const Shape& full, const Shape& small, Build build) {
  add_model(concat("chain", number), [=](std::string_view) {
    Model model;
    model.small_input = small;
    model.full_input = full;
    model.build = [=](const Scope& scope, const NamedValues& inputs) { return NamedValues{{"output", build(scope, inputs.at("input"))}}; };
    return model;
  });
}

Value conv(const Scope& s, Value x, std::int64_t out_channels) {
  const nn::Convolution layer{.out_channels = out_channels, .kernel_size = {3}};
  return x.rank() == 4 ? nn::conv2d(s / "conv", x, layer) : nn::conv3d(s / "conv", x, layer);
}
Value conv_transpose(const Scope& s, Value x, const nn::Convolution& layer) {
  return x.rank() == 4 ? nn::conv_transpose2d(s / "conv_transpose", x, layer) : nn::conv_transpose3d(s / "conv_transpose", x, layer);
}
/// The sizes of the image doubled.
Value conv_transpose_twice(const Scope& s, Value x, std::int64_t out_channels) {
  return conv_transpose(s, x, {.out_channels = out_channels, .kernel_size = {3}, .stride = {2}, .padding = {1}, .output_padding = {1}});
}
/// Doubled, but for the last element.
Value conv_transpose_odd(const Scope& s, Value x, std::int64_t out_channels, std::int64_t kernel_size = 3) {
  return conv_transpose(s, x, {.out_channels = out_channels, .kernel_size = {kernel_size}, .stride = {2}, .padding = {kernel_size / 2}});
}
/// A parameter with a number for each channel.
Value channels(const Scope& s, const char* name, Value x) {
  Shape shape = Shape::filled(x.rank() - 1, 1);
  shape[0] = x.dim(1);
  return s.parameter(name, shape, init::normal());
}
Value max_pool(Value x, std::int64_t size) {
  return x.rank() == 4 ? max_pool2d(x, {.kernel_size = {size}}) : max_pool3d(x, {.kernel_size = {size}});
}
Value avg_pool(Value x, std::int64_t size) {
  return x.rank() == 4 ? avg_pool2d(x, {.kernel_size = {size}}) : avg_pool3d(x, {.kernel_size = {size}});
}
Value hardtanh(Value x) { return clamp(x, -1, 1); }
Value at_most(Value x, double bound) { return clamp(x, {}, bound); }
Value at_least(Value x, double bound) { return clamp(x, bound, {}); }

void add_convolutions() {
  add_chain(1, {128, 64, 128, 128}, {1, 64, 4, 5}, [](const Scope& s, Value x) {
    x = relu(conv(s, x, 128));
    return x + channels(s, "bias", x);
  });
  add_chain(4, {64, 64, 256, 256}, {1, 64, 4, 5}, [](const Scope& s, Value x) { return mish(mish(conv(s, x, 128))); });
  add_chain(6, {128, 3, 16, 32, 32}, {2, 3, 10, 11, 14},
            [](const Scope& s, Value x) { return max_pool(max_pool(softmax(conv(s, x, 16), 1), 2), 2); });
  add_chain(7, {64, 8, 32, 64, 64}, {2, 8, 4, 5, 4}, [](const Scope& s, Value x) {
    x = sigmoid(gelu(leaky_relu(relu(conv(s, x, 32)))));
    return x + channels(s, "bias", x);
  });
  add_chain(23, {128, 3, 24, 32, 32}, {2, 3, 6, 5, 4}, [](const Scope& s, Value x) {
    return mean(nn::group_norm(s / "group_norm", conv(s, x, 24), {.num_groups = 8}), {1, 2, 3, 4});
  });
  add_chain(25, {128, 16, 256, 256}, {2, 16, 5, 6}, [](const Scope& s, Value x) { return tanh(tanh(min(conv(s, x, 64), 1, true))); });
  add_chain(31, {128, 64, 128, 128}, {1, 64, 4, 5}, [](const Scope& s, Value x) {
    x = at_most(conv(s, x, 128), 0.5);
    return (x + channels(s, "bias", x)) * 2;
  });
  add_chain(32, {64, 64, 256, 256}, {1, 64, 4, 5}, [](const Scope& s, Value x) { return min(conv(s, x, 128) * 2, 1, true); });
  add_chain(35, {128, 64, 128, 128}, {1, 64, 6, 5},
            [](const Scope& s, Value x) { return mish(max_pool(hard_swish(conv(s, x, 128) - 0.5), 2)); });
  add_chain(46, {128, 64, 128, 128}, {1, 64, 6, 5}, [](const Scope& s, Value x) { return avg_pool(tanh(conv(s, x, 128) - 0.5) - 0.2, 2); });
  add_chain(48, {128, 3, 16, 64, 64}, {2, 3, 4, 5, 6}, [](const Scope& s, Value x) {
    x = conv(s, x, 16);
    return sigmoid(tanh(x * channels(s, "scaling_factor", x)) * channels(s, "bias", x));
  });
  add_chain(54, {64, 64, 256, 256}, {1, 64, 4, 5}, [](const Scope& s, Value x) {
    x = conv(s, x, 64);
    return gelu(leaky_relu(x * channels(s, "multiplier", x)));
  });
  add_chain(57, {128, 8, 128, 128}, {2, 8, 5, 6}, [](const Scope& s, Value x) {
    x = relu(conv(s, x, 64));
    return x * clamp((x + 3) / 6, 0, 1);
  });
  add_chain(65, {128, 8, 384, 384}, {2, 8, 7, 10}, [](const Scope& s, Value x) {
    return sum(sigmoid(avg_pool(conv(s, x, 64), 4)), {1, 2, 3});
  });
  add_chain(69, {128, 8, 128, 128}, {2, 8, 5, 6}, [](const Scope& s, Value x) { return relu(hard_swish(conv(s, x, 64))); });
  add_chain(73, {128, 8, 128, 128}, {2, 8, 5, 6}, [](const Scope& s, Value x) { return nn::batch_norm(s / "bn", conv(s, x, 64)) * 2; });
  add_chain(83, {128, 3, 16, 64, 64}, {2, 3, 4, 5, 6}, [](const Scope& s, Value x) {
    x = nn::group_norm(s / "norm", conv(s, x, 16), {.num_groups = 8});
    return nn::dropout(s / "dropout", clamp(at_most(x, 0), 0, 1), 0.2);
  });
  add_chain(87, {128, 8, 256, 256}, {2, 8, 5, 6}, [](const Scope& s, Value x) { return mish(conv(s, x, 64) - 0.5 - 0.2); });
  add_chain(90, {128, 8, 16, 64, 64}, {1, 8, 4, 5, 4}, [](const Scope& s, Value x) {
    x = leaky_relu(conv(s, x, 64), 0.2);
    return gelu(hardtanh(x + channels(s, "sum_tensor", x)));
  });
}

void add_transposed_convolutions() {
  add_chain(2, {128, 64, 128, 128}, {1, 64, 3, 2}, [](const Scope& s, Value x) {
    x = conv_transpose_twice(s, x, 64);
    return clamp(clamp(x + channels(s, "bias", x), 0, 1) * 2, 0, 1) / 2;
  });
  add_chain(5, {32, 64, 256, 256}, {1, 64, 3, 2}, [](const Scope& s, Value x) {
    x = conv_transpose(s, x, {.out_channels = 64, .kernel_size = {4}, .stride = {2}, .padding = {1}, .output_padding = {1}});
    return tanh(x - channels(s, "bias", x));
  });
  add_chain(10, {128, 64, 256, 256}, {1, 64, 4, 5}, [](const Scope& s, Value x) {
    x = conv_transpose(s, x, {.out_channels = 64, .kernel_size = {3}, .padding = {1}});
    return tanh(mean(hardtanh(max_pool(x, 2)), {2, 3}, true));
  });
  add_chain(11, {512, 64, 32, 32}, {2, 64, 3, 3}, [](const Scope& s, Value x) {
    x = conv_transpose(s, x, {.out_channels = 128, .kernel_size = {5}, .padding = {1}});
    x = max_pool(tanh(nn::batch_norm(s / "batch_norm", x)), 2);
    return nn::group_norm(s / "group_norm", x, {.num_groups = 8});
  });
  add_chain(15, {16, 16, 16, 32, 32}, {2, 16, 2, 3, 2}, [](const Scope& s, Value x) {
    x = nn::batch_norm(s / "batch_norm", conv_transpose_odd(s, x, 32));
    return x - mean(x, {2, 3, 4}, true);
  });
  add_chain(16, {128, 64, 128, 128}, {1, 64, 3, 2},
            [](const Scope& s, Value x) { return hardtanh(mish(conv_transpose_twice(s, x, 64)) + 0.5) * 2; });
  add_chain(19, {128, 64, 256, 256}, {1, 64, 3, 4}, [](const Scope& s, Value x) {
    x = conv_transpose(s, x, {.out_channels = 64, .kernel_size = {3}});
    return nn::group_norm(s / "group_norm", gelu(x), {.num_groups = 8});
  });
  // PyTorch's problem detaches what is added again, and so has a pass less in its gradient.
  add_chain(20, {16, 32, 16, 32, 32}, {1, 32, 2, 3, 2}, [](const Scope& s, Value x) {
    const Value original = conv_transpose_twice(s, x, 64);
    return (original + channels(s, "bias", original) + original) * original + original;
  });
  // Its second input is a buffer here.
  add_chain(26, {128, 32, 16, 16, 16}, {1, 32, 2, 2, 2}, [](const Scope& s, Value x) {
    x = conv_transpose_twice(s, x, 64);
    x = x + s.buffer("add_input", x.shape(), init::uniform(0, 1));
    return x * hard_swish(x);
  });
  add_chain(36, {16, 64, 128, 128}, {1, 64, 3, 2}, [](const Scope& s, Value x) {
    x = gelu(sum(min(conv_transpose_twice(s, x, 128), 1, true), {2}, true));
    return x + s.parameter("bias", {1, 1, 1}, init::normal());
  });
  add_chain(42, {16, 64, 512, 512}, {1, 64, 4, 3}, [](const Scope& s, Value x) {
    x = mean(conv_transpose(s, x, {.out_channels = 128, .kernel_size = {3}}), {2, 3}, true);
    return sum(logsumexp(x + channels(s, "bias", x), {1}, true), {2, 3}) * 10;
  });
  add_chain(44, {16, 64, 128, 128}, {1, 64, 3, 2}, [](const Scope& s, Value x) {
    return mean(mean(conv_transpose_twice(s, x, 128) * 0.5, {2, 3}, true), {2, 3}, true);
  });
  add_chain(49, {16, 32, 16, 32, 32}, {1, 32, 2, 2, 3},
            [](const Scope& s, Value x) { return sigmoid(softmax(conv_transpose_twice(s, x, 64), 1)); });
  add_chain(50, {128, 3, 16, 32, 32}, {1, 3, 3, 4, 3}, [](const Scope& s, Value x) {
    x = avg_pool(conv_transpose_odd(s, x, 16) * s.parameter("scale1", {}, init::constant(0.5)), 2);
    return (x + channels(s, "bias", x)) * s.parameter("scale2", {}, init::ones());
  });
  add_chain(60, {128, 3, 16, 32, 32}, {2, 3, 3, 2, 3}, [](const Scope& s, Value x) {
    x = conv_transpose_odd(s, x, 16);
    return hard_swish(nn::group_norm(s / "group_norm", sigmoid(x) * x, {.num_groups = 4}));
  });
  add_chain(72, {64, 3, 32, 32, 32}, {2, 3, 3, 4, 4}, [](const Scope& s, Value x) {
    return avg_pool(avg_pool(nn::batch_norm(s / "batch_norm", conv_transpose_odd(s, x, 16)), 2), 2);
  });
  add_chain(74, {16, 16, 16, 32, 32}, {1, 16, 2, 2, 3}, [](const Scope& s, Value x) {
    x = leaky_relu(conv_transpose_twice(s, x, 32), 0.2);
    return max_pool(leaky_relu(x * channels(s, "multiplier", x), 0.2), 2);
  });
  add_chain(78, {16, 32, 32, 32, 32}, {1, 32, 4, 4, 5},
            [](const Scope& s, Value x) { return sum(max_pool(max_pool(conv_transpose_odd(s, x, 64, 5), 2), 3), {1}, true); });
  add_chain(91, {128, 64, 64, 64}, {1, 64, 2, 3}, [](const Scope& s, Value x) {
    x = softmax(conv_transpose(s, x, {.out_channels = 128, .kernel_size = {4}, .stride = {2}, .padding = {1}, .output_padding = {1}}), 1);
    return sigmoid((x + channels(s, "bias", x)) * 2);
  });
  add_chain(93, {128, 64, 64, 64}, {1, 64, 2, 3}, [](const Scope& s, Value x) {
    x = conv_transpose(s, x, {.out_channels = 128, .kernel_size = {4}, .stride = {2}});
    return gelu(at_most(x + 0.5, 0)) * 2;
  });
  add_chain(100, {16, 64, 24, 48, 48}, {1, 64, 2, 2, 3},
            [](const Scope& s, Value x) { return at_least(conv_transpose_odd(s, x, 128), -1) / 2; });
}

}  // namespace
}  // namespace frit

int main(int argc, char** argv) {
  frit::add_convolutions();
  frit::add_transposed_convolutions();
  return frit::run_command_line(argc, argv);
}
