#include "frit/ops/libraries/cuda/nvrtc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "frit/core/cuda/device.h"
#include "frit/core/random.h"
#include "frit/ops/chain/chain_attributes.h"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/convolution/tiles/patch_convolution.h"
#include "frit/ops/convolution/tiles/phase_convolution.h"
#include "frit/ops/elementwise/compiled_program.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"
#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/elementwise_sums.h"

namespace frit {
namespace {

/// Compiling needs no GPU.
class Nvrtc : public testing::Test {
 protected:
  void SetUp() override {
    try {
      nvrtc::version();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

/// A kernel that applies each elementwise operator that programs are made of to what the one before gave.
std::string source_with_all_functions(const char* type) {
  std::string source = concat(
      "#include \"frit/ops/elementwise/program.cuh\"\n"
      "using namespace frit::ops::program;\n"
      "extern \"C\" __global__ void program(const __grid_constant__ Operands<2> operands, std::int64_t count) {\n"
      "  constexpr State state = {{0, 0}};\n"
      "  auto value = load<",
      type, ", Access::indexed, ", type, ", 2>(operands.of[0], 2 * threadIdx.x, count);\n");
  for (const ops::Operator* op : ops::registry().all()) {
    if (!op->cuda.functor) continue;
    const int number = op->cuda.functor(op->default_attributes, true).number;
    source += concat("  value = apply<", number, ">(state, value, value, value);\n");
  }
  return source + concat("  store<", type, ", Access::vector>(operands.of[1], 2 * threadIdx.x, count, value);\n}\n");
}

TEST_F(Nvrtc, CompilesEveryElementwiseOperator) {
  for (const char* type : {"float", "double"}) {
    const std::string source = source_with_all_functions(type);
    EXPECT_GT(std::count(source.begin(), source.end(), '\n'), 40);
    EXPECT_GT(nvrtc::compile_code(source, 90).size(), 1000u);
  }
}

/// relu(x0 + x1) + x2, of images in one or two layouts, where x2 has a number for each channel, of each sample where there is one layout.
struct SumOfImages {
  ops::ElementwiseProgram program;
  std::vector<Tensor> inputs, outputs;

  SumOfImages(const Shape& shape, DType dtype, Layout layout, bool mixed, Device device = {}) {
    const ops::Operator &add = ops::registry().find("add"), &relu = ops::registry().find("relu");
    program.inputs = 3;
    program.instructions = {
        {&add, add.default_attributes, {0, 1}}, {&relu, relu.default_attributes, {3}}, {&add, add.default_attributes, {4, 2}}};
    program.outputs = {5};
    const Layout other = mixed != (layout == Layout::contiguous) ? Layout::contiguous : Layout::channels_last;
    Shape channels = Shape::filled(shape.rank(), 1);
    channels[1] = shape[1];
    if (!mixed) channels[0] = shape[0];
    for (const auto& [of, lies] : {std::pair{shape, other}, {shape, layout}, {channels, Layout::contiguous}}) {
      const Tensor values = Tensor::empty(of);
      fill_normal(values, 0, 1, 1, inputs.size());
      inputs.push_back(values.to(dtype).to(device).contiguous(lies).expand(shape));
    }
    outputs = {Tensor::empty(shape, dtype, device, layout)};
    if (layout == Layout::contiguous) return;
    Dims axes;
    for (int axis = 0; axis < shape.rank(); ++axis) axes.push_back(axis == 0 ? 0 : axis + 1 < shape.rank() ? axis + 1 : 1);
    for (Tensor& input : inputs) input = input.permute(axes);
    outputs[0] = outputs[0].permute(axes);
  }
};

TEST_F(Nvrtc, CompilesProgramsOfMixedLayouts) {
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    for (const DType dtype : {DType::f16, DType::f32, DType::f64}) {
      for (const Shape& shape : {Shape{2, 16, 16, 16}, Shape{2, 33, 7, 9}}) {
        const SumOfImages sum(shape, dtype, layout, true);
        const std::string source = ops::program_source({sum.program, sum.inputs, sum.outputs});
        EXPECT_NE(source.find("TurnedTile"), std::string::npos);
        EXPECT_GT(nvrtc::compile_code(source, 90).size(), 1000u);
      }
    }
  }
}

/// Each row of channels is cut into the widest vectors that are aligned.
TEST_F(Nvrtc, CompilesProgramsOfChannelsNumbers) {
  for (const auto& [dtype, widest] : {std::pair{DType::f16, 8}, {DType::f32, 4}, {DType::f64, 2}}) {
    for (const int channels : {16, 33, 36, 58}) {
      const SumOfImages sum({2, channels, 7, 9}, dtype, Layout::channels_last, false);
      const std::string source = ops::program_source({sum.program, sum.inputs, sum.outputs});
      EXPECT_NE(source.find("Strips"), std::string::npos);
      const int width = std::min(widest, channels & -channels);
      EXPECT_NE(source.find(concat("constexpr int width = ", width, ';')), std::string::npos) << dtype << ' ' << channels;
      EXPECT_GT(nvrtc::compile_code(source, 90).size(), 1000u);
    }
  }
}

/// Of the samples of chains whose centre is one kernel, in channels-last layout.
TEST_F(Nvrtc, CompilesCentresWithTheirStages) {
  const ops::Operator& chain = ops::registry().find("chain");
  std::set<std::string> sources, centres;
  for (const ops::Sample& sample : chain.samples()) {
    for (const DType dtype : {DType::f16, DType::f32, DType::f64}) {
      std::vector<Tensor> inputs, outputs;
      std::vector<TensorType> types;
      const auto layout_of = [](const Shape& shape) { return shape.rank() < 4 ? Layout::contiguous : Layout::channels_last; };
      for (const ops::SampleInput& input : sample.inputs) {
        inputs.push_back(Tensor::empty(input.shape, input.floating ? dtype : input.dtype, {}, layout_of(input.shape)));
        types.push_back({inputs.back().dtype(), input.shape});
      }
      for (const TensorType& type : chain.infer_types(types, sample.attributes)) {
        const bool is_image = type.shape.rank() == inputs[0].rank();
        outputs.push_back(Tensor::empty(type.shape, type.dtype, {}, is_image ? layout_of(type.shape) : Layout::contiguous));
      }
      const ops::KernelContext context{chain, sample.attributes, inputs, outputs, {}};
      const ops::ChainCall call(context);
      const std::string source = ops::staged_source(call.centre, call.stages);
      if (source.empty()) continue;
      centres.insert(call.call.centre.op->name);
      if (sources.insert(source).second) EXPECT_GT(nvrtc::compile_code(source, 90).size(), 1000u);
    }
  }
  EXPECT_EQ(centres.size(), 17u);  // pools of two and three axes, softmax and its logarithm, gradients, and reductions over channels
}

/// Of the samples that are large enough, in channels-last layout.
TEST_F(Nvrtc, CompilesProgramsWithTheirSums) {
  const ops::Operator& op = ops::registry().find("elementwise_sums");
  int compiled = 0;
  const auto elements = [](const ops::SampleInput& input) { return element_count(input.shape); };
  for (const ops::Sample& sample : op.samples()) {
    const Shape& image = std::ranges::max_element(sample.inputs, {}, elements)->shape;
    const auto layout_of = [&](const Shape& shape) {
      return shape == image && shape.rank() >= 4 ? Layout::channels_last : Layout::contiguous;
    };
    for (const DType dtype : {DType::f16, DType::f32, DType::f64}) {
      std::vector<Tensor> inputs, outputs;
      std::vector<TensorType> types;
      for (const ops::SampleInput& input : sample.inputs) {
        inputs.push_back(Tensor::empty(input.shape, dtype, {}, layout_of(input.shape)));
        types.push_back({dtype, input.shape});
      }
      for (const TensorType& type : op.infer_types(types, sample.attributes)) {
        outputs.push_back(Tensor::empty(type.shape, type.dtype, {}, layout_of(type.shape)));
      }
      const std::string source = ops::source_of_sums({op, sample.attributes, inputs, outputs, {}});
      EXPECT_EQ(source.empty(), !ops::is_summed_at_once(element_count(image)));
      if (source.empty()) continue;
      EXPECT_GT(nvrtc::compile_code(source, 90).size(), 1000u);
      ++compiled;
    }
  }
  EXPECT_EQ(compiled, 12 * 3);
}

/// Small ones, as samples are, run in their parts.
TEST_F(Nvrtc, CompilesRearrangementsWithTheirStages) {
  const auto program = ops::ElementwiseProgram::parse("y0 = multiply(x0, x1); y1 = relu(y0); return y1");
  const ops::ElementwiseProgram none;
  const std::span<const Tensor> nothing;
  for (const bool to_space : {true, false}) {
    const ops::Operator& op = ops::registry().find(to_space ? "depth_to_space" : "space_to_depth");
    for (const DType dtype : {DType::f16, DType::f32, DType::f64}) {
      for (const auto& [image, blocks] : {std::pair{Shape{2, 16, 64, 66}, Shape{2, 64, 32, 33}},
                                          {Shape{2, 6, 76, 80}, Shape{2, 24, 38, 40}},
                                          {Shape{2, 8, 32, 16, 18}, Shape{2, 64, 16, 8, 9}}}) {
        const auto tensor = [&](const Shape& shape) {
          return Tensor::empty(shape, dtype, {}, shape == image || shape == blocks ? Layout::channels_last : Layout::contiguous);
        };
        Shape channels = Shape::filled(image.rank() - 1, 1);
        channels[0] = image[1];
        const ops::Attributes attributes = ops::BlockAttributes{.block = Dims::filled(image.rank() - 2, 2),
                                                                .offset = Dims::filled(image.rank() - 2, 0),
                                                                .size = ops::image_of(to_space ? image : blocks)};
        const std::vector<Tensor> operands = {tensor(image), tensor(channels)}, inputs = {to_space ? tensor(blocks) : Tensor()},
                                  outputs = {tensor(to_space ? image : blocks)};
        const std::span<const Tensor> others = std::span(operands).subspan(to_space ? 1 : 0);
        const ops::Stages stages{to_space ? none : program,  0, {dtype, image}, to_space ? nothing : others, to_space ? program : none,
                                 to_space ? others : nothing};
        const std::string source = ops::staged_source({op, attributes, inputs, outputs, {}}, stages);
        ASSERT_NE(source.find("Rearrangement<"), std::string::npos) << image;
        EXPECT_GT(nvrtc::compile_code(source, 90).size(), 1000u);
      }
    }
  }
}

/// For an H200, with a bias: of shapes with one step and several, of two and three axes.
TEST_F(Nvrtc, CompilesTransposedConvolutions) {
  const ops::ElementwiseProgram none, sum = ops::ElementwiseProgram::parse("y0 = add(x0, x1); return y0");
  const ConvolutionOptions options{.stride = {2}, .padding = {1}, .output_padding = {1}};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const auto& [image, weight] : {std::pair{Shape{2, 64, 17, 21}, Shape{64, 64, 3, 3}},
                                        {Shape{2, 16, 9, 40}, Shape{16, 20, 5, 4}},
                                        {Shape{1, 32, 5, 9, 6}, Shape{32, 64, 3, 3, 3}}}) {
      const ops::ConvolutionGeometry g = ops::transposed_geometry(image, weight, ops::canonical(options, image.rank() - 2));
      Shape result = {image[0], weight[1]}, channels = Shape::filled(image.rank() - 1, 1);
      for (int axis = 5 - image.rank(); axis < 3; ++axis) result.push_back(g.input[static_cast<std::size_t>(axis)]);
      channels[0] = weight[1];
      const auto tensor = [&](const Shape& shape) { return Tensor::empty(shape, dtype, {}, Layout::channels_last); };
      const ops::ConvolutionCall call{cudnn::ConvolutionKind::data_gradient, g, {tensor(result), tensor(weight), tensor(image), {}}};
      const auto kernel = ops::phase_centre(call, 132);
      ASSERT_TRUE(kernel) << image;
      const std::vector<Tensor> operands = {Tensor::empty(channels, dtype)};
      const std::string source = ops::centre_source(*kernel, {none, 0, {}, {}, sum, operands}, call.operands.output, call.operands.input);
      EXPECT_GT(nvrtc::compile_code(source, 90).size(), 1000u);
    }
  }
}

/// For an H200, with a bias: with all numbers of columns, of two and three axes and strides.
TEST_F(Nvrtc, CompilesConvolutions) {
  const ops::ElementwiseProgram none, sum = ops::ElementwiseProgram::parse("y0 = add(x0, x1); return y0");
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const auto& [image, weight, stride] : {std::tuple{Shape{2, 64, 40, 70}, Shape{128, 64, 3, 3}, Dims{1}},
                                                {Shape{2, 16, 40, 70}, Shape{20, 16, 5, 4}, Dims{2}},
                                                {Shape{1, 32, 30, 20, 40}, Shape{64, 32, 3, 3, 3}, Dims{1}}}) {
      const ops::ConvolutionGeometry g = ops::convolution_geometry(image, weight, ops::canonical({.stride = stride}, image.rank() - 2));
      Shape result = {image[0], weight[0]}, channels = Shape::filled(image.rank() - 1, 1);
      for (int axis = 5 - image.rank(); axis < 3; ++axis) result.push_back(g.output[static_cast<std::size_t>(axis)]);
      channels[0] = weight[0];
      const auto tensor = [&](const Shape& shape) { return Tensor::empty(shape, dtype, {}, Layout::channels_last); };
      const ops::ConvolutionCall call{cudnn::ConvolutionKind::forward, g, {tensor(image), tensor(weight), tensor(result), {}}};
      const auto kernel = ops::patch_centre(call, 132);
      ASSERT_TRUE(kernel) << image;
      const std::vector<Tensor> operands = {Tensor::empty(channels, dtype)};
      const std::string source = ops::centre_source(*kernel, {none, 0, {}, {}, sum, operands}, call.operands.input, call.operands.output);
      EXPECT_GT(nvrtc::compile_code(source, 90).size(), 1000u);
    }
  }
}

/// With an epilogue of many instructions, in the registers of 640 threads.
TEST_F(Nvrtc, CompilesSweptConvolutions) {
  const ops::ElementwiseProgram none, program = ops::ElementwiseProgram::parse("y0 = add(x0, x1); y1 = mish(y0); y2 = gelu(y1); return y2");
  const struct {
    struct {
      unsigned x;
    } grid, block;
    std::size_t shared_bytes;
  } launch{{132}, {640}, 0};
  const Shape shape = {2, 16, 8, 8};
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const char* const sizes : {"1, true>", "4, true>", "2, false>", "8, false>", "8, false>, WarpMoments"}) {
      const std::string type = concat("SweptConvolution<SweepShape<", ops::name_in_programs(dtype), ", ", sizes, '>');
      const ops::CentreKernel kernel("frit/ops/convolution/tiles/swept_rows.cuh", type, 0, launch, false);
      const Tensor image = Tensor::empty(shape, dtype, {}, Layout::channels_last);
      const std::vector<Tensor> operands = {Tensor::empty({16, 1, 1}, dtype)};
      EXPECT_GT(nvrtc::compile_code(ops::centre_source(kernel, {none, 0, {}, {}, program, operands}, image, image), 90).size(), 1000u);
    }
  }
}

TEST(CudaNvrtc, ProgramsOfMixedLayoutsAgreeWithOperators) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device gpu = {DeviceKind::cuda, 0};
  const Shape shapes[] = {{2, 64, 32, 40},    {3, 33, 31, 29}, {1, 16, 70, 70}, {2, 500, 3, 5},
                          {2, 8, 15, 16, 18}, {2, 2100, 3, 4}, {3, 24, 97, 40}, {2, 58, 20, 20}};
  const auto check = [&](const Shape& shape, DType dtype, Layout layout, bool mixed) {
    const SumOfImages sum(shape, dtype, layout, mixed, gpu);
    ASSERT_TRUE(ops::run_compiled_program({sum.program, sum.inputs, sum.outputs}, cuda::compute_stream(gpu.index)));
    std::vector<std::vector<double>> x;
    for (const Tensor& input : sum.inputs) x.push_back(input.to_vector<double>());
    const std::vector<double> found = sum.outputs[0].to_vector<double>();
    const double tolerance = dtype == DType::f16 ? 4e-3 : dtype == DType::f32 ? 1e-6 : 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double expected = std::max(x[0][i] + x[1][i], 0.0) + x[2][i];
      ASSERT_NEAR(found[i], expected, tolerance) << shape << ' ' << dtype << ", element " << i;
    }
  };
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    for (const DType dtype : {DType::f16, DType::f32, DType::f64}) {
      for (const Shape& shape : shapes) {
        for (const bool mixed : {true, false}) check(shape, dtype, layout, mixed);
      }
    }
  }
}

TEST(CudaNvrtc, DividesByNumbers) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device gpu = {DeviceKind::cuda, 0};
  const auto program = ops::ElementwiseProgram::parse("y0 = divide(x0, x1); return y0");
  std::vector<double> dividends = {0, -0.0, 1, -3.5, 1e-38, 3e38, INFINITY, -INFINITY, NAN};
  for (int i = 0; i < 999; ++i) dividends.push_back(0.37 * i - 100);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = Tensor::from(dividends, {std::ssize(dividends)}).to(dtype);
    for (const double divisor : {6.0, -0.3, 4.0, 1e-35, -2e35, 1e-40, 0.0, double{INFINITY}, double{NAN}}) {
      const Tensor number = Tensor::from({divisor}, {1}).to(dtype), y = Tensor::empty(x.shape(), dtype, gpu);
      const Tensor inputs[] = {x.to(gpu), number.to(gpu).expand(x.shape())}, outputs[] = {y};
      ASSERT_TRUE(ops::run_compiled_program({program, inputs, outputs}, cuda::compute_stream(gpu.index)));
      const std::vector<double> found = y.to_vector<double>(), a = x.to_vector<double>();
      const double b = number.to_vector<double>()[0];
      for (std::size_t i = 0; i < found.size(); ++i) {
        const double expected = dtype == DType::f32 ? static_cast<double>(static_cast<float>(a[i]) / static_cast<float>(b)) : a[i] / b;
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(found[i])) << a[i] << " / " << b << " is " << found[i];
        } else if (std::isinf(expected)) {
          EXPECT_EQ(found[i], expected) << a[i] << " / " << b;
        } else {
          EXPECT_NEAR(found[i], expected, 2e-7 * std::abs(expected) + 1e-44) << a[i] << " / " << b;
        }
      }
    }
  }
}

TEST_F(Nvrtc, SaysWhatItDoesNotUnderstand) {
  try {
    nvrtc::compile_code("extern \"C\" __global__ void program() { nothing(); }", 90);
    FAIL() << "it compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_NE(std::string_view(error.what()).find("identifier \"nothing\" is undefined"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace frit
