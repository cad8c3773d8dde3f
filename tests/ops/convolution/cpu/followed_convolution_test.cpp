// What follows a convolution on the CPU, in registers or not, against the same operators after it: bit for bit.

#include <gtest/gtest.h>

#include <limits>

#include "frit/ops/chain/chain_attributes.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "ops/chain/chain_checks.h"
#include "ops/operator_checks.h"

namespace frit::followed_convolution_test {
namespace {

using ops::ChainAttributes;
using ops::ElementwiseProgram;

struct Case {
  Shape image, weight;
  ConvolutionOptions options = {};
};

class FollowedConvolution : public testing::TestWithParam<Case> {
 protected:
  static Tensor run(const char* name, const ops::Attributes& attributes, const std::vector<Tensor>& inputs, Layout layout) {
    const Operator& op = ops::registry().find(name);
    const std::vector<TensorType> types = types_of(inputs), results = op.infer_types(types, attributes);
    ops::CallLayouts layouts{{}, {layout}};
    for (const Tensor& input : inputs) layouts.inputs.push_back(input.layout());
    const std::size_t bytes = ops::scratch_bytes(op, types, results, attributes, Device::cpu(), layouts);
    const Tensor scratch = Tensor::full({static_cast<std::int64_t>(bytes)}, 255, DType::u8);
    const Tensor result = Tensor::full(results[0].shape, 77, results[0].dtype).contiguous(layout);
    ops::invoke(op, attributes, inputs, {&result, 1}, {static_cast<std::byte*>(scratch.raw()), bytes});
    return result;
  }
};

TEST_P(FollowedConvolution, HasTheBitsOfItsParts) {
  const Case& c = GetParam();
  const ConvolutionOptions options = ops::canonical(c.options, 2);
  const std::tuple<const char*, bool, double, double> programs[] = {
      {"y0 = relu(x0); return y0", false, 0, inf},
      {"y0 = clamp(x0) {\"min\":-0.25,\"max\":0.5}; return y0", false, -0.25, 0.5},
      {"y0 = add(x0, x1); return y0", true, -inf, inf},
      {"y0 = add(x1, x0); y1 = clamp(y0) {\"min\":-0.25,\"max\":0.5}; return y1", true, -0.25, 0.5}};
  for (const auto& [program, adds, low, high] : programs) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const auto& [layout, addend_layout] :
           {std::pair(Layout::channels_last, Layout::channels_last), std::pair(Layout::channels_last, Layout::contiguous),
            std::pair(Layout::contiguous, Layout::contiguous)}) {
        SCOPED_TRACE(concat(program, ' ', dtype, ' ', static_cast<int>(layout), static_cast<int>(addend_layout)));
        const Tensor image = with_values(normal_tensor(c.image, dtype, 1), {{3, nan}, {4, inf}});
        std::vector<Tensor> inputs = {image.contiguous(layout), normal_tensor(c.weight, dtype, 2), normal_tensor({c.weight[0]}, dtype, 3)};
        const Tensor plain = run("conv2d", options, inputs, layout);
        std::vector<double> expected = plain.to_vector<double>(), addend(expected.size());
        if (adds) {
          inputs.push_back(normal_tensor(plain.shape(), dtype, 4).contiguous(addend_layout));
          addend = inputs.back().to_vector<double>();
        }
        const ChainAttributes chain = {{{}, 0, {&ops::registry().find("conv2d"), options}, ElementwiseProgram::parse(program)}};
        const std::vector<double> found = run("chain", chain, inputs, layout).to_vector<double>();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < found.size(); ++i) {
          double value = expected[i] + addend[i];
          if (dtype == DType::f32) value = static_cast<float>(value);
          value = value < low ? low : value > high ? high : value;
          wrong += found[i] == value || (std::isnan(found[i]) && std::isnan(value)) ? 0 : 1;
        }
        EXPECT_EQ(wrong, 0u) << "of " << found.size();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FollowedConvolution,
                         testing::Values(Case{{2, 16, 9, 11}, {32, 16, 1, 1}}, Case{{1, 600, 7, 7}, {80, 600, 1, 1}},
                                         Case{{1, 24, 20, 20}, {24, 24, 1, 1}}, Case{{1, 7, 9, 9}, {5, 7, 1, 1}},
                                         Case{{1, 3, 17, 17}, {32, 3, 3, 3}, {.stride = {2}, .padding = {1}}},
                                         Case{{1, 3, 17, 30}, {16, 3, 3, 3}, {.padding = {1}}},
                                         Case{{1, 32, 17, 19}, {48, 32, 3, 3}, {.padding = {1}}},
                                         Case{{1, 32, 6, 6}, {32, 16, 3, 3}, {.padding = {1}, .groups = 2}},
                                         Case{{1, 32, 9, 11}, {32, 4, 3, 3}, {.padding = {1}, .groups = 8}},
                                         Case{{1, 8, 9, 13}, {16, 1, 3, 3}, {.padding = {1}, .groups = 8}},
                                         Case{{1, 6, 9, 9}, {9, 2, 3, 3}, {.padding = {1}, .groups = 3}},
                                         Case{{2, 37, 9, 13}, {37, 1, 3, 3}, {.padding = {1}, .groups = 37}},
                                         Case{{1, 5, 9, 13}, {5, 1, 5, 5}, {.stride = {2}, .padding = {2}, .groups = 5}}));

}  // namespace
}  // namespace frit::followed_convolution_test
