// Convolutions on tensor cores by frit's own kernels, against the CPU's in float64.

#include "frit/ops/convolution/geometry.h"
#include "ops/tensor_core_checks.h"

namespace frit {
namespace {

using CudaTapConvolution = OnTensorCores;

TEST_F(CudaTapConvolution, AgreesWithTheDefinition) {
  struct Call {
    std::vector<Shape> shapes;
    Dims padding;
    bool float32, halves;  ///< computed by this kernel on every GPU: Hopper sweeps over some in float32
  };
  const Call calls[] = {
      {{{2, 4, 5, 6, 70}, {16, 4, 3, 3, 3}, {16}}, {1}, true, true}, {{{3, 4, 7, 40, 33}, {32, 4, 3, 3, 3}}, {0}, false, true},
      {{{2, 8, 20, 133}, {32, 8, 3, 3}, {32}}, {0}, false, true},    {{{2, 24, 5, 130}, {64, 24, 1, 3}, {64}}, {0}, false, true},
      {{{300, 4, 9, 9}, {32, 4, 3, 3}}, {2, 0}, true, true},         {{{1, 8, 300, 17}, {128, 8, 3, 3}}, {1}, false, true},
      {{{2, 24, 3, 16}, {96, 24, 1, 3}, {96}}, {0, 1}, false, false}};
  for (const Call& call : calls) {
    const int rank = call.shapes[0].rank() - 2;
    for (const auto& [dtype, schedule] :
         expect_accurate(rank == 2 ? "conv2d" : "conv3d", call.shapes, ops::canonical({.padding = call.padding}, rank))) {
      if (is_half(dtype) ? call.halves : call.float32) {
        EXPECT_EQ(schedule, "taps on tensor cores") << call.shapes[0] << ' ' << dtype;
      }
    }
  }
}

TEST_F(CudaTapConvolution, TakesImagesInEitherLayout) {
  const Operator& op = ops::registry().find("conv3d");
  const ops::Attributes attributes = ops::canonical({.padding = {1}}, 3);
  for (const DType dtype : {DType::f32, DType::f16}) {
    const std::vector<Tensor> inputs = {normal_tensor({2, 3, 5, 9, 40}, DType::f32, 1).to(dtype),
                                        normal_tensor({16, 3, 3, 3, 3}, DType::f32, 2).to(dtype)};
    const Tensor output = Tensor::full({2, 16, 5, 9, 40}, NAN, dtype, gpu).contiguous(Layout::channels_last);
    ops::invoke(op, attributes, std::vector<Tensor>{inputs[0].to(gpu), inputs[1].to(gpu)}, std::vector<Tensor>{output}, {});
    EXPECT_TRUE(same_bits(output.to(Device::cpu()), run_on_gpu(op, inputs, attributes)[0])) << dtype;
  }
}

// By frit's kernels and by cuDNN's, which convert it first.
TEST_F(CudaTapConvolution, ReadsFloat32WithHalves) {
  for (const Dims& stride : {Dims{1}, Dims{2}}) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const Operator& op = ops::registry().find("conv3d");
      const ops::Attributes attributes = ops::canonical({.stride = stride, .padding = {1}}, 3);
      std::vector<Tensor> inputs = {normal_tensor({2, 3, 5, 9, 40}, DType::f32, 1),
                                    normal_tensor({16, 3, 3, 3, 3}, DType::f32, 2).to(dtype)};
      const Tensor found = run_on_gpu(op, inputs, attributes)[0];
      EXPECT_EQ(found.dtype(), dtype);
      inputs[0] = inputs[0].to(dtype);
      EXPECT_TRUE(same_bits(found, run_on_gpu(op, inputs, attributes)[0])) << stride << ' ' << dtype;
    }
  }
}

TEST_F(CudaTapConvolution, NanStaysWithThePixelsThatReadIt) {
  const Operator& op = ops::registry().find("conv3d");
  const ops::Attributes attributes = ops::canonical({}, 3);
  for (const DType dtype : {DType::f32, DType::f16}) {
    std::vector<Tensor> inputs = {normal_tensor({1, 4, 4, 5, 40}, DType::f32, 1), normal_tensor({16, 4, 3, 3, 3}, DType::f32, 2)};
    const std::span<float> pixels = inputs[0].span<float>();
    pixels[2 * 5 * 40 + 2 * 40 + 20] = pixels[800 + 3 * 40 + 39] = pixels[0] = NAN;
    for (Tensor& input : inputs) input = input.to(dtype);
    const std::vector<double> expected = ops::run(op, inputs, attributes)[0].to_vector<double>(),
                              found = run_on_gpu(op, inputs, attributes)[0].to_vector<double>();
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(std::isnan(found[i]), std::isnan(expected[i])) << dtype << ' ' << i;
  }
}

}  // namespace
}  // namespace frit
