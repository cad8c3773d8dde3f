// Convolutions on the CPU whose results have few channels: rows of positions that share what they read.

#include "frit/ops/convolution/convolution.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "ops/convolution/direct_convolution.h"
#include "ops/linear/both_precisions.h"
#include "ops/operator_checks.h"

namespace frit::narrow_convolution_test {
namespace {

struct Case {
  Shape image, weight;
  ConvolutionOptions options = {};
};

class NarrowConvolution : public testing::TestWithParam<Case> {};

TEST_P(NarrowConvolution, GivesTheSumsInBothDirections) {
  const auto& [image, weight, options] = GetParam();
  const DirectConvolution direct(image, weight, options);
  const int rank = image.rank() - 2;
  expect_in_both_precisions(ops::convolution_name("conv", rank), {direct.input, direct.weight, direct.bias}, options, direct.output);
  expect_in_both_precisions(ops::convolution_name("conv", rank, "_data_gradient"), {direct.gradient, direct.weight},
                            ops::DataGradientOptions{options, ops::image_of(image)}, direct.data_gradient);
}

TEST_P(NarrowConvolution, HasTheSameBitsInAnyLayoutAndBatch) {
  const auto& [image, weight, options] = GetParam();
  const std::string name = ops::convolution_name("conv", image.rank() - 2);
  const Tensor images = normal_tensor(image, DType::f32, 1), kernels = normal_tensor(weight, DType::f32, 2);
  const auto convolved = [&](const Tensor& some) { return ops::run(name, {some, kernels}, options)[0]; };
  const Tensor together = convolved(images);
  EXPECT_TRUE(same_bits(convolved(images.contiguous(Layout::channels_last)).contiguous(), together));
  const std::string backwards = ops::convolution_name("conv", image.rank() - 2, "_data_gradient");
  const auto gradient = [&](const Tensor& some) {
    return ops::run(backwards, {some, kernels}, ops::DataGradientOptions{options, ops::image_of(image)})[0];
  };
  EXPECT_TRUE(same_bits(gradient(together.contiguous(Layout::channels_last)).contiguous(), gradient(together)));
  const Tensor one = convolved(images.slice(0, 1, 2).contiguous());
  EXPECT_TRUE(same_bits(one, together.slice(0, 1, 2).contiguous()));
}

INSTANTIATE_TEST_SUITE_P(All, NarrowConvolution,
                         testing::Values(Case{{3, 1, 5, 26}, {5, 1, 3, 3}}, Case{{2, 3, 9, 37}, {16, 3, 3, 3}, {.padding = {1}}},
                                         Case{{2, 2, 4, 5, 30}, {8, 2, 3, 3, 3}, {.padding = {1}}},
                                         Case{{2, 70, 3, 29}, {3, 70, 3, 3}, {.padding = {0, 1}}},  // in chunks of whole runs
                                         Case{{2, 50, 3, 25}, {7, 50, 3, 3}, {.padding = {1}}},     // of parts of runs
                                         Case{{2, 3, 6, 55}, {4, 3, 3, 3}, {.stride = {2}, .padding = {1}}},
                                         Case{{2, 3, 7, 31}, {4, 3, 3, 3}, {.padding = {2}, .dilation = {2}}},
                                         Case{{2, 4, 7, 33}, {6, 2, 3, 3}, {.padding = {1}, .groups = 2}},
                                         Case{{2, 6, 1, 40}, {6, 6, 1, 3}, {.padding = {0, 1}}}));

}  // namespace
}  // namespace frit::narrow_convolution_test
