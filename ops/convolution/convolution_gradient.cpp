#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/cpu/convolution_kernel.h"
#include "frit/ops/convolution/lowerings/convolution_lowerings.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

/// One number an image axis, and no output_padding.
ConvolutionOptions forward_options(const ConvolutionOptions& options, int image_rank) {
  ConvolutionOptions result = canonical(options, image_rank);
  result.output_padding = {};
  return result;
}

Values data_gradient_gradient(const GradientContext& c) {
  const ConvolutionOptions& options = c.as<DataGradientOptions>().convolution;
  const Value gradient = c.inputs[0], weight = c.inputs[1], seed = c.gradients[0];
  Values result(2);
  if (c.wanted[0]) result[0] = convolution(seed, weight, options);
  if (c.wanted[1]) result[1] = weight_gradient(gradient, seed, options, image_of(weight.shape()));
  return result;
}

Values weight_gradient_gradient(const GradientContext& c) {
  const ConvolutionOptions& options = c.as<WeightGradientOptions>().convolution;
  const Value gradient = c.inputs[0], input = c.inputs[1], seed = c.gradients[0];
  Values result(2);
  if (c.wanted[0]) result[0] = convolution(input, seed, options);
  if (c.wanted[1]) result[1] = data_gradient(gradient, seed, options, image_of(input.shape()));
  return result;
}

void run_weight_gradient(const KernelContext& call) {
  const ConvolutionGeometry g = weight_gradient_geometry(call.inputs[0].shape(), call.inputs[1].shape(), call.as<WeightGradientOptions>());
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    convolve_weight_gradient<T>(g, read<T>(call.inputs[0]), read<T>(call.inputs[1]), written<T>(call.outputs[0]), call.scratch);
  });
}

std::string describe_weight_gradient(const KernelContext& call) {
  const ConvolutionGeometry g = weight_gradient_geometry(call.inputs[0].shape(), call.inputs[1].shape(), call.as<WeightGradientOptions>());
  return weight_gradient_schedule(g, {.source = call.inputs[1].layout(), .output = call.inputs[0].layout()},
                                  size_of(call.inputs[0].dtype()));
}

std::size_t weight_gradient_scratch(const InferContext& call) {
  const ConvolutionGeometry g = weight_gradient_geometry(call.shape(0), call.shape(1), call.as<WeightGradientOptions>());
  return convolve_weight_gradient_scratch(g, {.source = call.input_layout(1), .output = call.input_layout(0)},
                                          size_of(call.inputs[0].dtype));
}

std::vector<Sample> data_gradient_samples(int image_rank) {
  if (image_rank == 2) {
    return {{{Shape{2, 4, 3, 6}, Shape{4, 3, 3, 2}}, DataGradientOptions{{}, {5, 7}}},
            {{Shape{2, 6, 4, 4}, Shape{6, 2, 2, 3}}, DataGradientOptions{{.stride = {2}, .padding = {1, 2}, .groups = 2}, {6, 5}}},
            {{Shape{1, 3, 2, 3}, Shape{3, 1, 3, 1}},
             DataGradientOptions{{.stride = {2, 3}, .padding = {1, 0}, .dilation = {2, 1}, .groups = 3}, {6, 8}}},
            {{Shape{2, 8, 5, 6}, Shape{8, 1, 3, 3}}, DataGradientOptions{{.padding = {1}, .groups = 8}, {5, 6}}},
            {{Shape{1, 4, 3, 4}, Shape{4, 1, 3, 5}}, DataGradientOptions{{.stride = {2}, .padding = {1, 2}, .groups = 4}, {6, 7}}},
            {{Shape{1, 1, 1, 1}, Shape{1, 1, 1, 1}}, DataGradientOptions{{}, {1}}},
            {{Shape{3, 4, 2, 5}, Shape{4, 8, 1, 1}}, DataGradientOptions{{}, {2, 5}}},
            {{Shape{0, 3, 2, 2}, Shape{3, 2, 3, 3}}, DataGradientOptions{{}, {4}}}};
  }
  return {
      {{Shape{2, 3, 2, 2, 2}, Shape{3, 2, 2, 3, 2}}, DataGradientOptions{{}, {3, 4, 3}}},
      {{Shape{1, 4, 3, 4, 2}, Shape{4, 1, 3, 2, 2}}, DataGradientOptions{{.stride = {2, 1, 3}, .padding = {1}, .groups = 2}, {5, 3, 4}}},
      {{Shape{1, 2, 1, 2, 3}, Shape{2, 1, 2, 2, 2}}, DataGradientOptions{{.padding = {0, 1, 1}, .dilation = {2, 3, 1}}, {3, 3, 2}}},
      {{Shape{0, 3, 1, 1, 1}, Shape{3, 2, 3, 3, 3}}, DataGradientOptions{{}, {3}}}};
}

std::vector<Sample> weight_gradient_samples(int image_rank) {
  if (image_rank == 2) {
    return {{{Shape{2, 4, 3, 6}, Shape{2, 3, 5, 7}}, WeightGradientOptions{{}, {3, 2}}},
            {{Shape{2, 6, 4, 4}, Shape{2, 4, 6, 5}}, WeightGradientOptions{{.stride = {2}, .padding = {1, 2}, .groups = 2}, {2, 3}}},
            {{Shape{1, 3, 2, 3}, Shape{1, 3, 6, 8}},
             WeightGradientOptions{{.stride = {2, 3}, .padding = {1, 0}, .dilation = {2, 1}, .groups = 3}, {3, 1}}},
            {{Shape{2, 8, 5, 6}, Shape{2, 8, 5, 6}}, WeightGradientOptions{{.padding = {1}, .groups = 8}, {3, 3}}},
            {{Shape{1, 4, 3, 4}, Shape{1, 4, 6, 7}}, WeightGradientOptions{{.stride = {2}, .padding = {1, 2}, .groups = 4}, {3, 5}}},
            {{Shape{2, 8, 1, 99}, Shape{2, 8, 1, 99}}, WeightGradientOptions{{.padding = {0, 1}, .groups = 8}, {1, 3}}},
            {{Shape{1, 4, 1, 70}, Shape{1, 4, 1, 140}}, WeightGradientOptions{{.stride = {1, 2}, .padding = {0, 1}, .groups = 4}, {1, 3}}},
            {{Shape{1, 3, 2, 61}, Shape{1, 3, 2, 61}}, WeightGradientOptions{{.padding = {0, 8}, .dilation = {1, 8}, .groups = 3}, {1, 3}}},
            {{Shape{1, 1, 1, 1}, Shape{1, 1, 1, 1}}, WeightGradientOptions{{}, {1}}},
            {{Shape{3, 4, 3, 5}, Shape{3, 8, 3, 5}}, WeightGradientOptions{{}, {1}}},
            {{Shape{0, 3, 2, 2}, Shape{0, 2, 4, 4}}, WeightGradientOptions{{}, {3}}},
            {{Shape{0, 40, 2, 2}, Shape{0, 2, 3, 3}}, WeightGradientOptions{{}, {2}}}};
  }
  return {
      {{Shape{2, 3, 2, 2, 2}, Shape{2, 2, 3, 4, 3}}, WeightGradientOptions{{}, {2, 3, 2}}},
      {{Shape{1, 4, 3, 4, 2}, Shape{1, 2, 5, 3, 4}}, WeightGradientOptions{{.stride = {2, 1, 3}, .padding = {1}, .groups = 2}, {3, 2, 2}}},
      {{Shape{1, 2, 1, 2, 3}, Shape{1, 1, 3, 3, 2}}, WeightGradientOptions{{.padding = {0, 1, 1}, .dilation = {2, 3, 1}}, {2}}},
      {{Shape{2, 8, 3, 1, 5}, Shape{2, 4, 3, 1, 5}}, WeightGradientOptions{{}, {1}}},
      {{Shape{0, 3, 1, 1, 1}, Shape{0, 2, 3, 3, 3}}, WeightGradientOptions{{}, {3}}}};
}

}  // namespace

Value data_gradient(Value gradient, Value weight, const ConvolutionOptions& options, const Dims& input_size) {
  const int image_rank = gradient.rank() - 2;
  const DataGradientOptions attributes{forward_options(options, image_rank), input_size};
  return emit_one(convolution_name("conv", image_rank, "_data_gradient"), {gradient, weight}, attributes);
}

Value weight_gradient(Value gradient, Value input, const ConvolutionOptions& options, const Dims& kernel_size) {
  const int image_rank = gradient.rank() - 2;
  const WeightGradientOptions attributes{forward_options(options, image_rank), kernel_size};
  return emit_one(convolution_name("conv", image_rank, "_weight_gradient"), {gradient, input}, attributes);
}

}  // namespace frit::ops

FRIT_OPERATORS(convolution_gradient) {
  for (const int image_rank : {2, 3}) {
    registry.add<DataGradientOptions>({
        .name = convolution_name("conv", image_rank, "_data_gradient"),
        .summary = "the gradient of a convolution's input from that of its output",
        .inputs = {"gradient", "weight"},
        .infer = [image_rank](const InferContext& call) { return infer_data_gradient(call, image_rank); },
        .gradient = data_gradient_gradient,
        .cpu = convolution_kernel([](const Shape& gradient, const Shape& weight,
                                     const Attributes& a) { return data_gradient_geometry(gradient, weight, a.as<DataGradientOptions>()); },
                                  /*back=*/true),
        .samples = [image_rank] { return data_gradient_samples(image_rank); },
        .multiplications = [](const InferContext& call, const TensorType&) { return multiplications_of(call.inputs[0], call.inputs[1]); },
    });
    registry.add<WeightGradientOptions>({
        .name = convolution_name("conv", image_rank, "_weight_gradient"),
        .summary = "the gradient of a convolution's weight from that of its output",
        .inputs = {"gradient", "input"},
        .infer = [image_rank](const InferContext& call) { return infer_weight_gradient(call, image_rank); },
        .gradient = weight_gradient_gradient,
        .lowerings = {im2col_weight_gradient("first taps as channels", 1), im2col_weight_gradient("all taps as channels", image_rank),
                      dense_weight_gradient("diagonal of a dense gradient"), merged_pixels("pixels merged")},
        .is_gradient = true,
        .cpu = {.run = run_weight_gradient,
                .scratch = weight_gradient_scratch,
                .any_layout_inputs = {0, 1},
                .prefers_channels_last = true,
                .describe = describe_weight_gradient},
        .samples = [image_rank] { return weight_gradient_samples(image_rank); },
        .multiplications = [](const InferContext& call, const TensorType& output) { return multiplications_of(call.inputs[0], output); },
    });
  }
}
