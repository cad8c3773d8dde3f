// Depthwise convolutions of channels-last images by frit's own kernels, against the CPU's in float64. The generic suite does not come here
// with halves.

#include "frit/ops/chain/chain_attributes.h"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/libraries/library_plans.h"
#include "ops/tensor_core_checks.h"

namespace frit::depthwise_test {
namespace {

using ops::ElementwiseProgram;

struct Call {
  Shape input;
  Dims kernel;
  ConvolutionOptions options = {};

  int rank() const { return input.rank() - 2; }
  std::string name(const char* end = "") const { return concat("conv", rank(), 'd', end); }
  Shape weight() const {
    Shape shape{input[1], 1};
    for (const std::int64_t size : kernel) shape.push_back(size);
    return shape;
  }
  ConvolutionOptions own() const {
    ConvolutionOptions result = ops::canonical(options, rank());
    result.groups = input[1];
    result.output_padding = {};
    return result;
  }
  Shape output() const {
    const TensorType types[] = {{DType::f32, input}, {DType::f32, weight()}};
    return ops::registry().find(name()).infer_types(types, own())[0].shape;
  }
};

const Call calls[] = {
    {{2, 8, 9, 11}, {3, 3}, {.padding = {1}}},
    {{2, 96, 14, 14}, {7, 7}, {.padding = {3}}},
    {{1, 40, 31, 45}, {5, 5}, {.padding = {2}}},     // several tiles, whose last ones are cut off, and channels that fill no block
    {{2, 36, 20, 33}, {7, 3}, {.padding = {3, 0}}},  // two kinds of padding
    {{1, 8, 40, 5}, {2, 7}, {.padding = {1, 6}}},    // more padding than the image needs
    {{2, 24, 13, 15}, {3, 3}, {.stride = {2}, .padding = {1}}},
    {{1, 132, 17, 16}, {5, 5}, {.stride = {2}, .padding = {2}}},  // channels that are no multiple of a block's
    {{2, 58, 14, 15}, {3, 3}, {.padding = {1}}},                  // pairs of channels
    {{1, 6, 17, 30}, {5, 5}, {.padding = {2}}},
    {{1, 116, 9, 12}, {7, 7}, {.padding = {3}}},  // in halves four of them at a time
    {{1, 58, 15, 14}, {3, 3}, {.stride = {2}, .padding = {1}}},
    {{2, 6, 13, 12}, {5, 5}, {.stride = {2}, .padding = {2}}},
    {{1, 10, 12, 11}, {7, 7}, {.padding = {6}, .dilation = {2}}},  // more taps than a thread has of two channels
    {{1, 4, 12, 11}, {7, 7}, {.padding = {6}, .dilation = {2}}},
    {{1, 6, 9, 8}, {3, 3}, {.stride = {3}, .padding = {1}}},
    {{1, 6, 5, 7, 9}, {3, 3, 3}, {.padding = {1}}},
    {{1, 21, 9, 11}, {3, 3}, {.padding = {1}}},
    {{1, 3, 9, 11}, {3, 3}, {.stride = {2}, .padding = {1}}},
    {{1, 7, 9, 12}, {7, 7}, {.stride = {2}, .padding = {3}}},                          // nor of a vector
    {{1, 16, 13, 18}, {3, 4}, {.padding = {2, 6}, .dilation = {2, 3}}},                // even, with places between the taps
    {{1, 8, 13, 16}, {3, 2}, {.stride = {2, 3}, .padding = {2, 1}, .dilation = {2}}},  // taps of a stride that are no neighbours
    {{1, 8, 7, 9}, {1, 1}, {.stride = {2}}},                                           // positions that no tap reads
    {{1, 4, 12, 40}, {3, 31}, {.padding = {1, 15}}},                                   // more taps than a thread takes at a time
    {{1, 4, 33, 34}, {31, 31}, {.padding = {15}}},
    {{3, 768, 7, 7}, {7, 7}, {.padding = {3}}},
    {{2, 8, 4, 7, 9}, {3, 3, 3}, {.padding = {1}}},
    {{1, 8, 5, 7, 9}, {3, 2, 3}, {.stride = {2, 1, 2}, .padding = {1, 0, 1}}},
    {{2, 40, 1, 300}, {1, 3}, {.padding = {0, 1}}},  // lines, in all ways
    {{1, 64, 1, 200}, {1, 63}, {.padding = {0, 31}}},
    {{2, 24, 1, 131}, {1, 9}, {.stride = {1, 2}, .padding = {0, 4}}},
    {{1, 68, 3, 150}, {3, 5}, {.padding = {1, 2}}},
    {{0, 8, 5, 5}, {3, 3}, {.padding = {1}}}};

class CudaDepthwise : public OnTensorCores {
 protected:
  static void expect_depthwise(const Call& call, const std::map<DType, std::string>& schedules) {
    for (const auto& [dtype, schedule] : schedules) {
      EXPECT_TRUE(call.input[0] == 0 || schedule.starts_with("depthwise")) << call.input << ' ' << dtype << ": " << schedule;
    }
  }
};

TEST_F(CudaDepthwise, AgreesWithTheDefinition) {
  for (const Call& call : calls) {
    expect_depthwise(call, expect_accurate(call.name().c_str(), {call.input, call.weight(), {call.input[1]}}, call.own()));
  }
}

TEST_F(CudaDepthwise, DataGradientAgreesWithTheDefinition) {
  for (const Call& call : calls) {
    const ops::DataGradientOptions options{call.own(), ops::image_of(call.input)};
    expect_depthwise(call, expect_accurate(call.name("_data_gradient").c_str(), {call.output(), call.weight()}, options));
  }
}

TEST_F(CudaDepthwise, WeightGradientAgreesWithTheDefinition) {
  for (const Call& call : calls) {
    const ops::WeightGradientOptions options{call.own(), call.kernel};
    expect_accurate(call.name("_weight_gradient").c_str(), {call.output(), call.input}, options);
  }
}

TEST_F(CudaDepthwise, EpiloguesAgreeWithTheDefinition) {
  for (const char* program :
       {"y0 = clamp(x0) {\"min\":0.0,\"max\":6.0}; return y0", "y0 = silu(x0); return y0",
        "y0 = sigmoid(x0); y1 = multiply(y0, x0); y2 = multiply(y1, x1); return y2",
        "y0 = leaky_relu(x0) {\"negative_slope\":0.1}; y1 = add(x1, y0); return y1", "y0 = add(x0, x1); y1 = relu(y0); return y1"}) {
    for (const Call& call : calls) {
      const ops::ChainAttributes chain{{{}, 0, {&ops::registry().find(call.name()), call.own()}, ElementwiseProgram::parse(program)}};
      std::vector<Shape> shapes = {call.input, call.weight()};
      shapes.push_back(chain.call.after_inputs() > 0 ? call.output() : Shape{call.input[1]});
      expect_accurate("chain", shapes, chain);
    }
  }
}

/// Each tap's product is left out where there is no such tap: an infinity next to a kernel with an even number of taps stays away from it.
TEST_F(CudaDepthwise, ReadsNothingBeyondTheKernel) {
  const Shape shape{1, 8, 6, 20};
  Tensor image = Tensor::zeros(shape, DType::f32);
  for (std::int64_t i = 0; i < image.elements(); i += 7) image.span<float>()[static_cast<std::size_t>(i)] = INFINITY;
  const Operator& op = ops::registry().find("conv2d");
  for (const Dims& kernel : {Dims{1, 2}, Dims{2, 4}, Dims{1, 9}}) {
    const std::vector<Tensor> inputs = {image, Tensor::full({8, 1, kernel[0], kernel[1]}, 0.5, DType::f32)};
    const ops::Attributes attributes = ConvolutionOptions{.groups = 8};
    EXPECT_TRUE(same(run_on_gpu(op, inputs, attributes)[0], ops::run(op, inputs, attributes)[0])) << kernel;
  }
}

/// Nothing is searched for.
TEST_F(CudaDepthwise, NeedsNoPlan) {
  const std::size_t before = ops::plan_choices().size();
  const Call call{{2, 64, 30, 31}, {3, 3}, {.padding = {1}}};
  expect_accurate("conv2d", {call.input, call.weight()}, call.own());
  expect_accurate("conv2d_data_gradient", {call.output(), call.weight()}, ops::DataGradientOptions{call.own(), ops::image_of(call.input)});
  expect_accurate("conv2d_weight_gradient", {call.output(), call.input}, ops::WeightGradientOptions{call.own(), call.kernel});
  EXPECT_EQ(ops::plan_choices().size(), before);
}

}  // namespace
}  // namespace frit::depthwise_test
