#include "frit/ops/convolution/convolution_epilogue.h"

#include <gtest/gtest.h>

#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/ops/chain/chain_attributes.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/libraries/library_plans.h"
#include "ops/elementwise/evaluation.h"
#include "ops/operator_checks.h"

namespace frit::convolution_epilogue_test {
namespace {

using ops::ChainAttributes;
using ops::ElementwiseProgram;

constexpr double infinite = std::numeric_limits<double>::infinity();

/// A convolution with a program that follows it.
ChainAttributes with(const char* program) {
  return {{{}, 0, {&ops::registry().find("conv2d"), ConvolutionOptions{.padding = {1}}}, ElementwiseProgram::parse(program)}};
}

std::string error_of(const char* program, const std::vector<Shape>& shapes) {
  std::vector<TensorType> types;
  for (const Shape& shape : shapes) types.push_back({DType::f32, shape});
  return message_of([&] { ops::registry().find("chain").infer_types(types, with(program)); });
}

TEST(ConvolutionEpilogue, NamesWhatDoesNotFit) {
  const Shape x{1, 2, 4, 4}, weight{3, 2, 3, 3}, bias{3}, residual{1, 3, 4, 4};
  EXPECT_EQ(error_of("y0 = relu(x0); y1 = add(y0, x1); return y0, y1", {x, weight, residual}), "chain: a program must have one result");
  EXPECT_EQ(error_of("y0 = add(x0, x1); return y0", {x, weight, {3, 1, 4, 4}}), "chain: a program makes 3x3x4x4 of 1x3x4x4");
  EXPECT_EQ(error_of("y0 = add(x0, x1); return y0", {x}), "chain: conv2d cannot have 0 inputs");
  EXPECT_EQ(error_of("y0 = add(x0, x1); return y0", {x, weight}), "chain: conv2d cannot have 1 inputs");
  EXPECT_EQ(error_of("y0 = relu(x0); return y0", {x, weight, {4}}),
            "chain: conv2d: bias has shape 4, expected 3 (input 1x2x4x4, weight 3x2x3x3)");
}

TEST(ConvolutionEpilogue, IsWhatLibrariesKnow) {
  using ops::Activation, ops::BinaryFunction, ops::ConvolutionEpilogue;
  using Operand = ConvolutionEpilogue::Operand;
  const Shape result{2, 3, 4, 5}, channels{3, 1, 1};
  const auto epilogue = [&](const char* program, const std::vector<Shape>& operands = {}) {
    std::vector<TensorType> types = {{DType::f32, result}};
    for (const Shape& shape : operands) types.push_back({DType::f32, shape});
    return ops::epilogue_of(ElementwiseProgram::parse(program), types);
  };
  const auto steps_of = [&](const char* program, const std::vector<Shape>& operands = {}) { return epilogue(program, operands)->steps; };
  EXPECT_EQ(steps_of("y0 = add(x1, x0); y1 = leaky_relu(y0) {\"negative_slope\":0.2}; return y1", {result}),
            (std::vector<ConvolutionEpilogue::Step>{{}, {.activation = Activation{.slope = 0.2}}}));
  EXPECT_EQ(steps_of("y0 = clamp(x0) {\"min\":-1.0,\"max\":6.0}; return y0")[0].activation, (Activation{.low = -1, .high = 6}));
  EXPECT_EQ(steps_of("y0 = gelu(x0) {\"approximate\":\"tanh\"}; return y0")[0].activation, Activation{.kind = Activation::gelu_tanh});
  EXPECT_EQ(steps_of("y0 = subtract(x2, x0); y1 = minimum(y0, x1); return y1", {{}, {1, 3, 1, 1}}),
            (std::vector<ConvolutionEpilogue::Step>{{.function = BinaryFunction::subtract, .operand = 1, .operand_first = true},
                                                    {.function = BinaryFunction::minimum, .operand = 0}}));
  EXPECT_EQ(epilogue("y0 = add(x0, x1); y1 = add(y0, x2); y2 = add(y1, x3); return y2", {channels, {1, 1, 1, 1}, result})->operands,
            (std::vector{Operand::channels, Operand::number, Operand::image}));
  EXPECT_EQ(steps_of("y0 = add(x0, x1); y1 = multiply(y0, x1); return y1", {channels}),
            (std::vector<ConvolutionEpilogue::Step>{{}, {.function = BinaryFunction::multiply}}));
  EXPECT_FALSE(epilogue("y0 = add(x0, x1); y1 = multiply(y0, x1); return y1", {result}));
  EXPECT_FALSE(epilogue("y0 = clamp(x0) {\"min\":1.0,\"max\":0.0}; return y0"));
  EXPECT_FALSE(epilogue("y0 = softplus(x0); return y0"));
  EXPECT_FALSE(epilogue("y0 = divide(x1, x0); return y0", {channels}));
  EXPECT_FALSE(epilogue("y0 = multiply(x0, x0); return y0"));
  EXPECT_FALSE(epilogue("y0 = relu(x0); y1 = multiply(x0, x1); return y1", {channels}));
  EXPECT_FALSE(epilogue("y0 = add(x0, x1); y1 = add(y0, x2); return y1", {result, result}));
  EXPECT_FALSE(epilogue("y0 = add(x0, x1); return y0", {{2, 3, 1, 1}}));
  EXPECT_FALSE(epilogue("y0 = add(x0, x1); return y0", {{4, 5}}));
  EXPECT_FALSE(
      epilogue("y0 = tanh(x0); y1 = tanh(y0); y2 = tanh(y1); y3 = tanh(y2); y4 = tanh(y3); y5 = tanh(y4); y6 = tanh(y5); return y6"));
}

/// A convolution that gives its bias, so large that a device's library is worth asking for one kernel.
void expect_special_values_pass(Device device, DType dtype) {
  constexpr std::int64_t channels = 64;
  const double values[] = {std::nan(""), infinite, -infinite, -3, 0, 5, 9};
  const std::pair<const char*, std::function<double(double)>> programs[] = {
      {"y0 = relu(x0); return y0", [](double x) { return x < 0 ? 0 : x; }},
      {"y0 = clamp(x0) {\"min\":0.0,\"max\":6.0}; return y0", [](double x) { return x < 0   ? 0
                                                                                    : x > 6 ? 6
                                                                                            : x; }},
      {"y0 = leaky_relu(x0) {\"negative_slope\":0.5}; return y0", [](double x) { return x < 0 ? x / 2 : x; }},
      {"y0 = add(x0, x1); y1 = relu(y0); return y1", [](double x) { return x < 0 ? 0 : x; }},
      {"y0 = minimum(x0, x1); return y0", [](double x) { return x > 0 ? 0 : x; }},
      {"y0 = maximum(x1, x0); y1 = hard_swish(y0); y2 = relu(y1); return y2", [](double x) { return x < 3 ? 0 : x; }}};
  std::vector<double> bias(channels);
  for (std::size_t c = 0; c < bias.size(); ++c) bias[c] = values[c % std::size(values)];
  Tensor bias_tensor = Tensor::empty({channels}, DType::f64);
  std::copy(bias.begin(), bias.end(), bias_tensor.span<double>().begin());
  for (const auto& [program, expected] : programs) {
    SCOPED_TRACE(concat(program, ' ', dtype));
    const ChainAttributes chain = with(program);
    std::vector<Tensor> inputs = {Tensor::zeros({2, channels, 32, 32}, dtype, device),
                                  Tensor::zeros({channels, channels, 3, 3}, dtype, device), bias_tensor.to(dtype).to(device)};
    if (chain.call.after_inputs() > 0) inputs.push_back(Tensor::zeros({2, channels, 32, 32}, dtype, device));
    const std::vector<double> found = ops::run("chain", inputs, chain)[0].to(Device::cpu()).to_vector<double>();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double value = expected(bias[i / 1024 % channels]);
      wrong += found[i] == value || (std::isnan(found[i]) && std::isnan(value)) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0u) << "of " << found.size();
  }
}

TEST(ConvolutionEpilogue, PassesSpecialValues) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) expect_special_values_pass(Device::cpu(), dtype);
}

class CudaConvolutionEpilogue : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
  void TearDown() override { set_numerics({}); }
};

TEST_F(CudaConvolutionEpilogue, PassesSpecialValues) {
  for (const Numerics& settings : {Numerics{.tf32 = false, .deterministic = true}, Numerics{.tf32 = true}}) {
    set_numerics(settings);
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) expect_special_values_pass({DeviceKind::cuda, 0}, dtype);
  }
}

/// In halves, and of a size that engines like: a relu after a bias and a residual.
TEST_F(CudaConvolutionEpilogue, IsPartOfAPlan) {
  set_numerics({.deterministic = true});
  const Device gpu{DeviceKind::cuda, 0};
  const Tensor image = Tensor::zeros({2, 64, 32, 32}, DType::f16, gpu).contiguous(Layout::channels_last);
  const Tensor result = Tensor::empty({2, 64, 32, 32}, DType::f16, gpu, Layout::channels_last);
  const Tensor inputs[] = {image, Tensor::zeros({64, 64, 3, 3}, DType::f16, gpu).contiguous(Layout::channels_last),
                           Tensor::zeros({64}, DType::f16, gpu), image};
  const Operator& op = ops::registry().find("chain");
  const ops::Attributes attributes = with("y0 = add(x0, x1); y1 = relu(y0); return y1");
  constexpr Layout last = Layout::channels_last;
  const ops::CallLayouts layouts{{last, last, Layout::contiguous, last}, {last}};
  const std::vector<TensorType> types = types_of(inputs);
  const std::size_t bytes = ops::scratch_bytes(op, types, op.infer_types(types, attributes), attributes, gpu, layouts);
  const Tensor scratch = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8, gpu);
  ops::invoke(op, attributes, inputs, std::span(&result, 1), {static_cast<std::byte*>(scratch.raw()), bytes});
  const std::vector<ops::PlanChoice> choices = ops::plan_choices();
  const auto ours = std::find_if(choices.rbegin(), choices.rend(), [](const ops::PlanChoice& choice) {
    return choice.problem.find("channels-last, input 2x64x32x32") != std::string::npos &&
           choice.problem.find("bias, epilogue: residual, rectifier 0 inf 0") != std::string::npos;
  });
  ASSERT_NE(ours, choices.rend());
  EXPECT_TRUE(ours->plans.at(0).fused_epilogue) << ours->problem;
}

}  // namespace
}  // namespace frit::convolution_epilogue_test
