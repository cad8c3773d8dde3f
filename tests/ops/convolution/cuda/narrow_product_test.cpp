// Convolutions of size 1 with few channels on one side, against the definition in float64.

#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/own_kernels.h"
#include "ops/tensor_core_checks.h"

namespace frit::narrow_product_test {
namespace {

using CudaNarrowProduct = OnTensorCores;
using cudnn::ConvolutionKind;

ops::ConvolutionCall call_of(const Shape& input, std::int64_t outputs, ConvolutionKind kind, DType dtype, bool bias) {
  const Device gpu{DeviceKind::cuda, 0};
  const Shape weight = input.rank() == 4 ? Shape{outputs, input[1], 1, 1} : Shape{outputs, input[1], 1, 1, 1};
  Shape output = input;
  output[1] = outputs;
  const auto random = [&](const Shape& shape, std::uint64_t seed) {
    return normal_tensor(shape, DType::f32, seed)
        .to(dtype)
        .to(gpu)
        .contiguous(shape.rank() > 3 ? Layout::channels_last : Layout::contiguous);
  };
  ops::ConvolutionCall call{
      kind, ops::convolution_geometry(input, weight, {}), {random(input, 1), random(weight, 2), random(output, 3), {}}};
  if (bias) call.operands.bias = random({call.operands.result(kind).dim(1)}, 4);
  return call;
}

TEST_F(CudaNarrowProduct, AgreesWithTheDefinition) {
  const std::pair<Shape, std::int64_t> calls[] = {{{2, 32, 5, 9, 11}, 3}, {{3, 3, 17, 7}, 32}, {{1, 64, 3, 3, 1}, 8},
                                                  {{2, 24, 40, 30}, 1},   {{1, 8, 70, 90}, 8}, {{1, 7, 1, 1, 1}, 64},
                                                  {{300, 40, 2, 3}, 5}};
  for (const auto& [input, outputs] : calls) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::data_gradient, ConvolutionKind::weight_gradient}) {
        SCOPED_TRACE(concat(input, ' ', outputs, ' ', dtype, ' ', static_cast<int>(kind)));
        const bool of_weight = kind == ConvolutionKind::weight_gradient;
        const ops::ConvolutionCall call = call_of(input, outputs, kind, dtype, !of_weight && outputs % 2 == 1);
        const std::optional<ops::OwnKernel> kernel = of_weight ? ops::narrow_weight_gradient(call) : ops::narrow_product(call);
        ASSERT_TRUE(kernel);
        const Tensor scratch = Tensor::empty({static_cast<std::int64_t>(kernel->scratch_bytes)}, DType::u8, gpu);
        ops::ConvolutionCall exact = call;
        for (Tensor* const t : {&exact.operands.input, &exact.operands.weight, &exact.operands.output}) *t = t->to(DType::f64);
        if (call.operands.bias.defined()) exact.operands.bias = call.operands.bias.to(DType::f64);
        CUstream_st* const stream = cuda::compute_stream(gpu.index);
        ops::direct_convolution(kind, exact.geometry, exact.operands, stream);
        const Tensor right = exact.operands.result(kind).to(Device::cpu());
        const auto found = [&] {
          call.operands.result(kind).fill(NAN);
          kernel->run({static_cast<std::byte*>(scratch.raw()), kernel->scratch_bytes}, stream);
          return call.operands.result(kind).to(Device::cpu());
        };
        const Tensor result = found();
        const double tolerance = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 1e-3 : 1e-2;
        EXPECT_TRUE(near(result.to(DType::f64), right, tolerance, largest_finite(right)));
        EXPECT_TRUE(same_bits(result, found()));
      }
    }
  }
}

TEST_F(CudaNarrowProduct, IsOfFewChannelsOnOneSide) {
  const auto taken = [](const Shape& input, std::int64_t outputs, DType dtype) {
    return ops::narrow_product(call_of(input, outputs, ConvolutionKind::forward, dtype, false)).has_value();
  };
  EXPECT_TRUE(taken({1, 36, 2, 2}, 3, DType::f32));
  EXPECT_FALSE(taken({1, 36, 2, 2}, 3, DType::f16)) << "no whole vectors";
  EXPECT_FALSE(taken({1, 32, 2, 2}, 16, DType::f32));
  EXPECT_FALSE(taken({1, 128, 2, 2}, 3, DType::f32));
  EXPECT_FALSE(taken({1, 32, 2, 2}, 3, DType::f64));
  const auto weight_taken = [](std::int64_t inputs, std::int64_t outputs) {
    return ops::narrow_weight_gradient(call_of({1, inputs, 2, 2}, outputs, ConvolutionKind::weight_gradient, DType::f16, false))
        .has_value();
  };
  EXPECT_TRUE(weight_taken(256, 3) && weight_taken(8, 128));
  EXPECT_FALSE(weight_taken(36, 3)) << "no whole vectors";
  EXPECT_FALSE(weight_taken(512, 3) || weight_taken(32, 9));
}

}  // namespace
}  // namespace frit::narrow_product_test
