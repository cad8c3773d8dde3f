#include "ops/convolution/direct_convolution.h"
#include "ops/elementwise/evaluation.h"
#include "ops/linear/both_precisions.h"

namespace frit::convolution_gradient_test {
namespace {

using ops::DataGradientOptions;
using ops::WeightGradientOptions;

std::string error_of(const char* op, const Shape& first, const Shape& second, const ops::Attributes& attributes) {
  const std::vector<TensorType> types = {{DType::f32, first}, {DType::f32, second}};
  return message_of([&] { ops::registry().find(op).infer_types(types, attributes); });
}

TEST(ConvolutionDataGradient, NamesWhatDoesNotFit) {
  const auto of = [](const Shape& gradient, const Shape& weight, const DataGradientOptions& options) {
    return error_of("conv2d_data_gradient", gradient, weight, options);
  };
  EXPECT_EQ(of({2, 3, 4, 4}, {3, 2, 3, 3}, {}), "conv2d_data_gradient: input_size is missing: one number an image axis");
  EXPECT_EQ(of({2, 3, 4, 4}, {3, 2, 3, 3}, {{}, {6, 6, 6}}), "conv2d_data_gradient: input_size has 3 numbers, expected 2 or one");
  EXPECT_EQ(of({2, 3, 4, 4}, {3, 2, 3, 3}, {{}, {6, 0}}), "conv2d_data_gradient: input_size must be positive, got 6x0");
  EXPECT_EQ(of({2, 3, 4, 4}, {3, 2, 3, 3}, {{}, {6, 7}}),
            "conv2d_data_gradient: the convolution's output is 4x5, its gradient 4x4 (gradient 2x3x4x4, weight 3x2x3x3)");
  EXPECT_EQ(of({2, 5, 4, 4}, {3, 2, 3, 3}, {{}, {6}}),
            "conv2d_data_gradient: weight has 3 output channels, gradient has 5 (gradient 2x5x4x4, weight 3x2x3x3)");
}

TEST(ConvolutionWeightGradient, NamesWhatDoesNotFit) {
  const auto of = [](const Shape& gradient, const Shape& input, const WeightGradientOptions& options) {
    return error_of("conv3d_weight_gradient", gradient, input, options);
  };
  EXPECT_EQ(of({2, 3, 4, 4, 4}, {2, 2, 6, 6, 6}, {}), "conv3d_weight_gradient: kernel_size is missing: one number an image axis");
  EXPECT_EQ(of({2, 3, 4, 4, 4}, {1, 2, 6, 6, 6}, {{}, {3}}),
            "conv3d_weight_gradient: gradient has batch size 2, input has 1 (gradient 2x3x4x4x4, input 1x2x6x6x6)");
  EXPECT_EQ(of({2, 3, 4, 4, 4}, {2, 2, 6, 6, 6}, {{}, {3, 3, 2}}),
            "conv3d_weight_gradient: the convolution's output is 4x4x5, its gradient 4x4x4 (gradient 2x3x4x4x4, input 2x2x6x6x6)");
  EXPECT_EQ(of({2, 3, 4, 4, 4}, {2, 2, 6, 6, 6}, {{.groups = 2}, {3}}),
            "conv3d_weight_gradient: 3 output channels cannot be divided into 2 groups (gradient 2x3x4x4x4, input 2x2x6x6x6)");
  EXPECT_EQ(of({2, 3, 4, 4, 4}, {2, 2, 6, 6, 6}, {{}, {std::int64_t{1} << 31}}),
            "conv3d_weight_gradient: kernel_size must be at most 1073741824, got 2147483648");
}

TEST(ConvolutionWeightGradient, OfAnEmptyBatchIsZero) {
  const Tensor result =
      ops::run("conv2d_weight_gradient", {Tensor::zeros({0, 3, 2, 2}), Tensor::zeros({0, 2, 4, 4})}, WeightGradientOptions{{}, {3}})[0];
  EXPECT_EQ(result.shape(), (Shape{3, 2, 3, 3}));
  EXPECT_EQ(result.to_vector<double>(), std::vector<double>(54, 0.0));
}

TEST(ConvolutionWeightGradient, IsZeroForTapsThatMeetPaddingOnly) {
  // Many input channels and one output channel, so that the patches are taken from the gradient; a stride beyond the image.
  const ConvolutionOptions options{.stride = {7}, .padding = {3}};
  const DirectConvolution direct({1, 8, 2, 2}, {1, 8, 5, 5}, options);
  expect_in_both_precisions("conv2d_weight_gradient", {direct.gradient, direct.input}, WeightGradientOptions{options, {5}},
                            direct.weight_gradient);
}

TEST(ConvolutionWeightGradient, StaysAccurateOverManyPositions) {
  const DirectConvolution direct({64, 1, 66, 66}, {2, 1, 3, 3}, {});
  expect_in_both_precisions("conv2d_weight_gradient", {direct.gradient, direct.input}, WeightGradientOptions{{}, {3}},
                            direct.weight_gradient);
}

}  // namespace
}  // namespace frit::convolution_gradient_test
