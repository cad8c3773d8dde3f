// Convolutions of size 1 over few pixels, against the definition in float64.

#include "frit/ops/elementwise/elementwise.h"
#include "ops/convolution/cuda/convolution_calls.h"

namespace frit::few_pixels_test {
namespace {

using cudnn::ConvolutionKind;

Sizes of(const Shape& input, std::int64_t outputs) { return {input, outputs, {0}, {1}}; }

/// With vectors of every length, more and fewer of them than a warp has lanes; pixels that are no multiple of a warp's.
const Sizes calls[] = {of({32, 1152, 1, 1}, 48), of({32, 48, 1, 1}, 1152), of({3, 10, 1, 1}, 240), of({2, 7, 5, 5}, 9),
                       of({1, 2048, 1, 1}, 6),   of({5, 12, 2, 3, 1}, 20), of({70, 36, 1, 1}, 144)};

class CudaFewPixels : public OnTensorCores {
 protected:
  static void expect_right(const ops::ConvolutionCall& call, const Tensor& right, const Arithmetic& arithmetic) {
    const std::optional<ops::OwnKernel> kernel = ops::few_pixel_product(call);
    ASSERT_TRUE(kernel && kernel->finishes);
    const auto found = [&] {
      call.operands.result(call.kind).fill(NAN);
      kernel->run({}, cuda::compute_stream(gpu.index));
      return call.operands.result(call.kind).to(Device::cpu()).contiguous();
    };
    const Tensor result = found();
    const double tolerance = arithmetic.dtype == DType::f32 ? 2e-6 : arithmetic.tolerance;
    EXPECT_TRUE(near(result.to(DType::f64), right, tolerance, largest_finite(right)));
    EXPECT_TRUE(same_bits(result, found()));
  }
};

TEST_F(CudaFewPixels, AgreeWithTheDefinition) {
  for (const Sizes& sizes : calls) {
    for (const ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::data_gradient}) {
      for (const Arithmetic& arithmetic : arithmetics) {
        SCOPED_TRACE(concat(sizes.input, ' ', sizes.outputs, ' ', arithmetic.dtype, kind == ConvolutionKind::forward ? "" : " gradient"));
        multiply_in(arithmetic);
        ops::ConvolutionCall call = call_of(sizes, kind, arithmetic.dtype, gpu, true);
        if (sizes.outputs % 3 == 0) call.operands.bias = {};
        expect_right(call, by_definition(call), arithmetic);
      }
    }
  }
}

TEST_F(CudaFewPixels, TakeAProgram) {
  const auto program = ops::ElementwiseProgram::parse("y0 = multiply(x0, x1); y1 = sigmoid(y0); y2 = multiply(y1, x2); return y2");
  for (const Arithmetic& arithmetic : arithmetics) {
    ops::ConvolutionCall call = call_of(of({3, 24, 2, 5}, 20), ConvolutionKind::forward, arithmetic.dtype, gpu, true);
    std::vector<Tensor> operands = {by_definition(call)};
    for (const Shape& shape : {Shape{3, 1, 1, 1}, call.operands.output.shape()}) {
      const Tensor operand = normal_tensor(shape, DType::f32, operands.size()).to(arithmetic.dtype);
      operands.push_back(operand.to(DType::f64));
      call.operands.others.push_back(operand.to(gpu).contiguous(Layout::channels_last));
    }
    call.program = &program;
    expect_right(call, ops::run(ops::registry().find("elementwise"), operands, ops::ElementwiseAttributes{program})[0], arithmetic);
  }
}

TEST_F(CudaFewPixels, AreFew) {
  const auto taken = [](const Sizes& sizes, DType dtype = DType::f16, ConvolutionKind kind = ConvolutionKind::forward) {
    return ops::few_pixel_product(call_of(sizes, kind, dtype, Device{DeviceKind::cuda, 0}, false)).has_value();
  };
  EXPECT_TRUE(taken(of({32, 512, 1, 1}, 512)));
  EXPECT_FALSE(taken(of({32, 1280, 1, 1}, 1280))) << "as fast in tiles";
  EXPECT_FALSE(taken(of({32, 48, 7, 7}, 48)));
  EXPECT_FALSE(taken({{2, 48, 4, 4}, 48}));
  EXPECT_FALSE(taken(of({2, 48, 1, 1}, 48), DType::f64));
  EXPECT_FALSE(taken(of({2, 48, 1, 1}, 48), DType::f16, ConvolutionKind::weight_gradient));
}

}  // namespace
}  // namespace frit::few_pixels_test
