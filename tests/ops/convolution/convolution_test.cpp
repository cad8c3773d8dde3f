#include "frit/ops/convolution/convolution.h"

#include "frit/autograd/gradient_check.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/reduction/reduction.h"
#include "ops/convolution/direct_convolution.h"
#include "ops/elementwise/evaluation.h"
#include "ops/linear/both_precisions.h"

namespace frit::convolution_test {
namespace {

using Options = ConvolutionOptions;

/// The message for float32 tensors of these shapes.
std::string error_of(const char* op, const std::vector<Shape>& shapes, const Options& options = {}) {
  std::vector<TensorType> types;
  for (const Shape& shape : shapes) types.push_back({DType::f32, shape});
  return message_of([&] { ops::registry().find(op).infer_types(types, options); });
}

TEST(Convolution, NamesWhatDoesNotFit) {
  EXPECT_EQ(error_of("conv2d", {{128, 4, 32, 32}, {64, 3, 3, 3}}),
            "conv2d: weight has 3 input channels, input has 4 (input 128x4x32x32, weight 64x3x3x3)");
  EXPECT_EQ(error_of("conv2d", {{1, 5, 4, 4}, {4, 2, 3, 3}}, {.groups = 2}),
            "conv2d: 5 input channels cannot be divided into 2 groups (input 1x5x4x4, weight 4x2x3x3)");
  EXPECT_EQ(error_of("conv2d", {{1, 6, 4, 4}, {4, 2, 3, 3}}, {.groups = 2}),
            "conv2d: weight has 2 input channels for each of 2 groups, input has 6 (input 1x6x4x4, weight 4x2x3x3)");
  EXPECT_EQ(error_of("conv2d", {{1, 4, 4, 4}, {3, 2, 3, 3}}, {.groups = 2}),
            "conv2d: 3 output channels cannot be divided into 2 groups (input 1x4x4x4, weight 3x2x3x3)");
  EXPECT_EQ(error_of("conv2d", {{1, 2, 4, 4}, {3, 2, 3, 3}, {4}}), "conv2d: bias has shape 4, expected 3 (input 1x2x4x4, weight 3x2x3x3)");
  EXPECT_EQ(error_of("conv2d", {{1, 2, 4, 4}, {3, 2, 3, 3}, {3, 1}}),
            "conv2d: bias has shape 3x1, expected 3 (input 1x2x4x4, weight 3x2x3x3)");
  EXPECT_EQ(error_of("conv2d", {{2, 4, 4}, {3, 2, 3, 3}}), "conv2d: input has rank 3, expected 4 (input 2x4x4, weight 3x2x3x3)");
  EXPECT_EQ(error_of("conv3d", {{1, 2, 4, 4, 4}, {3, 2, 3, 3}}), "conv3d: weight has rank 4, expected 5 (input 1x2x4x4x4, weight 3x2x3x3)");
  EXPECT_EQ(error_of("conv2d", {{1, 2, 4, 4}}), "conv2d: expected 2 to 3 inputs, got 1");
  const std::vector<TensorType> mixed = {{DType::f32, {1, 2, 4, 4}}, {DType::f64, {3, 2, 3, 3}}};
  EXPECT_EQ(message_of([&] { ops::registry().find("conv2d").infer_types(mixed, Options{}); }),
            "conv2d: input \"weight\" is f64, input \"input\" is f32");
}

TEST(Convolution, RefusesChannelsAndImagesOfNothing) {
  EXPECT_EQ(error_of("conv2d", {{1, 0, 5, 5}, {4, 0, 3, 3}}), "conv2d: there are no input channels (input 1x0x5x5, weight 4x0x3x3)");
  EXPECT_EQ(error_of("conv2d", {{1, 2, 5, 5}, {0, 2, 3, 3}}), "conv2d: there are no output channels (input 1x2x5x5, weight 0x2x3x3)");
  EXPECT_EQ(error_of("conv2d", {{1, 2, 5, 5}, {3, 2, 0, 3}}), "conv2d: the kernel 0x3 is empty (input 1x2x5x5, weight 3x2x0x3)");
  EXPECT_EQ(error_of("conv2d", {{1, 2, 0, 5}, {3, 2, 3, 3}}, {.padding = {2}}),
            "conv2d: the input's image 0x5 is empty (input 1x2x0x5, weight 3x2x3x3)");
}

TEST(Convolution, RefusesAKernelLargerThanThePaddedInput) {
  EXPECT_EQ(error_of("conv2d", {{1, 2, 3, 5}, {4, 2, 5, 5}}, {.padding = {0, 1}}),
            "conv2d: the kernel, 5x5 with its dilation, is larger than the padded input, 3x7 (input 1x2x3x5, weight 4x2x5x5)");
  EXPECT_EQ(error_of("conv3d", {{1, 1, 4, 4, 4}, {1, 1, 3, 3, 3}}, {.dilation = {1, 2, 1}}),
            "conv3d: the kernel, 3x5x3 with its dilation, is larger than the padded input, 4x4x4 (input 1x1x4x4x4, weight 1x1x3x3x3)");
}

TEST(Convolution, RefusesBadSettings) {
  const auto of = [](const Options& options) { return error_of("conv2d", {{1, 4, 8, 8}, {4, 4, 3, 3}}, options); };
  EXPECT_EQ(of({.stride = {0, 1}}), "conv2d: stride must be positive, got 0x1");
  EXPECT_EQ(of({.padding = {-1}}), "conv2d: padding must not be negative, got -1");
  EXPECT_EQ(of({.dilation = {1, 0}}), "conv2d: dilation must be positive, got 1x0");
  EXPECT_EQ(of({.groups = 0}), "conv2d: groups must be positive, got 0");
  EXPECT_EQ(of({.stride = {1, 2, 3}}), "conv2d: stride has 3 numbers, expected 2 or one");
  EXPECT_EQ(of({.output_padding = {1}}), "conv2d: output_padding is for transposed convolutions, got 1");
  EXPECT_EQ(of({.padding = {std::int64_t{1} << 62}}), "conv2d: padding must be at most 1073741824, got 4611686018427387904");
}

TEST(Convolution, SettingsThatAreEqualAreEqualAttributes) {
  Graph graph;
  const Value x = graph.input("x", {1, 2, 6, 6}), weight = graph.input("weight", {3, 2, 3, 3});
  const auto attributes = [&](const Options& options) { return graph.producer(conv2d(x, weight, {}, options).id()).attributes; };
  EXPECT_EQ(attributes({}), attributes({.stride = {1}, .padding = {0, 0}, .output_padding = {0}, .dilation = {1}}));
  EXPECT_EQ(attributes({.stride = {2}}), attributes({.stride = {2, 2}}));
  EXPECT_FALSE(attributes({.stride = {2, 1}}) == attributes({.stride = {2, 2}}));
}

TEST(Convolution, OfAnEmptyBatchHasZeroGradientsOfItsParameters) {
  for (const int image_rank : {2, 3}) {
    const Shape image = image_rank == 2 ? Shape{0, 2, 5, 5} : Shape{0, 2, 5, 5, 5};
    const Shape kernel = image_rank == 2 ? Shape{3, 2, 3, 3} : Shape{3, 2, 3, 3, 3};
    const auto function = [&](const Values& v) { return (image_rank == 2 ? conv2d : conv3d)(v[0], v[1], v[2], {}); };
    const Evaluation result = evaluate(function, {Tensor::zeros(image), Tensor::full(kernel, 1), Tensor::full({3}, 1)});
    EXPECT_TRUE(result.output.empty());
    EXPECT_TRUE(result.gradients[0].empty());
    EXPECT_EQ(result.gradients[1], std::vector<double>(static_cast<std::size_t>(element_count(kernel)), 0.0));
    EXPECT_EQ(result.gradients[2], std::vector<double>(3, 0.0));
  }
}

TEST(Convolution, ReadsZerosWherePaddingReachesBeyondTheKernel) {
  const Tensor x = Tensor::from<double>({1, 2, 3, 4}, {1, 1, 2, 2}), weight = Tensor::from<double>({1, 10}, {1, 1, 1, 2});
  const Tensor y = ops::run("conv2d", {x, weight}, Options{.padding = {1, 2}})[0];
  EXPECT_EQ(y.shape(), (Shape{1, 1, 4, 5}));
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{0, 0, 0, 0, 0, 0, 10, 21, 2, 0, 0, 30, 43, 4, 0, 0, 0, 0, 0, 0}));
}

TEST(Convolution, WithADilationBeyondTheImageSeesTheCentreOnly) {
  const Tensor x = Tensor::from<double>({1, 2, 3, 4}, {1, 1, 2, 2});
  const Tensor weight = Tensor::from<double>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3});
  const Tensor y = ops::run("conv2d", {x, weight}, Options{.padding = {7}, .dilation = {7}})[0];
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{5, 10, 15, 20}));
}

TEST(Convolution, WithAStrideBeyondTheKernelSkipsInput) {
  const Tensor x = Tensor::from<double>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 1, 9}), weight = Tensor::from<double>({1, 10}, {1, 1, 1, 2});
  const Tensor y = ops::run("conv2d", {x, weight}, Options{.stride = {1, 4}})[0];
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{21, 65}));
}

TEST(Convolution, SpreadsNaNAndInfinityAsFarAsTheKernelReaches) {
  const Tensor weight = Tensor::from<double>({0, 1}, {1, 1, 1, 2});
  const auto of = [&](double value) {
    return ops::run("conv2d", {Tensor::from<double>({1, value, 3, 4}, {1, 1, 1, 4}), weight}, Options{})[0].to_vector<double>();
  };
  EXPECT_TRUE(equal_numbers(of(inf), {inf, nan, 4}));
  EXPECT_TRUE(equal_numbers(of(nan), {nan, nan, 4}));
}

TEST(Convolution, OfGroupsKeepsNaNInItsGroup) {
  std::vector<double> numbers(8, 1);
  numbers[1] = nan;
  const Tensor x = Tensor::from<double>(numbers, {1, 8, 1, 1}), weight = Tensor::full({8, 2, 1, 1}, 1);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> y = ops::run("conv2d", {x.to(dtype), weight.to(dtype)}, Options{.groups = 4})[0].to_vector<double>();
    EXPECT_TRUE(equal_numbers(y, {nan, nan, 2, 2, 2, 2, 2, 2}));
  }
}

/// Shapes on all sides of the sizes that the kernels cut their work at.
struct Large {
  Shape input, weight;
  Options options = {};
};

const Large large_cases[] = {
    {{3, 40, 9, 11}, {33, 40, 2, 3}, {.padding = {1}}},                                      // deeper than a block, odd tiles
    {{2, 150, 6, 7}, {140, 150, 1, 1}},                                                      // more channels than a block
    {{19, 2, 4, 3}, {5, 2, 3, 3}, {.padding = {1}}},                                         // several samples a block
    {{2, 3, 40, 50}, {17, 3, 3, 3}, {.stride = {2, 1}, .padding = {1, 0}}},                  // several blocks a sample
    {{2, 3, 13, 37}, {4, 3, 3, 4}, {.stride = {1, 2}, .padding = {2}, .dilation = {1, 3}}},  // every second element, and a dilation
    {{2, 24, 10, 40}, {6, 4, 3, 3}, {.stride = {3, 2}, .padding = {1}, .groups = 6}},        // phases of unequal size
    {{2, 60, 5, 20}, {2, 60, 3, 3}, {.stride = {2}, .padding = {1}}},                        // far fewer output channels
    {{4, 3, 34, 35}, {32, 3, 7, 7}, {.stride = {2}, .padding = {3}}},                        // few channels at many positions
    {{2, 40, 9, 14}, {24, 40, 1, 1}, {.stride = {2, 3}}},                                    // not all pixels, and not all of a line
    {{1, 56, 6, 6}, {40, 28, 5, 5}, {.stride = {2}, .padding = {2}, .groups = 2}},           // parts of lines in a group
    {{3, 16, 9, 12}, {24, 16, 3, 3}, {.stride = {2}, .padding = {1}}},                       // whole vectors, fewer at the end of a phase
    {{1, 16, 5, 4, 7}, {8, 16, 3, 2, 3}, {.stride = {2, 1, 3}, .padding = {1}}},
    {{1, 9, 4, 9, 35}, {8, 9, 3, 2, 3}, {.stride = {2, 1, 2}, .padding = {1}, .dilation = {1, 2, 1}}},
    {{1, 40, 5, 6}, {200, 40, 3, 2}, {.padding = {1}}},            // a window for several parts of the columns
    {{1, 1024, 4, 5}, {200, 1024, 1, 1}},                          // pixels that share places in the nearest cache
    {{1, 5, 9, 12}, {5, 1, 3, 3}, {.padding = {1}, .groups = 5}},  // fewer channels than a vector has elements
    {{2, 20, 9, 13}, {20, 4, 3, 3}, {.padding = {1}, .groups = 5}},
    {{1, 6, 9, 10}, {6, 2, 3, 3}, {.stride = {2}, .padding = {1}, .groups = 3}},
    {{1, 24, 3, 5, 7}, {24, 8, 2, 3, 3}, {.padding = {1}, .dilation = {1, 2, 1}, .groups = 3}},
    {{1, 12, 7, 15}, {24, 1, 3, 5}, {.stride = {1, 2}, .padding = {1, 2}, .groups = 12}},  // several kernels for each channel
    {{1, 5, 6, 9}, {40, 1, 3, 3}, {.padding = {1}, .groups = 5}},
};

TEST(Convolution, EqualsTheDefiningSumInEveryDirection) {
  for (const Large& c : large_cases) {
    const int image_rank = c.input.rank() - 2;
    const std::string name = image_rank == 2 ? "conv2d" : "conv3d";
    SCOPED_TRACE(concat(name, " input ", c.input, ", weight ", c.weight, ", ", fields_text(c.options)));
    const DirectConvolution direct(c.input, c.weight, c.options);
    const ops::DataGradientOptions data{c.options, ops::image_of(c.input)};
    const ops::WeightGradientOptions weight{c.options, ops::image_of(c.weight)};
    for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
      const Tensor input = direct.input.contiguous(layout), gradient = direct.gradient.contiguous(layout);
      const Tensor kernel = c.options.groups > 1 ? direct.weight.contiguous(layout) : direct.weight;
      expect_in_both_precisions(name, {input, kernel, direct.bias}, c.options, direct.output);
      expect_in_both_precisions(name + "_data_gradient", {gradient, kernel}, data, direct.data_gradient);
      expect_in_both_precisions(name + "_weight_gradient", {gradient, input}, weight, direct.weight_gradient);
    }
  }
}

TEST(Convolution, IsDifferentiableTwice) {
  const DirectConvolution numbers({2, 2, 4, 3}, {2, 1, 2, 2}, {.groups = 2});
  Graph graph;
  const Value x = graph.input("x", numbers.input.shape(), DType::f64), weight = graph.input("weight", numbers.weight.shape(), DType::f64);
  const Value y = conv2d(x, weight, {}, {.stride = {2, 1}, .padding = {1, 0}, .groups = 2});
  const Values first = gradient(sum(y * y), Values{x, weight});
  for (std::size_t i = 0; i < first.size(); ++i) graph.output(concat("gradient", i), first[i]);
  const Bindings inputs = {{"x", numbers.input}, {"weight", numbers.weight}};
  for (const GradientCheckResult& result : check_gradients(graph, inputs, std::make_shared<State>())) {
    EXPECT_TRUE(result.passed()) << result.name << ": " << result.first_failure;
  }
}

}  // namespace
}  // namespace frit::convolution_test
