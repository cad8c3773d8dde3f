#include "frit/ops/chain/chain_attributes.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/pool/pool_geometry.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/softmax.h"

namespace frit::ops {
namespace {

/// An operator on an image, and what follows it.
Sample followed(const std::string& op, std::vector<SampleInput> inputs, const Attributes& attributes, const char* program) {
  const StagedCall call{{}, 0, {&registry().find(op), attributes}, ElementwiseProgram::parse(program)};
  return {.inputs = std::move(inputs), .attributes = ChainAttributes{call}};
}
Sample convolution(std::vector<SampleInput> inputs, const ConvolutionOptions& options, const char* program) {
  const std::string op = concat("conv", inputs[0].shape.rank() - 2, 'd');
  return followed(op, std::move(inputs), options, program);
}

constexpr const char* relu_text = "y0 = relu(x0); return y0";
constexpr const char* gated_text = "y0 = add(x0, x1); y1 = sigmoid(y0); y2 = multiply(y0, y1); y3 = add(y2, x1); return y3";
constexpr const char* residual_text = "y0 = add(x0, x1); y1 = relu(y0); return y1";

std::vector<Sample> convolutions(int image_rank) {
  if (image_rank == 3) {
    return {convolution({Shape{2, 2, 3, 4, 3}, Shape{3, 2, 2, 3, 2}, Shape{3}}, {}, relu_text),
            convolution({Shape{2, 1, 3, 3, 3}, Shape{2, 1, 2, 2, 2}, Shape{2}, Shape{2, 2, 2, 2, 2}}, {}, residual_text),
            // Nothing that makes a number of an infinity: times the padding's zeros, where these are multiplied, that is NaN.
            convolution({Shape{1, 2, 5, 3, 4}, Shape{4, 1, 3, 2, 2}}, {.stride = {2, 1, 3}, .padding = {1}, .groups = 2},
                        "y0 = leaky_relu(x0) {\"negative_slope\":0.1}; return y0"),
            convolution({Shape{2, 8, 3, 4, 3}, Shape{8, 8, 2, 3, 2}, Shape{8, 1, 1, 1}, Shape{}}, {},
                        "y0 = add(x0, x1); y1 = hard_swish(y0); y2 = multiply(y1, x2); return y2"),
            convolution({Shape{2, 2, 3, 4, 3}, Shape{3, 2, 2, 3, 2}, Shape{3}, Shape{2, 1, 1, 1, 1}}, {}, gated_text),
            convolution({Shape{0, 2, 3, 3, 3}, Shape{3, 2, 3, 3, 3}, Shape{3}, Shape{3, 1, 1, 1}}, {}, "y0 = multiply(x0, x1); return y0"),
            convolution({Shape{0, 2, 3, 3, 3}, Shape{3, 2, 3, 3, 3}, Shape{3}}, {}, relu_text)};
  }
  std::vector<Sample> result = {
      convolution({Shape{2, 3, 5, 7}, Shape{4, 3, 3, 2}, Shape{4}}, {}, relu_text),
      convolution({Shape{2, 3, 5, 7}, Shape{4, 3, 3, 3}, Shape{4}, Shape{2, 4, 5, 7}}, {.padding = {1}}, residual_text),
      convolution({Shape{2, 4, 6, 5}, Shape{6, 2, 2, 3}, Shape{2, 6, 4, 4}}, {.stride = {2}, .padding = {1, 2}, .groups = 2},
                  residual_text),
      convolution({Shape{2, 8, 5, 9}, Shape{8, 1, 3, 3}, Shape{8}, Shape{2, 8, 5, 9}}, {.padding = {1}, .groups = 8}, residual_text),
      convolution({Shape{1, 4, 9, 7}, Shape{4, 1, 5, 3}}, {.stride = {2}, .groups = 4},
                  "y0 = clamp(x0) {\"min\":0.0,\"max\":6.0}; return y0"),
      convolution({Shape{3, 8, 2, 5}, Shape{8, 8, 1, 1}, Shape{8}, Shape{3, 8, 2, 5}}, {}, "y0 = add(x1, x0); return y0"),
      convolution({Shape{1, 8, 40, 41}, Shape{24, 8, 3, 3}, Shape{24}, Shape{1, 24, 40, 41}}, {.padding = {1}}, residual_text),
      convolution({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}}, {}, "y0 = clamp(x0) {\"min\":-0.5,\"max\":null}; return y0"),
      convolution({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}, Shape{2, 8, 6, 6}}, {.padding = {1}},
                  "y0 = silu(x0); y1 = add(x1, y0); return y1"),
      convolution({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}, Shape{8, 1, 1}}, {},
                  "y0 = hard_sigmoid(x0); y1 = subtract(x1, y0); y2 = hard_swish(y1); return y2"),
      convolution({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}, Shape{}, Shape{1, 8, 1, 1}, Shape{1}}, {},
                  "y0 = minimum(x0, x1); y1 = add(y0, x2); y2 = multiply(y1, x3); return y2"),
      convolution({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{2, 8, 6, 6}, Shape{8, 1, 1}, {Shape{1, 8, 1, 1}, Fill::nonzero}, Shape{}},
                  {.padding = {1}},
                  "y0 = multiply(x1, x0); y1 = maximum(x2, y0); y2 = divide(y1, x3); y3 = tanh(y2); y4 = subtract(y3, x4); return y4"),
      convolution({Shape{2, 3, 70, 65}, Shape{5, 3, 3, 3}, Shape{5, 1, 1}, Shape{2, 5, 70, 65}}, {.padding = {1}},
                  "y0 = multiply(x0, x1); y1 = silu(y0); y2 = subtract(x2, y1); return y2"),
      convolution({Shape{2, 8, 6, 6}, Shape{8, 1, 3, 3}, Shape{8}, Shape{8, 1, 1}}, {.groups = 8},
                  "y0 = mish(x0); y1 = multiply(y0, x1); return y1"),
      convolution({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}, Shape{2, 8, 1, 1}}, {.padding = {1}}, gated_text),
      convolution({Shape{2, 8, 6, 6}, Shape{8, 1, 3, 3}, Shape{8}, Shape{2, 8, 1, 1}}, {.padding = {1}, .groups = 8}, gated_text),
      convolution({Shape{1, 8, 40, 41}, Shape{24, 8, 3, 3}, Shape{1, 24, 40, 41}}, {.padding = {1}}, gated_text),
      convolution({Shape{1, 128, 9, 11}, Shape{128, 4, 3, 3}, Shape{128}, Shape{128, 1, 1}}, {.padding = {1}, .groups = 32}, gated_text),
      convolution({Shape{1, 128, 9, 11}, Shape{128, 8, 3, 3}, Shape{128}, Shape{128, 1, 1}}, {.padding = {1}, .groups = 16}, gated_text),
      convolution({Shape{2, 3, 5, 7}, Shape{4, 3, 3, 2}, {Shape{}, Fill::zeros}}, {},
                  "y0 = greater(x0, x1); y1 = negate(x0); y2 = where(y0, x0, y1); return y2"),
      convolution({Shape{0, 2, 4, 4}, Shape{3, 2, 3, 3}, Shape{3}}, {}, relu_text)};
  for (const char* const activation :
       {"y0 = clamp(x0) {\"min\":0.0,\"max\":6.0}; return y0", "y0 = leaky_relu(x0) {\"negative_slope\":0.1}; return y0",
        "y0 = elu(x0) {\"alpha\":1.5}; return y0", "y0 = gelu(x0) {\"approximate\":\"none\"}; return y0",
        "y0 = gelu(x0) {\"approximate\":\"tanh\"}; return y0", "y0 = sigmoid(x0); return y0", "y0 = tanh(x0); return y0",
        "y0 = mish(x0); y1 = mish(y0); return y1", "y0 = hard_swish(x0); y1 = relu(y0); return y1"}) {
    result.push_back(convolution({Shape{2, 8, 6, 6}, Shape{8, 8, 3, 3}, Shape{8}}, {}, activation));
  }
  return result;
}

/// Whose results have the stride's remainders, phase by phase.
std::vector<Sample> transposed_convolutions() {
  const auto transposed = [](std::vector<SampleInput> inputs, const ConvolutionOptions& options, const char* program) {
    const std::string op = concat("conv_transpose", inputs[0].shape.rank() - 2, 'd');
    Sample sample = followed(op, std::move(inputs), options, program);
    sample.in_halves = false;  // as below
    return sample;
  };
  const ConvolutionOptions doubling{.stride = {2}, .padding = {1}, .output_padding = {1}};
  return {
      transposed({Shape{2, 3, 4, 5}, Shape{3, 4, 3, 2}, Shape{4}}, {.stride = {2}}, relu_text),
      transposed({Shape{2, 8, 5, 6}, Shape{8, 16, 3, 3}, Shape{16}, Shape{2, 16, 10, 12}}, doubling, residual_text),
      transposed({Shape{2, 8, 5, 6}, Shape{8, 16, 3, 3}, Shape{16}, Shape{2, 16, 1, 1}}, doubling, gated_text),
      transposed({Shape{2, 4, 3, 4}, Shape{4, 3, 3, 3}, Shape{6}, Shape{6, 1, 1}},
                 {.stride = {2}, .padding = {1}, .output_padding = {1, 0}, .groups = 2}, gated_text),
      transposed({Shape{1, 2, 3, 2}, Shape{2, 3, 2, 2}}, {.stride = {3}, .output_padding = {2}}, "y0 = silu(x0); return y0"),
      transposed({Shape{1, 3, 9, 40}, Shape{3, 8, 3, 3}, Shape{8}, Shape{8, 1, 1}}, doubling, gated_text),
      transposed({Shape{2, 4, 3, 4}, Shape{4, 1, 3, 4}, Shape{4}}, {.stride = {2}, .padding = {1}, .groups = 4}, relu_text),
      transposed({Shape{1, 3, 3, 4, 3}, Shape{3, 16, 3, 3, 3}, Shape{16}, Shape{16, 1, 1, 1}}, {.stride = {2}, .padding = {1}}, gated_text),
      transposed({Shape{1, 120, 5, 7}, Shape{120, 3, 3, 3}, Shape{120}, Shape{120, 1, 1}},
                 {.stride = {2}, .padding = {1}, .output_padding = {1}, .groups = 40}, gated_text),
      transposed({Shape{3, 4, 1, 1}, Shape{4, 8, 1, 1}, Shape{8}, Shape{8, 1, 1}}, {}, gated_text),
      transposed({Shape{1, 24, 40, 41}, Shape{24, 16, 3, 3}, Shape{16}, Shape{1, 16, 40, 41}}, {.padding = {1}}, gated_text),
      transposed({Shape{2, 8, 5, 6}, Shape{8, 1, 3, 3}, Shape{8}, Shape{2, 8, 5, 6}}, {.padding = {1}, .groups = 8}, residual_text)};
}

/// Of images with programs before, after or on both sides.
void add_images(std::vector<Sample>& result) {
  const auto add = [&](const char* before, const char* centre, const Attributes& attributes, std::vector<SampleInput> inputs,
                       const char* after = "") {
    const auto parse = [](const std::string& text) { return text.empty() ? ElementwiseProgram() : ElementwiseProgram::parse(text); };
    const StagedCall call{parse(before), 0, {&registry().find(centre), attributes}, parse(after)};
    // In halves: where the parts are computed one by one, what lies between is rounded.
    result.push_back({.inputs = std::move(inputs), .attributes = ChainAttributes{call}, .in_halves = false});
  };
  const auto statistics = [](std::int64_t slices) { return SampleInput::of(DType::f64, {slices}, Fill::positive); };
  const char* const rectified =
      "y0 = subtract(x1, x2); y1 = multiply(y0, x3); y2 = add(y1, x4); y3 = relu(y2); y4 = greater(y3, x5); y5 = where(y4, x0, x5); "
      "return y5";
  const char* const swished = "y0 = silu_backward(x0, x1); return y0";
  const char* const moved = "y0 = subtract(x0, x1); return y0";
  const char* const scaled_swish = "y0 = multiply(x0, x1); y1 = hard_swish_backward(y0, x2); return y1";
  const char* const multiplied = "y0 = multiply(x0, x1); return y0";
  const char* const scaled = "y0 = multiply(x0, x1); y1 = add(y0, x2); return y1";
  for (const Shape& image : {Shape{2, 16, 5, 7}, Shape{3, 6, 4, 5}, Shape{2, 64, 3, 9, 8}}) {
    const std::int64_t n = image[0], c = image[1];
    Dims channels = Dims::filled(image.rank() - 1, 1), both = Dims::filled(image.rank(), 1);
    channels[0] = c, both[0] = n, both[1] = c;
    const Shape of_channels(channels);
    const SampleInput zero{Shape{}, Fill::zeros};
    add(rectified, "batch_norm_backward", BatchNormAttributes{},
        {image, image, of_channels, of_channels, of_channels, zero, image, statistics(c), statistics(c), Shape{c}});
    add(scaled, "batch_norm_backward", BatchNormAttributes{}, {image, Shape(both), image, image, statistics(c), statistics(c), Shape{c}});
    add(swished, "group_norm_backward", GroupNormAttributes{.num_groups = 2},
        {image, image, image, statistics(2 * n), statistics(2 * n), Shape{c}});
    add(scaled, "instance_norm_backward", InstanceNormAttributes{},
        {image, Shape(both), Shape(channels), image, statistics(n * c), statistics(n * c)});
    const int rank = image.rank() - 2;
    const std::string dimensions = concat(rank, "d"), max_pool = "max_pool" + dimensions, avg_pool = "avg_pool" + dimensions;
    for (const PoolOptions& some : {PoolOptions{.kernel_size = {2}}, PoolOptions{.kernel_size = {3}, .stride = {2}, .padding = {1}}}) {
      const PoolOptions options = canonical_options(some, rank);
      const Shape windows = pool_output_shape(image, pool_geometry(image, options, rank));
      const PoolBackwardAttributes backward = pool_backward_attributes(image, options);
      add(moved, max_pool.c_str(), options, {{image, Fill::distinct}, {Shape{}, Fill::zeros}, Shape(channels), windows}, scaled_swish);
      add("", avg_pool.c_str(), options, {image, Shape(channels), windows}, scaled_swish);
      add("", (avg_pool + "_backward").c_str(), backward, {windows, Shape(both), image}, scaled_swish);
      add("", max_pool.c_str(), options, {{image, Fill::distinct}, Shape(both)}, multiplied);
      add("", (avg_pool + "_backward").c_str(), backward, {windows, Shape(both)}, multiplied);
    }
    for (const char* const name : {"softmax", "log_softmax"}) {
      add(scaled, name, SoftmaxAttributes{}, {image, Shape(both), image, Shape(channels), Shape{}},
          "y0 = add(x0, x1); y1 = multiply(y0, x2); y2 = sigmoid(y1); return y2");
      add(swished, concat(name, "_backward").c_str(), SoftmaxAttributes{}, {image, image, image});
    }
    for (const char* const name : {"amax", "amin"}) {
      add(moved, name, ReductionAttributes{{1}, false}, {{image, Fill::distinct}, {Shape{}, Fill::zeros}});
    }
    for (const char* const name : {"max", "min"}) {
      add(moved, name, AxisReductionAttributes{1, true}, {{image, Fill::distinct}, {Shape{}, Fill::zeros}});
    }
    for (const char* const name : {"logsumexp", "sum", "mean"}) {
      add(scaled, name, ReductionAttributes{{1}, rank == 2}, {image, Shape(both), image});
    }
    add("", "instance_norm", InstanceNormAttributes{}, {image, Shape{c}, Shape{c}, image}, residual_text);
    add("", "group_norm", GroupNormAttributes{.num_groups = 2}, {image, Shape(channels), image}, scaled);
    add("", "instance_norm_backward", InstanceNormAttributes{}, {image, image, statistics(n * c), statistics(n * c), Shape{c}, image},
        "y0 = add(x0, x1); return y0");
    add(swished, "batch_norm_backward", BatchNormAttributes{},
        {image, image, image, statistics(c), statistics(c), image, Shape(both), Shape(channels)},
        "y0 = multiply(x0, x2); y1 = add(y0, x1); y2 = maximum(y1, x3); return y2");
  }
  // Of which a device's threads share the rows, or have several pixels at once.
  const auto add_large = [&](auto&&... arguments) {
    add(arguments...);
    result.back().smooth = false;  // differences for each of their elements would take long
  };
  const Shape rows{5, 16, 17, 13}, many{1, 16, 35, 31}, pixels{3, 32, 9, 7};
  add_large(scaled, "batch_norm_backward", BatchNormAttributes{},
            std::vector<SampleInput>{rows, Shape{5, 16, 1, 1}, rows, rows, statistics(16), statistics(16), Shape{16}});
  add_large(swished, "group_norm_backward", GroupNormAttributes{.num_groups = 2},
            std::vector<SampleInput>{many, many, many, statistics(2), statistics(2), Shape{16}});
  for (const char* const name : {"logsumexp", "sum", "mean"}) {
    add_large(scaled, name, ReductionAttributes{{1}, true}, std::vector<SampleInput>{pixels, Shape{3, 32, 1, 1}, pixels});
  }
  add_large(moved, "max", AxisReductionAttributes{1, true}, std::vector<SampleInput>{{pixels, Fill::distinct}, {Shape{}, Fill::zeros}});
}

/// Those around the operator, with the one that several processes compute in its place.
std::vector<Sample> synchronized_samples(const std::vector<Sample>& samples, const std::string& name) {
  std::vector<Sample> result;
  for (Sample sample : samples) {
    StagedCall call = sample.attributes.as<ChainAttributes>().call;
    if (call.centre.op->name != name) continue;
    call.centre.op = &registry().find("synchronized_" + name);
    sample.attributes = ChainAttributes{std::move(call)};
    result.push_back(std::move(sample));
  }
  return result;
}

}  // namespace

std::vector<Sample> updating_chain_samples() {
  std::vector<Sample> result;
  for (const Shape& image : {Shape{2, 16, 5, 7}, Shape{3, 6, 4, 5}, Shape{2, 64, 3, 9, 8}, Shape{0, 3, 2, 2}}) {
    const Shape channels{image[1]};
    const OperatorCall centre{&registry().find("batch_norm"), BatchNormAttributes{.momentum = 0.3}};
    result.push_back({.inputs = {image, channels, channels, channels, {channels, Fill::positive}, image},
                      .attributes = ChainAttributes{{{}, 0, centre, ElementwiseProgram::parse(residual_text)}},
                      .in_halves = false});
  }
  return result;
}

std::vector<Sample> chain_samples() {
  std::vector<Sample> result;
  add_images(result);
  for (const int image_rank : {2, 3}) {
    for (Sample& sample : convolutions(image_rank)) result.push_back(std::move(sample));
  }
  for (Sample& sample : transposed_convolutions()) result.push_back(std::move(sample));
  return result;
}

std::vector<Sample> synchronized_chain_samples() { return synchronized_samples(chain_samples(), "batch_norm_backward"); }

std::vector<Sample> synchronized_updating_chain_samples() { return synchronized_samples(updating_chain_samples(), "batch_norm"); }

}  // namespace frit::ops
