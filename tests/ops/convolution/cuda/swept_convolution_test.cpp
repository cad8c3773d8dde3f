// Convolutions by sweeps over columns of the image, against the definition in float64.

#include "frit/core/cuda/device.h"
#include "frit/ops/chain/chain_attributes.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/elementwise/elementwise.h"
#include "ops/convolution/cuda/convolution_calls.h"

namespace frit {
namespace {

using cudnn::ConvolutionKind;

const Sizes calls[] = {{{2, 32, 11, 7, 19}, 32},
                       {{1, 32, 5, 9, 6}, 40, {0}},
                       {{3, 32, 20, 21, 33}, 64, {2}},
                       {{1, 64, 3, 40, 17}, 64, {1}},
                       {{2, 8, 18, 3, 16}, 8, {0, 1, 2}},
                       {{1, 16, 1, 1, 1}, 16, {1}},
                       {{1, 24, 16, 5, 31}, 56, {2, 0, 1}},
                       {{5, 40, 4, 17, 9}, 24, {1, 2, 0}},
                       {{2, 8, 11, 97}, 64},
                       {{1, 8, 9, 66}, 40, {0}},
                       {{3, 16, 5, 129}, 8, {2, 1}},
                       {{1, 32, 7, 131}, 64, {0, 2}},
                       {{2, 24, 3, 1}, 24, {1}},
                       {{1, 64, 4, 70}, 56, {1}}};

class CudaSweptConvolution : public OnHopper {
 protected:
  static ops::ConvolutionCall call_of(const Sizes& sizes, ConvolutionKind kind, DType dtype, bool filled,
                                      Layout weight_layout = Layout::channels_last) {
    return frit::call_of(sizes, kind, dtype, gpu, filled, weight_layout);
  }

  static Tensor found(const ops::ConvolutionCall& call) {
    call.operands.result(call.kind).fill(NAN);
    const std::optional<ops::OwnKernel> kernel = ops::swept_kernel(call);
    EXPECT_TRUE(kernel && kernel->finishes);
    if (kernel) kernel->run({}, cuda::compute_stream(gpu.index));
    return call.operands.result(call.kind).to(Device::cpu()).contiguous();
  }
};

TEST_F(CudaSweptConvolution, AgreesWithTheDefinition) {
  for (const Sizes& sizes : calls) {
    for (const Arithmetic& arithmetic : arithmetics) {
      if (!arithmetic.tf32) continue;
      for (const ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::data_gradient}) {
        for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
          SCOPED_TRACE(
              concat(sizes.input, ' ', sizes.outputs, ' ', arithmetic.dtype, kind == ConvolutionKind::forward ? " forward" : " back"));
          const ops::ConvolutionCall call = call_of(sizes, kind, arithmetic.dtype, true, layout);
          const Tensor right = by_definition(call), result = found(call);
          EXPECT_TRUE(near(result.to(DType::f64), right, arithmetic.tolerance, largest_finite(right)));
          EXPECT_TRUE(same_bits(result, found(call)));
        }
      }
    }
  }
}

TEST_F(CudaSweptConvolution, FourChannelsOfFloat32) {
  for (const Sizes& sizes : {Sizes{{2, 4, 9, 12, 21}, 32}, Sizes{{2, 4, 12, 140}, 48}}) {
    const ops::ConvolutionCall call = call_of(sizes, ConvolutionKind::forward, DType::f32, true);
    const Tensor right = by_definition(call);
    EXPECT_TRUE(near(found(call).to(DType::f64), right, 1e-3, largest_finite(right)));
  }
}

// A single vector of channels leaves a part of the product without a tap.
TEST_F(CudaSweptConvolution, InfinityStaysInfinity) {
  for (const Shape& input : {Shape{1, 4, 6, 7, 20}, Shape{1, 4, 9, 70}}) {
    ops::ConvolutionCall call = call_of({input, 32}, ConvolutionKind::forward, DType::f32, true);
    const Tensor image = call.operands.input.to(Device::cpu()).contiguous();
    image.data<float>()[image.elements() / 2] = INFINITY;
    call.operands.input = image.to(gpu).contiguous(Layout::channels_last);
    const std::vector<double> right = by_definition(call).to_vector<double>(), result = found(call).to(DType::f64).to_vector<double>();
    std::size_t infinite = 0;
    for (std::size_t i = 0; i < right.size(); ++i) {
      if (std::isfinite(right[i])) continue;
      ++infinite;
      EXPECT_EQ(result[i], right[i]) << "element " << i;
    }
    EXPECT_GT(infinite, 0u);
  }
}

TEST_F(CudaSweptConvolution, TakesAnEpilogue) {
  const Shape deep = {2, 64, 5, 6, 18}, flat = {2, 16, 6, 130};
  constexpr const char* programs[] = {"y0 = relu(x0); return y0",
                                      "y0 = add(x0, x1); y1 = relu(y0); return y1",
                                      "y0 = leaky_relu(x0) {\"negative_slope\":0.1}; y1 = add(y0, x1); return y1",
                                      "y0 = add(x0, x1); return y0",
                                      "y0 = clamp(x0) {\"min\":-0.5,\"max\":1.0}; y1 = relu(y0); return y1",
                                      "y0 = subtract(x1, x0); y1 = mish(y0); return y1",
                                      "y0 = sigmoid(x0); y1 = multiply(x0, y0); y2 = add(y1, x1); y3 = multiply(y2, x1); return y3"};
  for (const char* const text : programs) {
    const ops::ElementwiseProgram program = ops::ElementwiseProgram::parse(text);
    for (const auto& [dtype, input] : {std::pair{DType::f32, deep}, {DType::bf16, deep}, {DType::f32, flat}, {DType::bf16, flat}}) {
      ops::ConvolutionCall call = call_of({input, 24}, ConvolutionKind::forward, dtype, true);
      Tensor right = by_definition(call);
      call.program = &program;
      std::vector<Tensor> operands = {right};
      if (program.inputs > 1) {
        const Tensor residual = normal_tensor(right.shape(), DType::f32, 9).to(dtype);
        operands.push_back(residual.to(DType::f64));
        call.operands.others = {residual.to(gpu).contiguous(Layout::channels_last)};
      }
      const double largest = largest_finite(right);  // before a clamp
      right = ops::run("elementwise", operands, ops::ElementwiseAttributes{program})[0];
      EXPECT_TRUE(near(found(call).to(DType::f64), right, dtype == DType::f32 ? 1e-3 : 1e-2, largest))
          << text << ' ' << dtype << ' ' << input;
    }
  }
}

TEST_F(CudaSweptConvolution, IsTakenWhereItIsFaster) {
  const auto taken = [&](const Sizes& sizes, DType dtype, ConvolutionKind kind = ConvolutionKind::forward) {
    return ops::swept_convolution(call_of(sizes, kind, dtype, false)).has_value();
  };
  constexpr std::int64_t side = 96;
  for (const DType dtype : {DType::f16, DType::f32}) {
    for (const ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::data_gradient}) {
      EXPECT_TRUE(taken({{2, 32, side, side, side}, 32}, dtype, kind)) << dtype;
      EXPECT_TRUE(taken({{2, 64, side, side, side}, 32}, dtype, kind)) << dtype;
      EXPECT_TRUE(taken({{2, 8, side, side, side}, 64}, dtype, kind)) << dtype;
      EXPECT_EQ(taken({{2, 64, side, side, side}, 64}, dtype, kind), dtype == DType::f16);
      EXPECT_FALSE(taken({{2, 72, side, side, side}, 32}, dtype, kind)) << "many channels";
      EXPECT_FALSE(taken({{2, 32, side, side, side}, 30}, dtype, kind)) << "no whole vectors";
      EXPECT_FALSE(taken({{1, 32, 8, 8, 8}, 32}, dtype, kind)) << "a small image";
      EXPECT_FALSE(taken({{2, 32, side, side, side}, 32, {1}, {2}}, dtype, kind)) << "a stride";
      EXPECT_FALSE(taken({{2, 32, side, side, side}, 32, {3}}, dtype, kind)) << "only padding at the edge";
    }
  }
  EXPECT_TRUE(taken({{128, 4, 24, 32, 32}, 24, {0}}, DType::f32)) << "a single vector, in columns that are not full";
  EXPECT_TRUE(taken({{128, 8, 24, 32, 32}, 24, {0}}, DType::f16));
  EXPECT_TRUE(taken({{128, 32, 24, 32, 32}, 32, {0}}, DType::f32));
  EXPECT_FALSE(taken({{128, 64, 24, 32, 32}, 32, {0}}, DType::f32)) << "where cuDNN is not much slower";
  EXPECT_FALSE(taken({{2, 32, side, side, side}, 32}, DType::f64));
  set_numerics({.tf32 = false});
  EXPECT_FALSE(taken({{2, 32, side, side, side}, 32}, DType::f32));
}

TEST_F(CudaSweptConvolution, IsTakenFromFewChannelsIn2d) {
  const auto taken = [&](const Sizes& sizes, DType dtype, ConvolutionKind kind = ConvolutionKind::forward) {
    return ops::swept_convolution(call_of(sizes, kind, dtype, false)).has_value();
  };
  EXPECT_TRUE(taken({{128, 8, 128, 128}, 64, {0}}, DType::f32));
  EXPECT_TRUE(taken({{128, 8, 128, 128}, 24, {0}}, DType::f32));
  EXPECT_TRUE(taken({{16, 16, 256, 256}, 64}, DType::f32));
  EXPECT_TRUE(taken({{16, 32, 256, 256}, 64}, DType::bf16));
  EXPECT_TRUE(taken({{128, 8, 128, 128}, 24}, DType::f16));
  EXPECT_TRUE(taken({{128, 64, 128, 128}, 8}, DType::f32, ConvolutionKind::data_gradient)) << "from the 8 channels of the result";
  EXPECT_FALSE(taken({{128, 8, 128, 128}, 64}, DType::f32, ConvolutionKind::data_gradient)) << "to 8 channels";
  EXPECT_FALSE(taken({{128, 4, 128, 128}, 64}, DType::f32)) << "by tap_convolution";
  EXPECT_FALSE(taken({{128, 8, 128, 128}, 64}, DType::f16)) << "by tap_convolution";
  EXPECT_FALSE(taken({{128, 32, 128, 128}, 64}, DType::f32)) << "many channels";
  EXPECT_FALSE(taken({{128, 8, 128, 128}, 72}, DType::f32)) << "many channels";
  EXPECT_FALSE(taken({{128, 8, 128, 40}, 64}, DType::f32)) << "a narrow image";
  EXPECT_FALSE(taken({{1, 8, 64, 128}, 64}, DType::f32)) << "a small image";
  EXPECT_FALSE(taken({{128, 8, 128, 128}, 64, {0}, {3}, {2}}, DType::f32)) << "a stride";
}

struct Found {
  double count = 0, mean = 0, squares = 0;
};

/// Of each sample's channel, from its parts.
std::vector<Found> merged(const Tensor& moments) {
  std::vector<Found> result;
  const std::vector<double> numbers = moments.to_vector<double>();
  const auto parts = static_cast<std::size_t>(moments.dim(1));
  for (std::size_t first = 0; first < numbers.size(); first += parts * 3) {
    Found found;
    EXPECT_GT(numbers[first], 0) << "the first part";
    for (std::size_t i = first; i < first + 3 * parts; i += 3) {
      if (numbers[i] == 0) continue;
      const double count = found.count + numbers[i], difference = numbers[i + 1] - found.mean;
      found.squares += numbers[i + 2] + difference * difference * found.count * numbers[i] / count;
      found.mean += difference * numbers[i] / count;
      found.count = count;
    }
    result.push_back(found);
  }
  return result;
}

/// Of the image as it lies.
std::vector<Found> moments_of(const Tensor& image) {
  const std::vector<double> values = image.to(DType::f64).to_vector<double>();
  const auto channels = static_cast<std::size_t>(image.dim(0) * image.dim(1)), pixels = values.size() / channels;
  std::vector<Found> result(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const std::span<const double> own = std::span(values).subspan(c * pixels, pixels);
    result[c].count = static_cast<double>(pixels);
    for (const double value : own) result[c].mean += (value - own[0]) / result[c].count;
    result[c].mean += own[0];
    for (const double value : own) result[c].squares += (value - result[c].mean) * (value - result[c].mean);
  }
  return result;
}

// Around numbers far from zero, and of numbers whose squares float32 does not hold.
TEST_F(CudaSweptConvolution, FindsMomentsOfWhatItWrites) {
  const ops::ElementwiseProgram program = ops::ElementwiseProgram::parse("y0 = multiply(x0, x1); y1 = add(y0, x2); return y1");
  const std::pair<double, double> affines[] = {{1, 0}, {1, 3000}, {1e25, 0}, {1e-25, 0}, {0, 7}};
  for (const Sizes& sizes : calls) {
    for (const Arithmetic& arithmetic : arithmetics) {
      if (!arithmetic.tf32) continue;
      for (const auto& [factor, addend] : affines) {
        if (arithmetic.dtype == DType::f16 && (factor > 1 || factor == 1e-25)) continue;
        SCOPED_TRACE(concat(sizes.input, ' ', sizes.outputs, ' ', arithmetic.dtype, ", times ", factor, ", plus ", addend));
        ops::ConvolutionCall call = call_of(sizes, ConvolutionKind::forward, arithmetic.dtype, true);
        call.program = &program;
        for (const double number : {factor, addend}) call.operands.others.push_back(Tensor::full({}, number, DType::f32, gpu));
        const Tensor alone = found(call);
        const std::optional<ops::OwnKernel> kernel = ops::swept_kernel(call);
        ASSERT_TRUE(kernel);
        const Tensor moments = Tensor::zeros({alone.dim(0) * alone.dim(1), kernel->moment_parts, 3}, DType::f64, gpu);
        call.moments = {moments.data<double>(), kernel->moment_parts};
        EXPECT_TRUE(same_bits(found(call), alone));
        const std::vector<Found> here = merged(moments.to(Device::cpu())), right = moments_of(alone);
        ASSERT_EQ(here.size(), right.size());
        for (std::size_t c = 0; c < right.size(); ++c) {
          const double deviation = std::sqrt(right[c].squares / right[c].count);
          EXPECT_EQ(here[c].count, right[c].count) << c;
          EXPECT_NEAR(here[c].mean, right[c].mean, 1e-6 * deviation + 1e-14 * std::abs(right[c].mean)) << c;
          EXPECT_NEAR(here[c].squares, right[c].squares, 2e-5 * right[c].squares) << c;
          if (factor == 0) {
            EXPECT_EQ(here[c].mean, addend);
          }
        }
      }
    }
  }
}

// Through the operators.
TEST_F(CudaSweptConvolution, IsWhatTheOperatorsRun) {
  const Sizes sizes = {{2, 8, 48, 48, 48}, 16};
  EXPECT_TRUE(ops::swept_convolution(call_of(sizes, ConvolutionKind::forward, DType::f16, false)));
  const ConvolutionOptions options = ops::canonical({.padding = {1}}, 3);
  expect_accurate("conv3d", {sizes.input, {16, 8, 3, 3, 3}, {16}}, options);
  expect_accurate("conv3d_data_gradient", {{2, 16, 48, 48, 48}, {16, 8, 3, 3, 3}}, ops::DataGradientOptions{options, {48, 48, 48}});
  const Sizes flat = {{16, 16, 48, 128}, 32};
  EXPECT_TRUE(ops::swept_convolution(call_of(flat, ConvolutionKind::forward, DType::f16, false)));
  expect_accurate("conv2d", {flat.input, {32, 16, 3, 3}, {32}}, ops::canonical({.padding = {1}}, 2));
  for (const char* const program : {"y0 = gelu(x0) {\"approximate\":\"none\"}; return y0",
                                    "y0 = add(x0, x1); y1 = sigmoid(y0); y2 = multiply(y0, y1); y3 = subtract(x1, y2); return y3"}) {
    const ops::ChainAttributes chain{{{}, 0, {&ops::registry().find("conv3d"), options}, ops::ElementwiseProgram::parse(program)}};
    std::vector<Shape> shapes = {sizes.input, {16, 8, 3, 3, 3}, {16}};
    if (chain.call.after_inputs() > 0) shapes.push_back({2, 16, 1, 1, 1});
    expect_accurate("chain", shapes, chain);
  }
}

}  // namespace
}  // namespace frit
