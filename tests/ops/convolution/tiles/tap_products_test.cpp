// Weight gradients on tensor cores by frit's own kernels, against the CPU's in float64. The generic suite does not come here with float32,
// since it computes without tensor cores.

#include "frit/ops/convolution/geometry.h"
#include "ops/tensor_core_checks.h"

namespace frit {
namespace {

using CudaTapProducts = OnTensorCores;

TEST_F(CudaTapProducts, AgreeWithTheDefinition) {
  struct Call {
    Shape input;
    std::int64_t outputs;
    Dims kernel, padding;
    bool float32 = true, halves = true;  ///< computed by this kernel
  };
  const Call calls[] = {{{2, 8, 9, 11}, 16, {3, 3}, {0}},
                        {{3, 4, 5, 6, 70}, 32, {2, 3, 3}, {1}},
                        {{2, 24, 5, 130}, 64, {1, 3}, {0}},
                        {{300, 16, 4, 5}, 16, {2, 2}, {0}},
                        {{1, 4, 3, 3, 3}, 16, {3, 3, 3}, {0}},
                        {{2, 4, 7, 40, 33}, 16, {3, 3, 3}, {0}},
                        {{2, 8, 20, 20}, 128, {3, 1}, {2, 0}},
                        {{1, 8, 1, 200}, 64, {1, 5}, {0, 4}},
                        {{2, 12, 6, 9}, 32, {3, 3}, {1, 2}, true, false},
                        {{2, 16, 9, 140}, 64, {4, 4}, {0}},
                        {{2, 16, 4, 9, 70}, 64, {3, 4, 4}, {1, 0, 0}},
                        {{1, 128, 5, 6, 7}, 64, {3, 1, 1}, {1, 0, 0}},
                        {{1, 64, 33, 17}, 128, {1, 2}, {0}, false, false}};
  for (const Call& call : calls) {
    const int rank = call.input.rank() - 2;
    const ops::WeightGradientOptions options{ops::canonical({.padding = call.padding}, rank), call.kernel};
    Shape gradient = call.input;
    gradient[1] = call.outputs;
    for (int axis = 0; axis < rank; ++axis) {
      gradient[axis + 2] += 2 * options.convolution.padding[axis] - call.kernel[axis] + 1;
    }
    ops::WeightGradientOptions given = options;
    given.convolution.output_padding = {};
    for (const auto& [dtype, schedule] :
         expect_accurate(rank == 2 ? "conv2d_weight_gradient" : "conv3d_weight_gradient", {gradient, call.input}, given)) {
      if (is_half(dtype) ? call.halves : call.float32) {
        EXPECT_EQ(schedule, "taps on tensor cores") << call.input << ' ' << dtype;
      }
    }
  }
}

}  // namespace
}  // namespace frit
