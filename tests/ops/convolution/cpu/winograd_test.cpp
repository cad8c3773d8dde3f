// Convolutions in 4 x 4 tiles on the CPU against the same ones in float64, which are plain sums.

#include <gtest/gtest.h>

#include <algorithm>

#include "frit/core/thread_pool.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/cpu/simd.h"
#include "ops/chain/chain_checks.h"
#include "ops/operator_checks.h"

namespace frit::winograd_test {
namespace {

struct Case {
  Shape input;
  std::int64_t out_channels;
  Dims kernel, padding;
  bool biased = true;
  Dims dilation = {};
};

class Winograd : public testing::Test {
 protected:
  static constexpr double tolerance = 1e-5;  // of the largest value; strict float32 has 2e-5

  struct Call {
    const Operator& op;
    ops::Attributes attributes;
    std::vector<Tensor> inputs;
  };

  /// Of channels-last images, so that the output lies so too. Says how it was computed.
  static std::string run(const Call& call, Tensor& result) {
    std::vector<Tensor> inputs;
    for (const Tensor& input : call.inputs) inputs.push_back(input.rank() >= 4 ? input.contiguous(Layout::channels_last) : input);
    const std::vector<TensorType> types = types_of(inputs), results = call.op.infer_types(types, call.attributes);
    ops::CallLayouts layouts;
    for (const Tensor& input : inputs) layouts.inputs.push_back(input.layout());
    layouts.outputs = {Layout::channels_last};
    const std::size_t bytes = ops::scratch_bytes(call.op, types, results, call.attributes, Device::cpu(), layouts);
    const Tensor scratch = Tensor::full({static_cast<std::int64_t>(bytes)}, 255, DType::u8);
    result = Tensor::full(results[0].shape, 77, results[0].dtype).contiguous(Layout::channels_last);
    const std::span<std::byte> memory(static_cast<std::byte*>(scratch.raw()), bytes);
    const std::string schedule = ops::schedule_of(call.op, call.attributes, inputs, {&result, 1}, memory);
    ops::invoke(call.op, call.attributes, inputs, {&result, 1}, memory);
    return schedule;
  }

  static void expect_sums(const std::string& name, const ops::Attributes& attributes, const std::vector<Tensor>& inputs, bool in_tiles) {
    SCOPED_TRACE(name);
    const Operator& op = ops::registry().find(name);
    std::vector<Tensor> wide;
    for (const Tensor& input : inputs) wide.push_back(input.to(DType::f64));
    const Tensor expected = ops::run(op, wide, attributes).at(0);
    Tensor found;
    EXPECT_EQ(run({op, attributes, inputs}, found).find("Winograd") != std::string::npos, in_tiles);
    EXPECT_TRUE(near(found, expected, tolerance, largest_finite(expected)));
  }
};

class WinogradSizes : public Winograd, public testing::WithParamInterface<Case> {};

TEST_P(WinogradSizes, GiveTheSumsInBothDirections) {
  const Case& c = GetParam();
  Shape kernel = c.kernel;
  kernel.insert(0, c.input[1]);
  kernel.insert(0, c.out_channels);
  const int rank = c.kernel.rank();
  const ConvolutionOptions options = ops::canonical({.padding = c.padding, .dilation = c.dilation}, rank);
  ConvolutionOptions forward = options;
  forward.output_padding = {};
  const Tensor image = normal_tensor(c.input, DType::f32, 1), weight = normal_tensor(kernel, DType::f32, 2);
  std::vector<Tensor> inputs = {image, weight};
  if (c.biased) inputs.push_back(normal_tensor({c.out_channels}, DType::f32, 3));
  expect_sums(ops::convolution_name("conv", rank), forward, inputs, true);
  const Shape output = ops::registry().find(ops::convolution_name("conv", rank)).infer_types(types_of(inputs), forward).at(0).shape;
  expect_sums(ops::convolution_name("conv", rank, "_data_gradient"), ops::DataGradientOptions{forward, ops::image_of(c.input)},
              {normal_tensor(output, DType::f32, 4), weight}, true);
}

INSTANTIATE_TEST_SUITE_P(All, WinogradSizes,
                         testing::Values(Case{{1, 16, 20, 17}, 16, {3, 3}, {1}}, Case{{2, 48, 13, 15}, 48, {3, 3}, {1}},
                                         Case{{1, 24, 30, 101}, 16, {3, 3}, {0}, false}, Case{{5, 40, 11, 13}, 136, {3, 3}, {1}},
                                         Case{{1, 64, 14, 14}, 64, {3, 3}, {2, 1}}, Case{{1, 16, 7, 15, 14}, 24, {3, 3, 3}, {1}},
                                         Case{{2, 16, 5, 8, 8}, 16, {2, 3, 3}, {1, 1, 0}, true, {2, 1, 1}},
                                         Case{{3, 304, 13, 13}, 48, {3, 3}, {1}}, Case{{2, 26, 41, 43}, 26, {3, 3}, {1}},
                                         Case{{7, 52, 14, 15}, 104, {3, 3}, {1}}, Case{{1, 17, 46, 40}, 83, {3, 3}, {0}, false},
                                         Case{{2, 9, 7, 14, 13}, 30, {3, 3, 3}, {1}}, Case{{1, 130, 9, 60}, 34, {3, 3}, {1}}));

/// As in dense blocks.
TEST_F(Winograd, LeavesFewTilesToFewChannels) {
  ConvolutionOptions options = ops::canonical({.padding = {1}}, 2);
  options.output_padding = {};
  const Tensor image = normal_tensor({2, 128, 14, 14}, DType::f32, 1), weight = normal_tensor({32, 128, 3, 3}, DType::f32, 2);
  expect_sums("conv2d", options, {image, weight}, false);
  expect_sums("conv2d_data_gradient", ops::DataGradientOptions{options, {14, 14}}, {normal_tensor({2, 32, 14, 14}, DType::f32, 3), weight},
              true);
  const Tensor odd = normal_tensor({2, 26, 20, 20}, DType::f32, 1), few = normal_tensor({26, 26, 3, 3}, DType::f32, 2);
  expect_sums("conv2d", options, {odd, few}, false);
}

struct GradientCase {
  Shape input;
  std::int64_t out_channels;
  Dims kernel;
  ConvolutionOptions options = {.padding = {1}};
};

class WinogradWeightGradients : public Winograd, public testing::WithParamInterface<GradientCase> {};

TEST_P(WinogradWeightGradients, GiveTheSumsOfAnyNumberOfThreads) {
  const GradientCase& c = GetParam();
  const int rank = c.kernel.rank();
  ConvolutionOptions options = ops::canonical(c.options, rank);
  options.output_padding = {};
  Shape kernel = c.kernel;
  kernel.insert(0, c.input[1]);
  kernel.insert(0, c.out_channels);
  const Tensor image = normal_tensor(c.input, DType::f32, 1);
  const TensorType types[] = {{DType::f32, c.input}, {DType::f32, kernel}};
  const Shape output = ops::registry().find(ops::convolution_name("conv", rank)).infer_types(types, options).at(0).shape;
  const std::string name = ops::convolution_name("conv", rank, "_weight_gradient");
  const ops::WeightGradientOptions attributes{options, c.kernel};
  const std::vector<Tensor> inputs = {normal_tensor(output, DType::f32, 2), image};
  expect_sums(name, attributes, inputs, true);
  const int threads = thread_count();
  Tensor alone, together;
  set_thread_count(1);
  run({ops::registry().find(name), attributes, inputs}, alone);
  set_thread_count(3);
  run({ops::registry().find(name), attributes, inputs}, together);
  set_thread_count(threads);
  EXPECT_TRUE(same_bits(alone, together));
}

INSTANTIATE_TEST_SUITE_P(
    All, WinogradWeightGradients,
    testing::Values(GradientCase{{1, 16, 28, 28}, 16, {3, 3}}, GradientCase{{2, 32, 29, 31}, 48, {3, 3}},
                    GradientCase{{1, 24, 30, 101}, 16, {3, 3}, {}}, GradientCase{{5, 40, 11, 13}, 136, {3, 3}},
                    GradientCase{{2, 16, 100, 100}, 16, {3, 3}}, GradientCase{{3, 304, 13, 13}, 32, {3, 3}},
                    GradientCase{{2, 26, 41, 43}, 26, {3, 3}}, GradientCase{{1, 17, 30, 101}, 20, {3, 3}, {}},
                    GradientCase{{3, 52, 13, 13}, 104, {3, 3}}, GradientCase{{1, 9, 5, 24, 24}, 30, {3, 3, 3}},
                    // By elements of tiles: in one slab, with channels in two parts, in several slabs, with a depth.
                    GradientCase{{2, 16, 28, 28}, 128, {3, 3}}, GradientCase{{2, 112, 29, 31}, 144, {3, 3}},
                    GradientCase{{1, 16, 70, 70}, 128, {3, 3}}, GradientCase{{2, 18, 28, 28}, 130, {3, 3}},
                    GradientCase{{1, 18, 70, 70}, 131, {3, 3}}, GradientCase{{1, 16, 5, 24, 24}, 128, {3, 3, 3}},
                    GradientCase{{1, 64, 27, 27}, 64, {3, 3}, {.padding = {2, 1}}}, GradientCase{{1, 16, 7, 9, 10}, 24, {3, 3, 3}},
                    GradientCase{{2, 16, 17, 37, 40}, 16, {3, 3, 3}}, GradientCase{{4, 16, 1, 20, 20}, 16, {3, 3, 3}},
                    GradientCase{{2, 16, 9, 16, 16}, 16, {2, 3, 3}, {.stride = {2, 1, 1}, .padding = {1, 1, 0}, .dilation = {2, 1, 1}}},
                    GradientCase{{2, 16, 4, 16, 16}, 16, {1, 3, 3}, {.stride = {3, 1, 1}, .padding = {4, 1, 1}}},
                    GradientCase{{1, 16, 1, 32, 32}, 16, {1, 3, 3}, {.stride = {3, 1, 1}, .padding = {1, 1, 1}}}));

TEST_F(Winograd, BitsDoNotDependOnTheBatch) {
  const Tensor images = normal_tensor({5, 32, 20, 20}, DType::f32, 1), weight = normal_tensor({32, 32, 3, 3}, DType::f32, 2);
  ConvolutionOptions options = ops::canonical({.padding = {1}}, 2);
  options.output_padding = {};
  const auto convolved = [&](const Tensor& image) {
    Tensor result;
    EXPECT_NE(run({ops::registry().find("conv2d"), options, {image, weight}}, result).find("Winograd"), std::string::npos);
    return result;
  };
  const Tensor together = convolved(images);
  for (std::int64_t i = 0; i < 5; ++i) {  // few tiles, and together many
    EXPECT_TRUE(same_bits(convolved(images.slice(0, i, i + 1)), together.slice(0, i, i + 1))) << "sample " << i;
  }
}

}  // namespace
}  // namespace frit::winograd_test
