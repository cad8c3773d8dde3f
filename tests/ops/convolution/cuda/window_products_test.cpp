// Weight gradients window of taps by window of taps, against the CPU's in float64.

#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/own_kernels.h"
#include "ops/tensor_core_checks.h"

namespace frit::window_products_test {
namespace {

using Options = ConvolutionOptions;

struct Call {
  Shape input;
  std::int64_t outputs;
  Dims kernel;
  Options options = {};

  int rank() const { return input.rank() - 2; }
  ops::WeightGradientOptions attributes() const {
    ops::WeightGradientOptions given{ops::canonical(options, rank()), kernel};
    given.convolution.output_padding = {};
    return given;
  }
  Shape weight() const {
    Shape shape = input;
    shape[0] = outputs, shape[1] /= options.groups;
    for (int axis = 0; axis < rank(); ++axis) shape[axis + 2] = kernel[axis];
    return shape;
  }
  Shape output() const {
    const Options all = ops::canonical(options, rank());
    Shape shape = input;
    shape[1] = outputs;
    for (int axis = 0; axis < rank(); ++axis) {
      shape[axis + 2] = (input[axis + 2] + 2 * all.padding[axis] - kernel[axis]) / all.stride[axis] + 1;
    }
    return shape;
  }
};

class CudaWindowProducts : public OnTensorCores {
 protected:
  static ops::ConvolutionCall in(DType dtype, const Call& c, Layout layout = Layout::channels_last) {
    const auto image = [&](const Shape& shape) { return Tensor::over(nullptr, shape, dtype, gpu, nullptr, layout); };
    return {cudnn::ConvolutionKind::weight_gradient,
            ops::weight_gradient_geometry(c.output(), c.input, c.attributes()),
            {image(c.input), image(c.weight()), image(c.output()), {}}};
  }
  static bool takes(DType dtype, const Call& call) {
    const ops::ConvolutionCall read = in(dtype, call);
    return ops::window_product(read) && !ops::tap_product(read);
  }
};

TEST_F(CudaWindowProducts, AgreeWithTheDefinition) {
  struct Case {
    Call call;
    bool halves;  ///< take it too
  };
  const Case cases[] = {
      {{{2, 32, 12, 12, 12}, 32, {3, 3, 3}, {.padding = {1}}}, true},
      {{{3, 64, 5, 7, 15}, 32, {3, 3, 3}, {.padding = {1}}}, true},
      {{{1, 32, 3, 9, 70}, 64, {3, 3, 3}, {}}, true},
      {{{2, 32, 5, 8, 15}, 24, {2, 3, 3}, {.stride = {2, 1, 1}, .padding = {0, 2, 1}}}, true},
      {{{1, 64, 1, 1, 14}, 8, {3, 3, 3}, {.padding = {1, 3, 1}}}, true},   // mostly padding
      {{{1, 32, 6, 9, 15}, 32, {5, 3, 3}, {.padding = {2, 1, 1}}}, true},  // two windows along the depth
      {{{1, 4, 3, 7, 70}, 32, {3, 3, 3}, {.padding = {1}}}, false},
      {{{2, 12, 9, 13, 13}, 20, {3, 3, 3}, {.stride = {2}, .padding = {1}}}, false},
      {{{1, 40, 3, 7, 37}, 56, {3, 3, 3}, {.padding = {1}}}, false},
      {{{2, 32, 9, 13, 22}, 64, {3, 3, 3}, {.stride = {2}, .padding = {1}}}, true},
      {{{1, 16, 5, 17, 33}, 40, {3, 3, 3}, {.stride = {1, 2, 2}, .padding = {1, 0, 1}}}, true},
      {{{2, 16, 12, 16, 32}, 32, {5, 5, 5}, {.stride = {2}, .padding = {2}}}, true},  // windows that are not full
      {{{4, 64, 192, 192}, 64, {3, 3}, {.padding = {1}}}, false},
      {{{8, 144, 14, 14}, 144, {3, 3}, {.padding = {1}, .groups = 3}}, true},  // a group in two blocks
      {{{8, 96, 15, 13}, 96, {3, 3}, {.stride = {2}, .padding = {1}, .groups = 4}}, true},
      {{{4, 24, 20, 31}, 48, {3, 3}, {.padding = {1}, .groups = 4}}, true},  // groups that are multiplied together
      {{{2, 48, 20, 31}, 48, {1, 1}, {.groups = 4}}, true},
      {{{2, 48, 6, 9, 15}, 96, {3, 3, 3}, {.padding = {1}, .groups = 2}}, true},
  };
  for (const auto& [call, halves] : cases) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      EXPECT_EQ(takes(dtype, call), dtype == DType::f32 || halves) << call.input << " -> " << call.outputs << ' ' << dtype;
    }
    expect_accurate(call.rank() == 2 ? "conv2d_weight_gradient" : "conv3d_weight_gradient", {call.output(), call.input}, call.attributes());
  }
}

TEST_F(CudaWindowProducts, LeaveTheOthersToCudnn) {
  const Call many{{2, 128, 24, 24, 24}, 128, {3, 3, 3}, {.padding = {1}}}, dilated{{2, 32, 24, 24, 24}, 32, {3, 3, 3}, {.dilation = {2}}},
      grouped{{2, 256, 24, 24, 24}, 256, {3, 3, 3}, {.groups = 2}}, few_taps{{2, 32, 24, 24, 24}, 32, {3, 1, 1}},
      odd{{2, 33, 24, 24, 24}, 32, {3, 3, 3}}, small{{1, 64, 16, 16}, 64, {3, 3}, {.padding = {1}}};
  for (const Call& call : {many, dilated, grouped, few_taps, odd, small}) EXPECT_FALSE(takes(DType::f32, call)) << call.input;
  const Call usual{{2, 32, 24, 24, 24}, 32, {3, 3, 3}, {.padding = {1}}};
  EXPECT_TRUE(takes(DType::f32, usual));
  EXPECT_FALSE(ops::window_product(in(DType::f32, usual, Layout::contiguous)));
  EXPECT_FALSE(takes(DType::f64, usual));
  set_numerics({.tf32 = false});
  EXPECT_FALSE(takes(DType::f32, usual));
  EXPECT_TRUE(takes(DType::f16, usual));
}

}  // namespace
}  // namespace frit::window_products_test
