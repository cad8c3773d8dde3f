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

class NarrowConvolution : public testing::TestWithParam<Case> {
 protected:
  /// With the first input, an image, and the result in the layout; what memory the result does not have keeps its numbers.
  static Tensor run(const std::string& name, std::vector<Tensor> inputs, const ops::Attributes& attributes, Layout layout) {
    const Operator& op = ops::registry().find(name);
    inputs[0] = inputs[0].contiguous(layout);
    const std::vector<TensorType> types = types_of(inputs), results = op.infer_types(types, attributes);
    const std::size_t bytes = ops::scratch_bytes(op, types, results, attributes, Device::cpu(), {{layout, Layout::contiguous}, {layout}});
    const Tensor scratch = Tensor::full({static_cast<std::int64_t>(bytes)}, 255, DType::u8);
    constexpr std::int64_t more = 64;
    const std::int64_t elements = results[0].elements();
    const Tensor memory = Tensor::full({elements + more}, 77, DType::f32);
    const Tensor result = Tensor::over(memory.raw(), results[0].shape, DType::f32, Device::cpu(), nullptr, layout);
    ops::invoke(op, attributes, inputs, {&result, 1}, {static_cast<std::byte*>(scratch.raw()), bytes});
    EXPECT_EQ(memory.slice(0, elements, elements + more).to_vector<float>(), std::vector<float>(more, 77)) << "after the result";
    return result.clone();
  }
};

TEST_P(NarrowConvolution, GivesTheSumsInBothDirections) {
  const auto& [image, weight, options] = GetParam();
  const DirectConvolution direct(image, weight, options);
  const int rank = image.rank() - 2;
  expect_in_both_precisions(ops::convolution_name("conv", rank), {direct.input, direct.weight, direct.bias}, options, direct.output);
  expect_in_both_precisions(ops::convolution_name("conv", rank, "_data_gradient"), {direct.gradient, direct.weight},
                            ops::DataGradientOptions{options, ops::image_of(image)}, direct.data_gradient);
}

TEST_P(NarrowConvolution, HasTheSameBitsInAnyLayoutAndBatch) {
  const Shape &image = GetParam().image, &weight = GetParam().weight;
  const ConvolutionOptions& options = GetParam().options;  // by name: lambdas of older clangs do not see the names of a binding
  const int rank = image.rank() - 2;
  const Tensor images = normal_tensor(image, DType::f32, 1), kernels = normal_tensor(weight, DType::f32, 2);
  const auto convolved = [&](const Tensor& some, Layout layout) {
    return run(ops::convolution_name("conv", rank), {some, kernels}, options, layout);
  };
  const auto gradient = [&](const Tensor& some, Layout layout) {
    const ops::DataGradientOptions attributes{options, ops::image_of(image)};
    return run(ops::convolution_name("conv", rank, "_data_gradient"), {some, kernels}, attributes, layout);
  };
  const Tensor together = convolved(images, Layout::contiguous);
  EXPECT_TRUE(same_bits(convolved(images, Layout::channels_last), together));
  EXPECT_TRUE(same_bits(gradient(together, Layout::channels_last), gradient(together, Layout::contiguous)));
  const Tensor one = convolved(images.slice(0, 1, 2).contiguous(), Layout::channels_last);
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
