#include "frit/ops/chain/instances/packed/packed_group_norm_scale_max_pool_clamp.h"

#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/pool/pool.h"
#include "ops/tensor_core_checks.h"

namespace frit::packed_group_norm_scale_max_pool_clamp_test {
namespace {

using OwnAttributes = ops::PackedGroupNormPoolAttributes;
using ChainAttributes = ops::GroupNormScaleMaxPoolClampAttributes;

constexpr const char* forward = "packed_group_norm_scale_max_pool_clamp";
constexpr const char* backward = "packed_group_norm_scale_max_pool_clamp_backward";

struct Call {
  Shape image;
  std::int64_t out_channels;
  ops::Im2colAttributes im2col;
  std::int64_t groups;
  Dims window;
  bool biased = true;

  OwnAttributes attributes() const { return {im2col, ChainAttributes{.num_groups = groups, .kernel_size = window, .min = -1, .max = 1.5}}; }
  Shape weight() const { return {out_channels, im2col.kept > 0 ? im2col.kept : ops::product(im2col.taps) * im2col.channels, 1, 1}; }
  /// image, weight, norm_weight, norm_bias, scale, bias: each of some sign, and of channel 1 the factors are 0.
  std::vector<Tensor> inputs(DType dtype, double mean = 0) const {
    std::vector<Tensor> tensors = {normal_tensor(image, DType::f32, 1, mean), normal_tensor(weight(), DType::f32, 2, 0, 0.3),
                                   normal_tensor({out_channels}, DType::f32, 3), normal_tensor({out_channels}, DType::f32, 4),
                                   normal_tensor({out_channels, 1, 1}, DType::f32, 5)};
    if (biased) tensors.push_back(normal_tensor({out_channels}, DType::f32, 6));
    tensors[2].span<float>()[1] = 0;
    tensors[4].span<float>()[2] = 0;
    for (Tensor& tensor : tensors) tensor = tensor.to(dtype);
    return tensors;
  }
};

// Rows of more positions than a tile has and of fewer; windows that fill the image, and rows and columns left over; one group of rows of
// the weight and several; taps with one vector and with two, with ones and with more columns than taps. The first and the last two have
// kernels in strict float32.
const Call calls[] = {{{2, 8, 21, 75}, 64, {{3, 3}, {2, 2}, {19, 73}, 8}, 16, {4, 4}},
                      {{3, 3, 17, 30}, 32, {{3, 3}, {1, 1}, {17, 30}, 4}, 4, {3, 2}, false},
                      {{2, 3, 40, 9}, 128, {{3, 3}, {2, 2}, {38, 7}, 4, true}, 1, {5, 4}, false},
                      {{1, 4, 9, 70}, 32, {{4, 3}, {1, 1}, {9, 70}, 4, false, {}, 40}, 32, {2, 2}},
                      {{2, 16, 12, 66}, 64, {{2, 2}, {1, 1}, {11, 65}, 16}, 8, {1, 2}},
                      {{2, 12, 8, 33}, 32, {{1, 5}, {0, 4}, {8, 29}, 12}, 2, {8, 4}},
                      {{3, 4, 17, 30}, 32, {{3, 3}, {1, 1}, {17, 30}, 4}, 4, {2, 2}},
                      {{1, 8, 37, 150}, 128, {{3, 3}, {2, 2}, {35, 148}, 8}, 8, {4, 4}, false}};

TEST(PackedGroupNormPool, TakesTheWholeOfAConvolutionAndWhatFollows) {
  const auto fused = [](bool tf32, std::int64_t channels, bool biased, const char* lowering) {
    return operations_lowered(tf32, lowering, [&](Graph& graph) {
      const Value x = graph.input("x", {2, 8, 14, 14});
      const Value weight = graph.input("weight", {channels, 8, 3, 3}), vector = graph.input("vector", {channels});
      const Value z = conv2d(x, weight, biased ? graph.input("bias", {channels}) : Value());
      const Value y = group_norm(z, 2, vector, graph.input("norm_bias", {channels})) * graph.input("scale", {channels, 1, 1});
      graph.output("y", clamp(max_pool2d(y, {.kernel_size = {4}}), 0, 1));
    });
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(fused(true, 64, true, "all taps as channels"), (Names{"im2col_weight", forward}));
  EXPECT_EQ(fused(true, 64, false, "all taps as channels"), (Names{"im2col_weight", forward}));
  EXPECT_EQ(fused(false, 64, true, "all taps as channels"), (Names{"im2col_weight", forward}));
  // Not where there are no kernels for it.
  const Names unfused = {"im2col", "im2col_weight", "conv2d", "group_norm_scale_max_pool_clamp"};
  EXPECT_EQ(fused(true, 48, true, "all taps as channels"), unfused);
  EXPECT_EQ(fused(true, 64, true, ""), (Names{"conv2d", "group_norm_scale_max_pool_clamp"}));
}

TEST(PackedGroupNormPool, RefusesWhatDoesNotFit) {
  const auto refusal = [](std::vector<TensorType> types) {
    return message_of([&] { ops::registry().find(forward).infer_types(types, calls[0].attributes()); });
  };
  std::vector<TensorType> types = types_of(calls[0].inputs(DType::f32));
  EXPECT_EQ(refusal(types), "no error");
  types[0].dtype = DType::f16;
  EXPECT_EQ(refusal(types), concat(forward, ": image must be f32, got f16"));
  types[0] = {DType::f32, {2, 8, 21}};
  EXPECT_EQ(refusal(types), concat(forward, ": expected an image of rank 4, got 2x8x21"));
  types[1] = {DType::f32, {64, 24, 1, 3}};
  types[0] = {DType::f32, {2, 8, 21, 75}};
  EXPECT_EQ(refusal(types), concat(forward, ": expected a weight (K, columns, 1, 1), got 64x24x1x3"));
}

class CudaPackedGroupNormPool : public OnTensorCores {
 protected:
  /// What the backward operator is given, of which the forward operator gives the latter half.
  static std::vector<Tensor> backward_inputs(const std::vector<Tensor>& inputs, const std::vector<Tensor>& results) {
    std::vector<Tensor> given = {normal_tensor(results[0].shape(), DType::f32, 9).to(inputs[1].dtype())};
    given.insert(given.end(), inputs.begin(), inputs.begin() + 5);
    given.insert(given.end(), results.begin() + 1, results.end());
    if (inputs.size() > 5) given.push_back(inputs[5]);
    return given;
  }
};

TEST_F(CudaPackedGroupNormPool, AgreesWithTheDefinition) {
  for (const Call& call : calls) expect_agreement(forward, backward, call, backward_inputs);
}

TEST_F(CudaPackedGroupNormPool, ReadsFloat32WithHalvesInEitherLayout) { expect_same_with_halves(ops::registry().find(forward), calls[0]); }

// The sums are around an element of the tile.
TEST_F(CudaPackedGroupNormPool, KeepsTheDigitsOfDataFarFromZero) {
  const Call& call = calls[0];
  std::vector<Tensor> inputs = call.inputs(DType::f32);
  inputs[5] = normal_tensor({call.out_channels}, DType::f32, 6, 1e4, 1e-3);
  const std::vector<Tensor> expected = ops::run(forward, exactly(inputs), call.attributes());
  for (const bool tf32 : {true, false}) {
    set_numerics({.tf32 = tf32});
    expect_near(run_on_gpu(ops::registry().find(forward), inputs, call.attributes()), expected, 4e-3, tf32 ? "far" : "far, strict");
    if (tf32) {
      EXPECT_EQ(ran, "taps on tensor cores");
    }
  }
}

TEST_F(CudaPackedGroupNormPool, OfEqualElementsTheFirstWins) {
  const std::pair<Call, bool> cases[] = {{calls[0], true}, {calls[1], true}, {calls[0], false}};
  for (const auto& [call, tf32] : cases) {
    set_numerics({.tf32 = tf32});
    std::vector<Tensor> inputs = call.inputs(DType::f32);
    inputs[0] = Tensor::full(call.image, 0.5, DType::f32);
    const std::vector<Tensor> found = run_on_gpu(ops::registry().find(forward), inputs, call.attributes());
    const std::vector<double> argmax = found[1].to_vector<double>();
    const std::int64_t windows = found[1].dim(2) * found[1].dim(3), left = found[1].dim(3);
    for (std::int64_t i = 0; i < found[1].elements(); ++i) {
      const bool inner =
          i % windows >= left && i % left > 0 && i % left < left - 1 && i % windows < windows - left;  // away from the padding
      if (inner) {
        EXPECT_EQ(argmax[static_cast<std::size_t>(i)], 0) << call.image << ' ' << i;
      }
    }
    // So does the first of all where a channel's factor is 0.
    const std::vector<Tensor> mixed = run_on_gpu(ops::registry().find(forward), call.inputs(DType::f32), call.attributes());
    const std::vector<double> other = mixed[1].to_vector<double>();
    for (std::int64_t i = 0; i < windows; ++i) {
      EXPECT_EQ(other[static_cast<std::size_t>(windows + i)], 0);
      EXPECT_EQ(other[static_cast<std::size_t>(2 * windows + i)], 0);
    }
  }
}

TEST_F(CudaPackedGroupNormPool, NanAndInfiniteValuesGoWhereTheCpuHasThem) {
  const Call& call = calls[0];
  for (const double value : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    for (const Arithmetic& arithmetic : arithmetics) {
      multiply_in(arithmetic);
      std::vector<Tensor> inputs = call.inputs(arithmetic.dtype);
      inputs[0] = with_values(inputs[0], {{77, value}});
      const std::vector<Tensor> found = run_on_gpu(ops::registry().find(forward), inputs, call.attributes()),
                                expected = ops::run(forward, exactly(inputs), call.attributes());
      for (const std::size_t result : {0u, 2u, 3u}) {
        const std::vector<double> left = found[result].to_vector<double>(), right = expected[result].to_vector<double>();
        for (std::size_t i = 0; i < right.size(); ++i) ASSERT_EQ(std::isnan(left[i]), std::isnan(right[i])) << result << arithmetic << i;
      }
    }
  }
}

}  // namespace
}  // namespace frit::packed_group_norm_scale_max_pool_clamp_test
