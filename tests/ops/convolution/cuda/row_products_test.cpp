// Weight gradients row by row on Hopper's warpgroups, against the CPU's in float64.

#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/cuda/warpgroup_products.cuh"
#include "ops/tensor_core_checks.h"

namespace frit::row_products_test {
namespace {

using Options = ConvolutionOptions;

struct Call {
  Shape input;
  std::int64_t outputs;
  Options options = {};
  Dims kernel = {3, 3};
  Layout layout = Layout::channels_last;

  int rank() const { return input.rank() - 2; }
  ops::WeightGradientOptions attributes() const {
    ops::WeightGradientOptions given{ops::canonical(options, rank()), kernel};
    given.convolution.output_padding = {};
    return given;
  }
  Shape with(std::int64_t first, std::int64_t second, const Dims& image) const {
    Shape shape = input;
    shape[0] = first, shape[1] = second;
    for (int axis = 0; axis < rank(); ++axis) shape[axis + 2] = image[axis];
    return shape;
  }
  Shape output() const {
    const Options all = ops::canonical(options, rank());
    Dims image = kernel;
    for (int axis = 0; axis < rank(); ++axis) {
      const std::int64_t reach = all.dilation[axis] * (kernel[axis] - 1) + 1;
      image[axis] = (input[axis + 2] + 2 * all.padding[axis] - reach) / all.stride[axis] + 1;
    }
    return with(input[0], outputs, image);
  }
  ops::ConvolutionCall in(DType dtype) const {
    const auto image = [&](const Shape& shape) { return Tensor::over(nullptr, shape, dtype, {DeviceKind::cuda, 0}, nullptr, layout); };
    return {cudnn::ConvolutionKind::weight_gradient,
            ops::weight_gradient_geometry(output(), input, attributes()),
            {image(input), image(with(outputs, input[1] / all_groups(), kernel)), image(output()), {}}};
  }
  std::int64_t all_groups() const { return ops::canonical(options, rank()).groups; }
};

class CudaRowProducts : public OnTensorCores {
 protected:
  void SetUp() override {
    OnTensorCores::SetUp();
    if (!IsSkipped() && !warpgroup::available(0)) GTEST_SKIP() << "not compiled for Hopper, or no such device";
  }
  static bool takes(DType dtype, const Call& call) { return ops::row_product(call.in(dtype)).has_value(); }
};

TEST_F(CudaRowProducts, AgreeWithTheDefinition) {
  const Call cases[] = {
      {{6, 64, 61, 140}, 128},  // three strips of columns, of which the last is short, as is the tile at the end of each
      {{24, 68, 30, 32}, 60, {.padding = {1}}},
      {{28, 112, 23, 31}, 60, {.padding = {1, 2}}},
      {{40, 64, 19, 16}, 128, {.padding = {2, 1}}},
      {{16, 48, 50, 51}, 56, {.padding = {0, 3}}},
      {{4, 64, 7, 41, 39}, 60, {.padding = {1, 1, 0}}, {2, 3, 3}},
  };
  for (const Call& call : cases) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      EXPECT_EQ(takes(dtype, call), dtype == DType::f32) << call.input << " -> " << call.outputs << ' ' << dtype;
    }
    expect_accurate(call.rank() == 2 ? "conv2d_weight_gradient" : "conv3d_weight_gradient", {call.output(), call.input}, call.attributes());
  }
}

TEST_F(CudaRowProducts, LeaveTheOthersAlone) {
  const Call usual{{16, 64, 56, 56}, 64, {.padding = {1}}};
  EXPECT_TRUE(takes(DType::f32, usual));
  const Call strided{{16, 64, 56, 56}, 64, {.stride = {2}, .padding = {1}}},
      dilated{{16, 64, 56, 56}, 64, {.padding = {2}, .dilation = {2}}}, grouped{{16, 128, 56, 56}, 128, {.padding = {1}, .groups = 2}},
      wide{{16, 64, 56, 56}, 64, {.padding = {2}}, {5, 5}}, odd{{16, 66, 56, 56}, 64, {.padding = {1}}},
      few{{16, 16, 56, 56}, 64, {.padding = {1}}}, small{{1, 64, 28, 28}, 64, {.padding = {1}}},
      short_rows{{64, 512, 7, 7}, 512, {.padding = {1}}}, contiguous{{16, 64, 56, 56}, 64, {.padding = {1}}, {3, 3}, Layout::contiguous};
  for (const Call& call : {strided, dilated, grouped, wide, odd, few, small, short_rows, contiguous}) {
    EXPECT_FALSE(takes(DType::f32, call)) << call.input << " -> " << call.outputs;
  }
  set_numerics({.tf32 = false});
  EXPECT_FALSE(takes(DType::f32, usual));
}

}  // namespace
}  // namespace frit::row_products_test
