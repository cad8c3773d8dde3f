#include "frit/ops/chain/instances/packed/convolution_scale_instance_norm_clamp_scale_max.h"

#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/tensor_core_checks.h"

namespace frit::convolution_scale_instance_norm_clamp_scale_max_test {
namespace {

using OwnAttributes = ops::ConvolutionInstanceNormMaxAttributes;
using ChainAttributes = ops::ScaleInstanceNormClampScaleMaxAttributes;

constexpr const char* forward = "convolution_scale_instance_norm_clamp_scale_max";
constexpr const char* backward = "convolution_scale_instance_norm_clamp_scale_max_backward";
constexpr std::int64_t out_channels = ops::ConvolutionInstanceNormMaxKernels::out_channels;

struct Call {
  Shape image;
  Dims kernel, padding;
  bool biased = true;
  std::optional<double> min = -1, max = 1.5;

  OwnAttributes attributes() const { return {padding, ChainAttributes{.min = min, .max = max}}; }
  Shape per_channel() const {
    Shape shape = Dims::filled(image.rank() - 1, 1);
    shape[0] = out_channels;
    return shape;
  }
  Shape weight() const {
    Shape shape{out_channels, image[1]};
    for (const std::int64_t size : kernel) shape.push_back(size);
    return shape;
  }
  /// image, weight, scale, post_scale, bias: each of some sign, but that the scale of channel 1 and the second of channel 2 are 0.
  std::vector<Tensor> inputs(DType dtype, double bias_mean = 0) const {
    std::vector<Tensor> tensors = {normal_tensor(image, DType::f32, 1), normal_tensor(weight(), DType::f32, 2, 0, 0.3),
                                   normal_tensor(per_channel(), DType::f32, 3), normal_tensor(per_channel(), DType::f32, 4)};
    if (biased) tensors.push_back(normal_tensor({out_channels}, DType::f32, 6, bias_mean));
    tensors[2].span<float>()[1] = 0;
    tensors[3].span<float>()[2] = 0;
    for (Tensor& tensor : tensors) tensor = tensor.to(dtype);
    return tensors;
  }
};

// Boxes with positions for all blocks of a cluster and without; samples for one block, for several, and more of them than run at a time;
// rows of more positions than a strip has and of fewer; two image axes and three, one channel to four; a constant channel; clamps open at
// either end; and kernels that only the backward operator has a kernel for.
const Call calls[] = {{{3, 3, 9, 12, 20}, {3, 3, 3}, {0, 0, 0}},
                      {{300, 4, 4, 5, 6}, {3, 3, 3}, {1, 1, 1}, false},
                      {{2, 1, 3, 33, 70}, {3, 3, 3}, {1, 0, 2}, true, std::nullopt},
                      {{5, 2, 27, 34, 34}, {3, 3, 3}, {0, 1, 1}},
                      {{2, 1, 21, 75}, {3, 3}, {1, 1}, true, 0.25, -0.25},
                      {{2, 3, 140, 9}, {3, 3}, {0, 0}, false, -1, std::nullopt},
                      {{1, 4, 9, 230}, {4, 3}, {2, 1}},
                      {{9, 4, 1, 1, 40}, {1, 1, 28}, {0, 0, 14}},
                      {{2, 3, 15, 9, 13}, {2, 3, 3}, {0, 2, 1}}};

TEST(ConvolutionInstanceNormMax, TakesTheWholeOfAConvolutionAndWhatFollows) {
  const auto fused = [](bool tf32, std::int64_t channels, bool biased, const char* lowering) {
    return operations_lowered(tf32, lowering, [&](Graph& graph) {
      const Value x = graph.input("x", {2, 3, 8, 8, 8}), weight = graph.input("weight", {channels, 3, 3, 3, 3});
      const Value z = conv3d(x, weight, biased ? graph.input("bias", {channels}) : Value());
      const Value multiplier = graph.input("multiplier", {channels, 1, 1, 1});
      graph.output("y", max(clamp(instance_norm(z * multiplier), -1, 1) * multiplier, Dims{1}));
    });
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(fused(true, 16, true, "all taps as channels"), (Names{forward}));
  EXPECT_EQ(fused(true, 16, false, "all taps as channels"), (Names{forward}));
  EXPECT_EQ(fused(false, 16, true, "all taps as channels"), (Names{forward}));
  // Not where there are no kernels for it.
  const Names unfused = {"im2col", "im2col_weight", "conv3d", "scale_instance_norm_clamp_scale_max"};
  EXPECT_EQ(fused(true, 17, true, "all taps as channels"), unfused);
  EXPECT_EQ(fused(true, 16, true, ""), (Names{"conv3d", "scale_instance_norm_clamp_scale_max"}));
}

TEST(ConvolutionInstanceNormMax, RefusesWhatDoesNotFit) {
  const auto refusal = [](std::vector<TensorType> types) {
    return message_of([&] { ops::registry().find(forward).infer_types(types, calls[0].attributes()); });
  };
  std::vector<TensorType> types = types_of(calls[0].inputs(DType::f32));
  EXPECT_EQ(refusal(types), "no error");
  types[0].dtype = DType::f16;
  EXPECT_EQ(refusal(types), concat(forward, ": image must be f32, got f16"));
  types[0] = {DType::f32, {2, 3, 21}};
  EXPECT_EQ(refusal(types), concat(forward, ": expected an image of rank 4 or 5, got 2x3x21"));
  types[0] = {DType::f32, {3, 3, 12, 20}};
  EXPECT_EQ(refusal(types), concat(forward, ": expected weight of rank 4, got 16x3x3x3x3"));
  types[0] = {DType::f32, {3, 3, 2, 12, 20}};
  EXPECT_NE(refusal(types), "no error");
}

// In inference nobody wants what lies between the calls in turn, although it is a result.
TEST(ConvolutionInstanceNormMax, GivesTheOutputAlone) {
  const ops::Operator& op = ops::registry().find(forward);
  const std::vector<Tensor> inputs = calls[0].inputs(DType::f32), all = ops::run(op, inputs, calls[0].attributes());
  const std::vector<TensorType> types = op.infer_types(types_of(inputs), calls[0].attributes());
  const std::size_t bytes = ops::scratch_bytes(op, types_of(inputs), types, calls[0].attributes(), Device::cpu());
  const Tensor scratch = Tensor::full({static_cast<std::int64_t>(bytes)}, 255, DType::u8);
  std::vector<Tensor> outputs(types.size());
  outputs[0] = Tensor::full(types[0].shape, NAN, types[0].dtype);
  ops::invoke(op, calls[0].attributes(), inputs, outputs, {static_cast<std::byte*>(scratch.raw()), bytes});
  EXPECT_TRUE(same_bits(outputs[0], all[0]));
}

class CudaConvolutionInstanceNormMax : public OnTensorCores {
 protected:
  /// What the backward operator is given, of which the forward operator gives the latter half.
  static std::vector<Tensor> backward_inputs(const std::vector<Tensor>& inputs, const std::vector<Tensor>& results) {
    std::vector<Tensor> given = {normal_tensor(results[0].shape(), DType::f32, 9).to(inputs[1].dtype()), inputs[0], results[5], inputs[2],
                                 inputs[3]};
    given.insert(given.end(), results.begin() + 1, results.begin() + 5);
    return given;
  }
};

TEST_F(CudaConvolutionInstanceNormMax, AgreesWithTheDefinition) {
  for (const Call& call : calls) expect_agreement(forward, backward, call, backward_inputs);
}

TEST_F(CudaConvolutionInstanceNormMax, ReadsFloat32WithHalvesInEitherLayout) {
  expect_same_with_halves(ops::registry().find(forward), calls[0]);
}

// The sums are around an element of the warp's.
TEST_F(CudaConvolutionInstanceNormMax, KeepsTheDigitsOfDataFarFromZero) {
  const Call& call = calls[0];
  const std::vector<Tensor> inputs = call.inputs(DType::f32, 1e4);
  const std::vector<Tensor> expected = ops::run(forward, exactly(inputs), call.attributes());
  for (const bool tf32 : {true, false}) {
    set_numerics({.tf32 = tf32});
    const std::vector<Tensor> found = run_on_gpu(ops::registry().find(forward), inputs, call.attributes());
    expect_near({found[0]}, {expected[0]}, 4e-3, tf32 ? "far" : "far, strict");
  }
}

// Where a sample is too large for a cluster's shared memory, the calls run in turn.
TEST_F(CudaConvolutionInstanceNormMax, TakesSamplesThatNoClusterHolds) {
  const Call large{{1, 4, 1000, 640}, {3, 3}, {0, 0}};
  const std::vector<Tensor> inputs = large.inputs(DType::f32);
  const std::vector<Tensor> expected = ops::run(forward, exactly(inputs), large.attributes());
  const std::vector<Tensor> found = run_on_gpu(ops::registry().find(forward), inputs, large.attributes());
  expect_near({found[0]}, {expected[0]}, 4e-3, "large");
  EXPECT_EQ(ran, "in turn, with no kernel for the whole: conv2d, scale_instance_norm_clamp_scale_max");
}

TEST_F(CudaConvolutionInstanceNormMax, OfEqualValuesTheFirstWins) {
  const Call& call = calls[0];
  std::vector<Tensor> inputs = call.inputs(DType::f32);
  inputs[3] = Tensor::full(inputs[3].shape(), 0, DType::f32);
  inputs[3].span<float>()[3] = -0.0f;
  for (const bool tf32 : {true, false}) {
    set_numerics({.tf32 = tf32});
    for (const double index : run_on_gpu(ops::registry().find(forward), inputs, call.attributes())[1].to_vector<double>()) {
      ASSERT_EQ(index, 0);
    }
  }
}

TEST_F(CudaConvolutionInstanceNormMax, NanAndInfiniteValuesGoWhereTheCpuHasThem) {
  const Call& call = calls[0];
  for (const double value : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    for (const Arithmetic& arithmetic : arithmetics) {
      multiply_in(arithmetic);
      for (const std::size_t changed : {0u, 2u, 3u}) {  // the image, the scale of one channel, what it is multiplied with last
        std::vector<Tensor> inputs = call.inputs(arithmetic.dtype);
        inputs[changed] = with_values(inputs[changed], {{5, value}});
        const std::vector<Tensor> found = run_on_gpu(ops::registry().find(forward), inputs, call.attributes()),
                                  expected = ops::run(forward, exactly(inputs), call.attributes());
        for (const std::size_t result : {0u, 3u}) {  // a mean may be NaN for infinite
          const std::vector<double> left = found[result].to_vector<double>(), right = expected[result].to_vector<double>();
          for (std::size_t i = 0; i < right.size(); ++i) ASSERT_EQ(std::isnan(left[i]), std::isnan(right[i])) << result << arithmetic << i;
        }
        const std::vector<double> output = expected[0].to_vector<double>(), argmax = found[1].to_vector<double>(),
                                  right = expected[1].to_vector<double>();
        for (std::size_t i = 0; i < right.size(); ++i) {
          if (std::isnan(output[i])) {
            ASSERT_EQ(argmax[i], right[i]) << "the first NaN wins";
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace frit::convolution_scale_instance_norm_clamp_scale_max_test
