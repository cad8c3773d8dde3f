// Convolutions patch by patch, against the definition in float64.

#include "frit/ops/convolution/tiles/patch_convolution.h"

#include "frit/ops/elementwise/elementwise.h"
#include "ops/convolution/cuda/convolution_calls.h"

namespace frit::patch_convolution_test {
namespace {

using cudnn::ConvolutionKind;

/// Two and three axes, 32, 64 and 128 columns, channels that fill no step or no block, patches that fill no image, many samples, steps of
/// 4 and 2 pixels; groups, of which one or two fill a vector, with more channels than a block has, of other sizes than the result's, and
/// with a stride, where gradients have zeros between them.
const Sizes calls[] = {{{2, 64, 17, 21}, 128, {0}, {3}},
                       {{3, 40, 9, 40}, 48},
                       {{2, 128, 14, 14}, 192},
                       {{40, 32, 7, 7}, 256},
                       {{2, 24, 70, 65}, 32},
                       {{1, 64, 30, 7}, 64, {2}, {5}},
                       {{2, 16, 9, 31}, 40, {3}, {7}},
                       {{2, 32, 8, 9}, 16, {0}, {2}},
                       {{2, 32, 12, 13}, 24, {1, 2}, {3, 4}},
                       {{3, 16, 20, 33}, 64, {0}, {1}},
                       {{2, 32, 5, 9, 6}, 64},
                       {{1, 16, 13, 14, 33}, 32},
                       {{1, 48, 6, 11, 10}, 128, {0}, {3}},
                       {{1, 16, 4, 6, 5}, 48, {0, 1, 1}, {1, 3, 3}},
                       {{1, 16, 9, 6, 5}, 24, {1, 0, 2}, {3, 2, 4}},
                       {{2, 64, 17, 22}, 128, {1}, {3}, {2}},
                       {{1, 32, 9, 12, 11}, 64, {0, 1, 1}, {1, 3, 3}, {1, 2, 2}},
                       {{2, 32, 12, 15}, 40, {0}, {1}, {2}},
                       {{3, 4, 37, 45}, 64, {3}, {7}, {2}},
                       {{2, 8, 37, 45}, 72, {3}, {7}, {2}},
                       {{2, 8, 19, 40}, 32, {0}, {3}},
                       {{2, 16, 21, 18}, 64, {2, 1}, {5, 4}},
                       {{1, 4, 9, 12, 13}, 32},
                       {{2, 8, 7, 9, 11}, 64, {1}, {3}, {2}},
                       {{3, 48, 14, 15}, 48, {1}, {3}, {1}, 6},
                       {{2, 144, 9, 14}, 144, {1}, {3}, {1}, 3},
                       {{2, 32, 17, 20}, 32, {1}, {3}, {1}, 8},
                       {{2, 24, 11, 12}, 24, {1}, {3}, {1}, 12},
                       {{2, 320, 7, 7}, 320, {1}, {3}, {1}, 2},
                       {{2, 32, 12, 13}, 96, {2, 1}, {5, 3}, {1}, 2},
                       {{3, 64, 13, 18}, 64, {1}, {3}, {2}, 4},
                       {{2, 64, 12, 18}, 32, {0, 1}, {3}, {2, 1}, 2},
                       {{2, 48, 10, 9}, 96, {0}, {1}, {1}, 3},
                       {{2, 48, 10, 9}, 48, {0}, {1}, {2}, 2},
                       {{1, 32, 7, 9, 10}, 64, {1}, {3}, {2, 1, 2}, 4}};

bool has_kernel(const Sizes& sizes, ConvolutionKind kind) {
  return kind == ConvolutionKind::forward || sizes.stride == Dims{1} || sizes.groups > 1;
}
bool fills_vectors(const Sizes& sizes, DType dtype) { return sizes.input[1] * static_cast<std::int64_t>(size_of(dtype)) % 16 == 0; }

class CudaPatchConvolution : public OnHopper {
 protected:
  /// The result, twice the same; the program is part of it.
  static Tensor found(const ops::ConvolutionCall& call) {
    const ops::OwnKernel kernel = ops::patch_kernel(call).value();
    EXPECT_TRUE(kernel.finishes);
    const Tensor scratch = Tensor::empty({static_cast<std::int64_t>(kernel.scratch_bytes)}, DType::u8, gpu);
    const std::span<std::byte> memory(static_cast<std::byte*>(scratch.raw()), static_cast<std::size_t>(scratch.elements()));
    const auto once = [&] {
      call.operands.result(call.kind).fill(NAN);
      kernel.run(memory, cuda::compute_stream(gpu.index));
      return call.operands.result(call.kind).to(Device::cpu()).contiguous();
    };
    const Tensor result = once();
    EXPECT_TRUE(same_bits(result, once()));
    return result;
  }
};

TEST_F(CudaPatchConvolution, AgreesWithTheDefinition) {
  for (const Sizes& sizes : calls) {
    for (const ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::data_gradient}) {
      if (!has_kernel(sizes, kind)) continue;
      for (const Arithmetic& arithmetic : arithmetics) {
        if (!arithmetic.tf32 || !fills_vectors(sizes, arithmetic.dtype)) continue;
        SCOPED_TRACE(concat(sizes.input, ' ', sizes.outputs, ' ', sizes.groups, ' ', arithmetic.dtype,
                            kind == ConvolutionKind::forward ? "" : " gradient"));
        const bool biased = sizes.outputs % 64 == 0;
        ops::ConvolutionCall call = call_of(sizes, kind, arithmetic.dtype, gpu, true, biased ? Layout::contiguous : Layout::channels_last);
        if (!biased) call.operands.bias = {};
        const Tensor right = by_definition(call);
        EXPECT_TRUE(near(found(call).to(DType::f64), right, arithmetic.tolerance, largest_finite(right)));
      }
    }
  }
}

/// What lies next to the taps in memory may be no number.
TEST_F(CudaPatchConvolution, MultipliesNothingBeyondItsTaps) {
  for (const Sizes& sizes : {Sizes{{1, 4, 20, 33}, 32, {3}, {7}, {2}}, Sizes{{1, 8, 9, 30}, 64, {1}, {3}}}) {
    ops::ConvolutionCall call = call_of(sizes, ConvolutionKind::forward, DType::f32, gpu, true);
    call.operands.input.slice(3, 16, 17).fill(INFINITY);
    const Tensor result = found(call), right = by_definition(call);
    const std::vector<double> values = result.to_vector<double>(), expected = right.to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(std::isfinite(values[i]), std::isfinite(expected[i])) << i;
  }
}

/// Groups do not meet each other's numbers where they have vectors of their own.
TEST_F(CudaPatchConvolution, KeepsGroupsApart) {
  ops::ConvolutionCall call = call_of({{2, 32, 12, 13}, 32, {1}, {3}, {1}, 4}, ConvolutionKind::forward, DType::f32, gpu, true);
  call.operands.input.slice(1, 8, 9).fill(NAN);
  const std::vector<double> values = found(call).to_vector<double>(), expected = by_definition(call).to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(std::isnan(values[i]), std::isnan(expected[i])) << i;
}

/// With operands of every kind.
TEST_F(CudaPatchConvolution, TakesAProgram) {
  const auto program = ops::ElementwiseProgram::parse(
      "y0 = add(x0, x1); y1 = hard_swish(y0); y2 = multiply(y1, x2); y3 = add(y2, x3); y4 = multiply(y3, y0); return y4");
  for (const Sizes& sizes : {Sizes{{3, 64, 17, 40}, 48}, Sizes{{2, 32, 9, 10, 20}, 128}, Sizes{{3, 48, 11, 12}, 96, {1}, {3}, {1}, 6}}) {
    for (const Arithmetic& arithmetic : arithmetics) {
      if (!arithmetic.tf32) continue;
      ops::ConvolutionCall call = call_of(sizes, ConvolutionKind::forward, arithmetic.dtype, gpu, true);
      const Shape image = call.operands.output.shape();
      Shape channels = Shape::filled(image.rank() - 1, 1), samples = Shape::filled(image.rank(), 1);
      channels[0] = image[1], samples[0] = image[0];
      std::vector<Tensor> operands = {by_definition(call)};
      for (const Shape& shape : {channels, samples, image}) {
        const Tensor operand = normal_tensor(shape, DType::f32, operands.size()).to(arithmetic.dtype);
        operands.push_back(operand.to(DType::f64));
        call.operands.others.push_back(operand.to(gpu).contiguous(shape == image ? Layout::channels_last : Layout::contiguous));
      }
      call.program = &program;
      const Tensor right = ops::run(ops::registry().find("elementwise"), operands, ops::ElementwiseAttributes{program})[0];
      EXPECT_TRUE(near(found(call).to(DType::f64), right, arithmetic.tolerance, largest_finite(right))) << sizes.input << ' ' << arithmetic;
    }
  }
}

TEST(PatchConvolution, HasAKernel) {
  for (const Sizes& sizes : calls) {
    for (const DType dtype : {DType::f32, DType::f16}) {
      EXPECT_EQ(fills_vectors(sizes, dtype),
                ops::patch_centre(call_of(sizes, ConvolutionKind::forward, dtype, Device::cpu(), false), 132).has_value())
          << sizes.input;
      EXPECT_EQ(has_kernel(sizes, ConvolutionKind::data_gradient),
                ops::patch_centre(call_of(sizes, ConvolutionKind::data_gradient, dtype, Device::cpu(), false), 132).has_value())
          << sizes.input;
    }
  }
}

/// On an H200, by what was measured there.
TEST(PatchConvolution, IsTakenWhereItIsFaster) {
  const auto taken = [&](const Sizes& sizes, ConvolutionKind kind = ConvolutionKind::forward, DType dtype = DType::f32) {
    return ops::is_patch_kernel_faster(call_of(sizes, kind, dtype, Device::cpu(), false), 132);
  };
  const Sizes large = {{128, 64, 128, 128}, 128, {0}};
  EXPECT_FALSE(taken(large)) << "cuDNN's is faster where nothing follows, or a pass does anyway";
  EXPECT_FALSE(taken({{16, 128, 514, 514}, 64, {0}}, ConvolutionKind::data_gradient));
  const auto program = ops::ElementwiseProgram::parse("y0 = mish(x0); return y0");
  ops::ConvolutionCall followed = call_of(large, ConvolutionKind::forward, DType::f32, Device::cpu(), false);
  followed.program = &program;
  EXPECT_TRUE(ops::is_patch_kernel_faster(followed, 132)) << "saves a pass";
  EXPECT_TRUE(taken({{64, 256, 14, 14}, 256}, ConvolutionKind::data_gradient));
  EXPECT_FALSE(taken({{64, 256, 14, 14}, 256})) << "cuDNN's forward convolutions are faster than its gradients";
  EXPECT_TRUE(taken({{64, 64, 56, 56}, 64}));
  EXPECT_FALSE(taken({{2, 256, 12, 12, 12}, 256})) << "too few patches";
  EXPECT_FALSE(taken({{2, 128, 24, 24, 24}, 128}, ConvolutionKind::data_gradient, DType::f16));
  EXPECT_FALSE(taken({{64, 512, 7, 7}, 512})) << "patches of which images fill few";
  EXPECT_FALSE(taken({{64, 256, 56, 56}, 64, {0}, {1}})) << "a product of matrices";
  EXPECT_FALSE(taken({{128, 64, 128, 128}, 128}, ConvolutionKind::forward, DType::f16));
  for (const ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::data_gradient}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) EXPECT_TRUE(taken({{2, 128, 48, 48, 48}, 64}, kind, dtype)) << dtype;
  }
  EXPECT_TRUE(taken({{64, 4, 224, 224}, 64, {3}, {7}, {2}})) << "the first layer of a network";
  EXPECT_TRUE(taken({{128, 8, 128, 128}, 64, {0}}, ConvolutionKind::forward, DType::f16));
  for (const ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::data_gradient}) {
    EXPECT_TRUE(taken({{64, 432, 14, 14}, 432, {1}, {3}, {1}, 9}, kind, DType::f16)) << "groups that cuDNN has no kernel for";
    EXPECT_TRUE(taken({{32, 320, 14, 14}, 320, {1}, {3}, {1}, 20}, kind)) << "groups that it passes over slowly";
    EXPECT_FALSE(taken({{32, 128, 56, 56}, 128, {1}, {3}, {1}, 32}, kind)) << "groups that fill few columns";
    EXPECT_EQ(kind == ConvolutionKind::data_gradient, taken({{32, 64, 112, 112}, 64, {1}, {3}, {2}, 4}, kind)) << "with a stride";
  }
  EXPECT_FALSE(taken({{64, 62, 56, 56}, 64})) << "no whole vectors";
  EXPECT_FALSE(taken({{64, 64, 56, 56}, 64}, ConvolutionKind::forward, DType::f64));
  set_numerics({.tf32 = false});
  EXPECT_FALSE(taken({{64, 64, 56, 56}, 64}));
  set_numerics({});
}

}  // namespace
}  // namespace frit::patch_convolution_test
