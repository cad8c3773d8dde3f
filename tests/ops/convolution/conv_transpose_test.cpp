#include "frit/ops/convolution/convolution.h"
#include "ops/convolution/direct_convolution.h"
#include "ops/elementwise/evaluation.h"
#include "ops/linear/both_precisions.h"

namespace frit::conv_transpose_test {
namespace {

using Options = ConvolutionOptions;

/// The shape of the result, or the message of the error, for float32 tensors.
std::string result_of(const char* op, const std::vector<Shape>& shapes, const Options& options = {}) {
  std::vector<TensorType> types;
  for (const Shape& shape : shapes) types.push_back({DType::f32, shape});
  try {
    return concat(ops::registry().find(op).infer_types(types, options)[0].shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
}

TEST(ConvTranspose, TakesAnOutputPaddingBelowStrideOrDilation) {
  const auto of = [](std::int64_t stride, std::int64_t dilation, std::int64_t output_padding) {
    return result_of("conv_transpose2d", {{1, 2, 4, 4}, {2, 3, 3, 3}},
                     {.stride = {stride}, .output_padding = {output_padding}, .dilation = {dilation}});
  };
  EXPECT_EQ(of(1, 1, 0), "1x3x6x6");
  EXPECT_EQ(of(2, 1, 0), "1x3x9x9");
  EXPECT_EQ(of(2, 1, 1), "1x3x10x10");
  EXPECT_EQ(of(2, 3, 2), "1x3x15x15");
  EXPECT_EQ(of(1, 2, 1), "1x3x9x9");
  const auto refusal = [](const char* padding, const char* stride, const char* dilation) {
    return concat("conv_transpose2d: output_padding must be smaller than stride or dilation, got output_padding ", padding, ", stride ",
                  stride, ", dilation ", dilation);
  };
  EXPECT_EQ(of(1, 1, 1), refusal("1x1", "1x1", "1x1"));
  EXPECT_EQ(of(2, 1, 2), refusal("2x2", "2x2", "1x1"));
  EXPECT_EQ(of(2, 3, 3), refusal("3x3", "2x2", "3x3"));
  EXPECT_EQ(of(2, 1, -1), "conv_transpose2d: output_padding must not be negative, got -1");
  EXPECT_EQ(result_of("conv_transpose3d", {{1, 1, 2, 2, 2}, {1, 1, 2, 2, 2}}, {.stride = {1, 2, 3}, .output_padding = {0, 1, 2}}),
            "1x1x3x5x7");
  EXPECT_EQ(
      result_of("conv_transpose3d", {{1, 1, 2, 2, 2}, {1, 1, 2, 2, 2}}, {.stride = {1, 2, 3}, .output_padding = {1, 1, 2}}),
      "conv_transpose3d: output_padding must be smaller than stride or dilation, got output_padding 1x1x2, stride 1x2x3, dilation 1x1x1");
}

TEST(ConvTranspose, NamesWhatDoesNotFit) {
  EXPECT_EQ(result_of("conv_transpose2d", {{1, 4, 5, 5}, {3, 2, 3, 3}}),
            "conv_transpose2d: weight has 3 input channels, input has 4 (input 1x4x5x5, weight 3x2x3x3)");
  EXPECT_EQ(result_of("conv_transpose2d", {{1, 3, 5, 5}, {3, 2, 3, 3}}, {.groups = 2}),
            "conv_transpose2d: 3 input channels cannot be divided into 2 groups (input 1x3x5x5, weight 3x2x3x3)");
  EXPECT_EQ(result_of("conv_transpose2d", {{1, 4, 5, 5}, {4, 2, 3, 3}, {2}}, {.groups = 2}),
            "conv_transpose2d: bias has shape 2, expected 4 (input 1x4x5x5, weight 4x2x3x3)");
  EXPECT_EQ(result_of("conv_transpose2d", {{1, 2, 1, 1}, {2, 3, 1, 1}}, {.padding = {1}}),
            "conv_transpose2d: the output's image would be -1x-1 (input 1x2x1x1, weight 2x3x1x1)");
  EXPECT_EQ(result_of("conv_transpose2d", {{1, 2, 2, 4}, {2, 3, 2, 2}}, {.padding = {0, 1}}), "1x3x3x3");
  EXPECT_EQ(result_of("conv_transpose2d", {{1, 2, 1, 2}, {2, 3, 2, 2}}, {.padding = {1}}),
            "conv_transpose2d: the output's image would be 0x1 (input 1x2x1x2, weight 2x3x2x2)");
  EXPECT_EQ(result_of("conv_transpose2d", {{1, 2, 0, 4}, {2, 3, 3, 3}}),
            "conv_transpose2d: the input's image 0x4 is empty (input 1x2x0x4, weight 2x3x3x3)");
  EXPECT_EQ(result_of("conv_transpose2d", {{1, 0, 2, 4}, {0, 3, 3, 3}}),
            "conv_transpose2d: there are no input channels (input 1x0x2x4, weight 0x3x3x3)");
}

TEST(ConvTranspose, HolesBetweenKernelsHoldTheBiasAlone) {
  const Tensor x = Tensor::from<double>({1, 2}, {1, 1, 1, 2}), weight = Tensor::from<double>({3, 4}, {1, 1, 1, 2});
  const Tensor bias = Tensor::from<double>({0.5}, {1});
  const Tensor y = ops::run("conv_transpose2d", {x, weight, bias}, Options{.stride = {1, 3}, .output_padding = {0, 2}})[0];
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{3.5, 4.5, 0.5, 6.5, 8.5, 0.5, 0.5}));
}

TEST(ConvTranspose, OutputPaddingGivesBackWhatPaddingHadCut) {
  const Tensor x = Tensor::from<double>({1, 2}, {1, 1, 1, 2}), weight = Tensor::from<double>({1, 10, 100}, {1, 1, 1, 3});
  const auto of = [&](std::int64_t output_padding) {
    return ops::run("conv_transpose2d", {x, weight}, Options{.stride = {1, 2}, .padding = {0, 1}, .output_padding = {0, output_padding}})[0]
        .to_vector<double>();
  };
  EXPECT_EQ(of(0), (std::vector<double>{10, 102, 20}));
  EXPECT_EQ(of(1), (std::vector<double>{10, 102, 20, 200}));
}

TEST(ConvTranspose, OfAnEmptyBatchHasZeroGradientsOfItsParameters) {
  const auto function = [](const Values& v) {
    return conv_transpose2d(v[0], v[1], v[2], {.stride = {2}, .padding = {1}, .output_padding = {1}});
  };
  const Evaluation result = evaluate(function, {Tensor::zeros({0, 2, 3, 3}), Tensor::full({2, 3, 3, 3}, 1), Tensor::full({3}, 1)});
  EXPECT_TRUE(result.output.empty());
  EXPECT_EQ(result.gradients[1], std::vector<double>(54, 0.0));
  EXPECT_EQ(result.gradients[2], std::vector<double>(3, 0.0));
}

TEST(ConvTranspose, OfAnEmptyBatchTakesNoTimeWhateverTheStride) {
  const auto function = [](const Values& v) { return conv_transpose3d(v[0], v[1], {}, {.stride = {100000}}); };
  const Evaluation result = evaluate(function, {Tensor::zeros({0, 2, 2, 2, 2}), Tensor::full({2, 3, 2, 1, 1}, 1)});
  EXPECT_TRUE(result.output.empty());
  EXPECT_EQ(result.gradients[1], std::vector<double>(12, 0.0));
}

TEST(ConvTranspose, IsTheDataGradientOfAConvolution) {
  const Options options{.stride = {2, 3}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2};
  const DirectConvolution direct({3, 4, 20, 35}, {10, 2, 3, 4}, options);
  Options transposed = options;
  transposed.output_padding = {1, 2};
  expect_in_both_precisions("conv_transpose2d", {direct.gradient, direct.weight}, transposed, direct.data_gradient);
}

}  // namespace
}  // namespace frit::conv_transpose_test
