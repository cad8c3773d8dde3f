#include "frit/ops/convolution/geometry.h"

#include <algorithm>
#include <ostream>

#include "frit/ops/operator/operator.h"

namespace frit {

namespace ops {
namespace {

/// Sizes and settings up to this keep every product of two of them within 64 bits.
constexpr std::int64_t most = std::int64_t{1} << 30;

/// The fields that the gradients share with the convolution.
void common_fields(FieldVisitor& v, ConvolutionOptions& options) {
  v.field("stride", options.stride);
  v.field("padding", options.padding);
  v.field("dilation", options.dilation);
  v.field("groups", options.groups);
}

Dims canonical(const Dims& dims, int image_rank, std::int64_t missing) {
  if (dims.empty()) return Dims::filled(image_rank, missing);
  return dims.rank() == 1 ? Dims::filled(image_rank, dims[0]) : dims;
}

/// `dims` as three axes; `missing` stands for a depth that is not there and for no numbers at all.
ImageAxes axes_of(const Dims& dims, int image_rank, std::int64_t missing) {
  const Dims full = canonical(dims, image_rank, missing);
  ImageAxes axes = {missing, missing, missing};
  std::copy(full.begin(), full.end(), axes.end() - full.rank());
  return axes;
}

ImageAxes image_axes(const Shape& shape) { return axes_of(image_of(shape), shape.rank() - 2, 1); }

/// The last `image_rank` axes, as a shape.
Dims image_dims(const ImageAxes& axes, int image_rank) { return Dims(std::span(axes).last(static_cast<std::size_t>(image_rank))); }

Shape shape_of(std::int64_t first, std::int64_t second, const Dims& image) {
  Shape shape{first, second};
  for (const std::int64_t size : image) shape.push_back(size);
  return shape;
}

bool all_positive(const ImageAxes& axes) {
  return std::all_of(axes.begin(), axes.end(), [](std::int64_t size) { return size > 0; });
}

/// But for the sizes of input, output and kernel. The channels are of a group.
ConvolutionGeometry with_options(const ConvolutionOptions& options, const Shape& image, std::int64_t in_channels,
                                 std::int64_t out_channels) {
  const int image_rank = image.rank() - 2;
  return {.batch = image[0],
          .groups = options.groups,
          .in_channels = in_channels,
          .out_channels = out_channels,
          .stride = axes_of(options.stride, image_rank, 1),
          .padding = axes_of(options.padding, image_rank, 0),
          .dilation = axes_of(options.dilation, image_rank, 1)};
}

std::int64_t kernel_extent(const ConvolutionGeometry& g, std::size_t axis) { return g.dilation[axis] * (g.kernel[axis] - 1) + 1; }

ImageAxes output_axes(const ConvolutionGeometry& g) {
  ImageAxes output;
  for (std::size_t i = 0; i < 3; ++i) output[i] = (g.input[i] + 2 * g.padding[i] - kernel_extent(g, i)) / g.stride[i] + 1;
  return output;
}

/// " (input 1x3x8x8, weight 4x3x3x3)", put together where it is printed: most calls have no mistake to be told.
struct ShapesOf {
  const InferContext& call;

  friend std::ostream& operator<<(std::ostream& out, const ShapesOf& shapes) {
    const auto& [of] = shapes;
    return out << " (" << of.op.inputs[0].name << ' ' << of.shape(0) << ", " << of.op.inputs[1].name << ' ' << of.shape(1) << ')';
  }
};
ShapesOf shapes_of(const InferContext& call) { return {call}; }

void check_setting(const InferContext& call, const char* name, const Dims& dims, int image_rank, std::int64_t least) {
  call.require(dims.rank() <= 1 || dims.rank() == image_rank, name, " has ", dims.rank(), " numbers, expected ", image_rank, " or one");
  const bool enough = std::all_of(dims.begin(), dims.end(), [&](std::int64_t value) { return value >= least; });
  call.require(enough, name, least > 0 ? " must be positive, got " : " must not be negative, got ", dims);
  const bool small = std::all_of(dims.begin(), dims.end(), [](std::int64_t value) { return value <= most; });
  call.require(small, name, " must be at most ", most, ", got ", dims);
}

/// A setting without a default.
void check_size(const InferContext& call, const char* name, const Dims& dims, int image_rank) {
  call.require(!dims.empty(), name, " is missing: one number an image axis");
  check_setting(call, name, dims, image_rank, 1);
}

/// What all the operators ask of their settings and of inputs 0 and 1.
/// The first input is of the others' dtype, or if it `may_be_wide`, float32 with halves.
void check_call(const InferContext& call, const ConvolutionOptions& options, int image_rank, bool may_be_wide = false) {
  const DType first = call.inputs[0].dtype, wanted = may_be_wide && takes_image(first, call.inputs[1].dtype) ? call.inputs[1].dtype : first;
  for (std::size_t i = 1; i < call.inputs.size(); ++i) {
    call.require(call.inputs[i].dtype == wanted, "input \"", call.op.inputs[i].name, "\" is ", call.inputs[i].dtype, ", input \"",
                 call.op.inputs[0].name, "\" is ", first);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    call.require(call.shape(i).rank() == image_rank + 2, call.op.inputs[i].name, " has rank ", call.shape(i).rank(), ", expected ",
                 image_rank + 2, shapes_of(call));
    for (const std::int64_t size : image_of(call.shape(i))) {
      call.require(size <= most, call.op.inputs[i].name, " has an image axis above ", most, shapes_of(call));
    }
  }
  check_setting(call, "stride", options.stride, image_rank, 1);
  check_setting(call, "padding", options.padding, image_rank, 0);
  check_setting(call, "dilation", options.dilation, image_rank, 1);
  call.require(options.groups > 0, "groups must be positive, got ", options.groups);
}

void check_channels(const InferContext& call, const char* what, std::int64_t channels, std::int64_t groups) {
  call.require(channels > 0, "there are no ", what, " channels", shapes_of(call));
  call.require(channels % groups == 0, channels, " ", what, " channels cannot be divided into ", groups, " groups", shapes_of(call));
}

void check_weight_channels(const InferContext& call, std::int64_t weight_channels, const char* kind, std::int64_t channels,
                           std::int64_t groups) {
  const std::string each = groups == 1 ? "" : concat(" for each of ", groups, " groups");
  call.require(weight_channels * groups == channels, "weight has ", weight_channels, " ", kind, " channels", each, ", ",
               call.op.inputs[0].name, " has ", channels, shapes_of(call));
}

void check_kernel(const InferContext& call, const ConvolutionGeometry& g, int image_rank) {
  call.require(all_positive(g.input), "the input's image ", image_dims(g.input, image_rank), " is empty", shapes_of(call));
  call.require(all_positive(g.kernel), "the kernel ", image_dims(g.kernel, image_rank), " is empty", shapes_of(call));
  ImageAxes extent, padded;
  bool fits = true;
  for (std::size_t i = 0; i < 3; ++i) {
    extent[i] = kernel_extent(g, i);
    padded[i] = g.input[i] + 2 * g.padding[i];
    fits = fits && extent[i] <= padded[i];
  }
  call.require(fits, "the kernel, ", image_dims(extent, image_rank), " with its dilation, is larger than the padded input, ",
               image_dims(padded, image_rank), shapes_of(call));
}

void check_bias(const InferContext& call, std::int64_t channels) {
  if (!call.has(2)) return;
  call.require(call.shape(2) == Shape{channels}, "bias has shape ", call.shape(2), ", expected ", channels, shapes_of(call));
}

/// The output gradient must have the size that the convolution's output has.
void check_gradient(const InferContext& call, const ConvolutionGeometry& g, int image_rank) {
  call.require(output_axes(g) == g.output, "the convolution's output is ", image_dims(output_axes(g), image_rank), ", its gradient ",
               image_dims(g.output, image_rank), shapes_of(call));
}

}  // namespace

void DataGradientOptions::fields(FieldVisitor& v) {
  common_fields(v, convolution);
  v.field("input_size", input_size);
}

void WeightGradientOptions::fields(FieldVisitor& v) {
  common_fields(v, convolution);
  v.field("kernel_size", kernel_size);
}

ConvolutionOptions canonical(ConvolutionOptions options, int image_rank) {
  options.stride = canonical(options.stride, image_rank, 1);
  options.padding = canonical(options.padding, image_rank, 0);
  options.dilation = canonical(options.dilation, image_rank, 1);
  options.output_padding = canonical(options.output_padding, image_rank, 0);
  return options;
}

Dims image_of(const Shape& shape) { return Dims(std::span<const std::int64_t>(shape.begin() + 2, shape.end())); }

ConvolutionGeometry convolution_geometry(const Shape& input, const Shape& weight, const ConvolutionOptions& options) {
  ConvolutionGeometry g = with_options(options, input, weight[1], weight[0] / options.groups);
  g.input = image_axes(input);
  g.kernel = image_axes(weight);
  g.output = output_axes(g);
  return g;
}

ConvolutionGeometry transposed_geometry(const Shape& input, const Shape& weight, const ConvolutionOptions& options) {
  ConvolutionGeometry g = with_options(options, input, weight[1], weight[0] / options.groups);
  g.output = image_axes(input);
  g.kernel = image_axes(weight);
  const ImageAxes extra = axes_of(options.output_padding, input.rank() - 2, 0);
  for (std::size_t i = 0; i < 3; ++i) {
    g.input[i] = (g.output[i] - 1) * g.stride[i] - 2 * g.padding[i] + kernel_extent(g, i) + extra[i];
  }
  return g;
}

ConvolutionGeometry data_gradient_geometry(const Shape& gradient, const Shape& weight, const DataGradientOptions& options) {
  ConvolutionGeometry g = with_options(options.convolution, gradient, weight[1], weight[0] / options.convolution.groups);
  g.input = axes_of(options.input_size, gradient.rank() - 2, 1);
  g.output = image_axes(gradient);
  g.kernel = image_axes(weight);
  return g;
}

ConvolutionGeometry weight_gradient_geometry(const Shape& gradient, const Shape& input, const WeightGradientOptions& options) {
  const std::int64_t groups = options.convolution.groups;
  ConvolutionGeometry g = with_options(options.convolution, gradient, input[1] / groups, gradient[1] / groups);
  g.input = image_axes(input);
  g.output = image_axes(gradient);
  g.kernel = axes_of(options.kernel_size, gradient.rank() - 2, 1);
  return g;
}

std::vector<TensorType> infer_convolution(const InferContext& call, int image_rank) {
  const auto& options = call.as<ConvolutionOptions>();
  const Shape &input = call.shape(0), &weight = call.shape(1);
  check_call(call, options, image_rank, /*may_be_wide=*/true);
  const Dims& extra = options.output_padding;
  call.require(std::count(extra.begin(), extra.end(), 0) == extra.rank(), "output_padding is for transposed convolutions, got ", extra);
  check_channels(call, "input", input[1], options.groups);
  check_weight_channels(call, weight[1], "input", input[1], options.groups);
  check_channels(call, "output", weight[0], options.groups);
  const ConvolutionGeometry g = convolution_geometry(input, weight, options);
  check_kernel(call, g, image_rank);
  check_bias(call, weight[0]);
  return {{call.inputs[1].dtype, shape_of(input[0], weight[0], image_dims(g.output, image_rank))}};
}

std::vector<TensorType> infer_transposed(const InferContext& call, int image_rank) {
  const auto& options = call.as<ConvolutionOptions>();
  const Shape &input = call.shape(0), &weight = call.shape(1);
  check_call(call, options, image_rank);
  check_setting(call, "output_padding", options.output_padding, image_rank, 0);
  check_channels(call, "input", input[1], options.groups);
  check_weight_channels(call, weight[0], "input", input[1], 1);
  check_channels(call, "output", weight[1], 1);
  const ConvolutionGeometry g = transposed_geometry(input, weight, options);
  call.require(all_positive(g.kernel), "the kernel ", image_dims(g.kernel, image_rank), " is empty", shapes_of(call));
  call.require(all_positive(g.output), "the input's image ", image_dims(g.output, image_rank), " is empty", shapes_of(call));
  const ImageAxes extra = axes_of(options.output_padding, image_rank, 0);
  for (std::size_t i = 0; i < 3; ++i) {
    call.require(extra[i] < std::max(g.stride[i], g.dilation[i]),
                 "output_padding must be smaller than stride or dilation, got output_padding ", image_dims(extra, image_rank), ", stride ",
                 image_dims(g.stride, image_rank), ", dilation ", image_dims(g.dilation, image_rank));
  }
  call.require(all_positive(g.input), "the output's image would be ", image_dims(g.input, image_rank), shapes_of(call));
  check_bias(call, weight[1] * options.groups);
  return {{call.inputs[0].dtype, shape_of(input[0], weight[1] * options.groups, image_dims(g.input, image_rank))}};
}

std::vector<TensorType> infer_data_gradient(const InferContext& call, int image_rank) {
  const auto& options = call.as<DataGradientOptions>();
  const Shape &gradient = call.shape(0), &weight = call.shape(1);
  check_call(call, options.convolution, image_rank);
  check_size(call, "input_size", options.input_size, image_rank);
  check_channels(call, "output", gradient[1], options.convolution.groups);
  check_weight_channels(call, weight[0], "output", gradient[1], 1);
  check_channels(call, "input", weight[1], 1);
  const ConvolutionGeometry g = data_gradient_geometry(gradient, weight, options);
  check_kernel(call, g, image_rank);
  check_gradient(call, g, image_rank);
  return {{call.inputs[0].dtype, shape_of(gradient[0], weight[1] * g.groups, image_dims(g.input, image_rank))}};
}

std::vector<TensorType> infer_weight_gradient(const InferContext& call, int image_rank) {
  const auto& options = call.as<WeightGradientOptions>();
  const Shape &gradient = call.shape(0), &input = call.shape(1);
  check_call(call, options.convolution, image_rank);
  check_size(call, "kernel_size", options.kernel_size, image_rank);
  check_channels(call, "output", gradient[1], options.convolution.groups);
  check_channels(call, "input", input[1], options.convolution.groups);
  call.require(gradient[0] == input[0], "gradient has batch size ", gradient[0], ", input has ", input[0], shapes_of(call));
  const ConvolutionGeometry g = weight_gradient_geometry(gradient, input, options);
  check_kernel(call, g, image_rank);
  check_gradient(call, g, image_rank);
  return {{call.inputs[0].dtype, shape_of(gradient[1], g.in_channels, image_dims(g.kernel, image_rank))}};
}

}  // namespace ops

void ConvolutionOptions::fields(FieldVisitor& v) {
  ops::common_fields(v, *this);
  v.field("output_padding", output_padding);
}

}  // namespace frit
