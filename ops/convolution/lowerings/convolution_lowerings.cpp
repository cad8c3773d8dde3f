#include "frit/ops/convolution/lowerings/convolution_lowerings.h"

#include <bit>

#include "frit/core/cuda/device.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/image_axes.h"

namespace frit::ops {
namespace {

/// What the channels of a sub-pixel convolution are a multiple of.
constexpr std::int64_t tap_multiple = 4;

Value with_channels(Value x, std::int64_t channels) {
  if (channels == x.dim(1)) return x;
  const Dims none = Dims::filled(x.rank(), 0);
  Dims after = none;
  after[1] = channels - x.dim(1);
  return pad(x, none, after);
}

/// A convolution of size 1 that a kernel computes at memory's speed with its few channels as they are.
bool is_narrow(const Shape& weight, const ConvolutionOptions& options, std::int64_t multiple) {
  constexpr std::int64_t most_narrow = 8;
  const bool moves = !all_equal(options.stride, 1) || !all_equal(options.padding, 0);
  return all_equal(image_of(weight), 1) && !moves && weight[1] <= most_narrow && weight[0] <= most_channels && weight[0] % multiple == 0;
}

Values padded(std::span<const Value> inputs, const Attributes& attributes, std::int64_t multiple) {
  const auto& options = attributes.as<ConvolutionOptions>();
  const std::int64_t channels = inputs[0].dim(1), rounded = round_up(channels, multiple);
  if (options.groups != 1 || rounded == channels || channels > most_channels) return {};
  const Shape& weight = inputs[1].shape();
  if (is_narrow(weight, options, multiple)) return {};
  // A product of matrices whose result has no vectors of channels either gains nothing.
  if (all_equal(image_of(weight), 1) && channels > multiple && weight[0] % multiple != 0) return {};
  const Value image = cast(inputs[0], inputs[1].dtype());
  return {convolution(with_channels(image, rounded), with_channels(inputs[1], rounded), options, bias_or_none(inputs))};
}

/// A stride becomes one of 1 over the blocks of the image, whose places are channels: tap u of position q meets image element
/// q s + u - padding, which is place u % s of block q + u / s, the blocks beginning at -padding. For taps that need far fewer products so
/// than with padded channels.
Values over_blocks(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  constexpr std::int64_t most_block_channels = 16, multiple = 8;  // of halves
  const int axes = inputs[0].rank() - 2;
  const ConvolutionOptions options = canonical(attributes.as<ConvolutionOptions>(), axes);
  const Shape &input = inputs[0].shape(), &weight = inputs[1].shape();
  if (options.groups != 1 || !all_equal(options.dilation, 1) || all_equal(options.stride, 1)) return {};
  const std::int64_t places = product(options.stride);
  std::int64_t channels = input[1];
  if (places > most_block_channels || channels > most_block_channels) return {};
  while (channels * places % multiple != 0) ++channels;
  if (channels * places > most_block_channels) return {};
  const BlockAttributes kernel{
      .block = options.stride, .offset = Dims::filled(axes, 0), .size = subpixel_taps(image_of(weight), options.stride)};
  const std::int64_t products = product(kernel.size) * places * channels;
  if (4 * products > 3 * product(image_of(weight)) * round_up(input[1], multiple)) return {};
  BlockAttributes image{.block = options.stride, .offset = options.padding};
  for (int axis = 0; axis < axes; ++axis) {
    const std::int64_t stride = options.stride[axis], padding = options.padding[axis], size = input[axis + 2];
    image.size.push_back((size + 2 * padding - weight[axis + 2]) / stride + kernel.size[axis]);
    if (image.size[axis] * stride - padding < size) return {};  // no position meets the last elements
  }
  const Value blocks = space_to_depth(with_channels(cast(inputs[0], inputs[1].dtype()), channels), image);
  return {convolution(blocks, space_to_depth(with_channels(inputs[1], channels), kernel), {}, bias_or_none(inputs))};
}

/// A part, of what a GPU does at once in sweeps over columns of 128 output positions, that is asked for: those have inputs of their own
/// before their first row.
double part_of_columns(std::int64_t batch, std::int64_t height, std::int64_t width) {
  constexpr std::int64_t positions = 128, multiprocessors = 132, rows_before = 2;
  const auto rows = static_cast<double>(batch * height * (round_up(width, positions) / positions));
  return static_cast<double>(batch * height * width) / ((rows + rows_before * multiprocessors) * positions);
}

Values in_vectors(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const Shape &input = inputs[0].shape(), &weight = inputs[1].shape();
  if (input.rank() != 4) return {};
  const ConvolutionOptions options = canonical(attributes.as<ConvolutionOptions>(), 2);
  const bool plain = options.groups == 1 && all_equal(options.stride, 1) && all_equal(options.dilation, 1);
  if (!plain || !all_equal(image_of(weight), 3) || std::max(options.padding[0], options.padding[1]) > 2) return {};
  constexpr std::int64_t vector_bytes = 16, most_bytes = 64;
  const auto bytes = static_cast<std::int64_t>(size_of(inputs[1].dtype()));
  const std::int64_t channels = round_up(input[1], vector_bytes / bytes);
  if (channels * bytes > most_bytes || channels > weight[0] || weight[0] > most_channels || weight[0] % 8 != 0) return {};
  constexpr double least_part = 0.5;
  if (part_of_columns(input[0], input[2] + 2 * options.padding[0] - 2, input[3] + 2 * options.padding[1] - 2) < least_part) return {};
  if (channels == input[1]) return {convolution(inputs[0], inputs[1], options, bias_or_none(inputs))};
  const Value image = cast(inputs[0], inputs[1].dtype());
  return {convolution(with_channels(image, channels), with_channels(inputs[1], channels), options, bias_or_none(inputs))};
}

/// Whether graphs are for Hopper, which machines without a GPU suppose. It has kernels that others have not.
bool is_for_hopper() {
  constexpr int hopper = 90;
  return cuda::device_count() == 0 || cuda::capability(0) == hopper;
}

/// Whether a transposed convolution has one tap an output position, and vectors of channels: phase by phase (see tiles/phase_taps.cuh) its
/// result is written at once where it belongs, on Hopper's tensor cores.
bool has_single_taps(const Shape& weight, const Dims& stride, DType dtype) {
  constexpr std::int64_t vector_bytes = 16;
  const bool vectors = weight[0] * static_cast<std::int64_t>(size_of(dtype)) % vector_bytes == 0 && weight[1] % 4 == 0;
  const bool taken = image_of(weight) == stride && weight[1] <= most_single_tap_channels(product(stride));
  return taken && vectors && on_tensor_cores(dtype) && is_for_hopper();
}

// A bias would cost its gradient another pass over the output's: it is a column of the weight, and in TF32 rounded as weights are.
Values subpixel(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const int axes = inputs[0].rank() - 2;
  const ConvolutionOptions options = canonical(attributes.as<ConvolutionOptions>(), axes);
  const Shape &input = inputs[0].shape(), &weight = inputs[1].shape();
  if (options.groups != 1 || !all_equal(options.dilation, 1) || all_equal(options.stride, 1)) return {};
  if (product(options.stride) > most_channels || has_single_taps(weight, options.stride, inputs[1].dtype())) return {};
  const bool bias = inputs.size() > 2;
  const Dims kernel = image_of(weight);
  Im2colAttributes taps{
      .taps = subpixel_taps(kernel, options.stride), .channels = round_up(input[1] + (bias ? 1 : 0), tap_multiple), .ones = bias};
  // Where blocks share inputs and there are more channels, the library's data gradients take half the time.
  constexpr std::int64_t few_channels = 16;
  const bool shared = product(taps.taps) > 1;
  if ((shared && input[1] > few_channels) || product(taps.taps) * taps.channels > most_im2col_channels) return {};
  BlockAttributes blocks{.block = options.stride};
  for (int axis = 0; axis < axes; ++axis) {
    const std::int64_t stride = options.stride[axis], padding = options.padding[axis];
    const std::int64_t size = (input[axis + 2] - 1) * stride - 2 * padding + kernel[axis] + options.output_padding[axis];
    blocks.offset.push_back(padding % stride);
    blocks.size.push_back(size);
    taps.shift.push_back(padding / stride);
    taps.output_size.push_back((size + padding % stride + stride - 1) / stride);
  }
  const Value weight_matrix = subpixel_weight(inputs[1], bias_or_none(inputs), {options.stride, taps.channels, {}});
  return {depth_to_space(convolution(im2col(inputs[0], taps), weight_matrix, {}), blocks)};
}

/// The result's blocks of one stride, whose places are channels, by a stride of 1: tap s a + b puts an input's product b places into the
/// block that is a further than its own. For channels too few to fill vectors, with which libraries take several times as long.
Values in_blocks(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  constexpr std::int64_t vector = 8, few_inputs = 16, most_block_channels = 64;  // channels
  const Shape &input = inputs[0].shape(), &weight = inputs[1].shape();
  const int axes = input.rank() - 2;
  const ConvolutionOptions options = canonical(attributes.as<ConvolutionOptions>(), axes);
  if (options.groups != 1 || !all_equal(options.dilation, 1) || all_equal(options.stride, 1)) return {};
  const std::int64_t places = product(options.stride);
  std::int64_t channels = weight[1];
  if (channels >= vector || places > most_block_channels || input[1] <= few_inputs) return {};
  while (channels * places % vector != 0) ++channels;
  if (channels * places > most_block_channels) return {};
  const BlockAttributes taps{
      .block = options.stride, .offset = Dims::filled(axes, 0), .size = subpixel_taps(image_of(weight), options.stride)};
  BlockAttributes image{.block = options.stride};
  ConvolutionOptions of_blocks = canonical({}, axes);
  for (int axis = 0; axis < axes; ++axis) {
    const std::int64_t stride = options.stride[axis], padding = options.padding[axis], kernel = weight[axis + 2];
    if (taps.size[axis] * stride + padding % stride < kernel + options.output_padding[axis]) return {};  // the last ones lie beyond
    image.offset.push_back(padding % stride);
    image.size.push_back((input[axis + 2] - 1) * stride - 2 * padding + kernel + options.output_padding[axis]);
    of_blocks.padding[axis] = padding / stride;
  }
  const Value blocked_weight = space_to_depth(with_channels(inputs[1], channels), taps);
  const Value blocks = emit_one(convolution_name("conv_transpose", axes), {cast(inputs[0], inputs[1].dtype()), blocked_weight}, of_blocks);
  const Value result = depth_to_space(blocks, image), wanted = channels == weight[1] ? result : slice(result, 1, 0, weight[1]);
  return {inputs.size() > 2 ? wanted + along_channels(inputs[2], input.rank()) : wanted};
}

/// 1 in the blocks along the diagonal of so many by so many.
Value diagonal(Emitter& emitter, std::int64_t blocks) {
  std::vector<double> ones(static_cast<std::size_t>(blocks * blocks));
  for (std::int64_t i = 0; i < blocks; ++i) ones[static_cast<std::size_t>(i * (blocks + 1))] = 1;
  return emitter.constant(Tensor::from(ones, {blocks, 1, blocks, 1}).to(DType::u8));
}

/// A weight of groups as one of all channels, with zeros between them.
Value block_diagonal(Emitter& emitter, Value weight, std::int64_t groups) {
  const Shape& shape = weight.shape();
  const Value rows = reshape(weight, {groups, shape[0] / groups, 1, -1});
  const Value blocks = expand(rows, {groups, shape[0] / groups, groups, rows.dim(3)});
  Shape dense = shape;
  dense[1] *= groups;
  return reshape(where(diagonal(emitter, groups), blocks, 0), dense);
}

/// Whether frit has kernels for small groups of so many channels in all, on Hopper's tensor cores.
bool has_kernels_for_groups(const ConvolutionOptions& options, const Dims& kernel, std::int64_t channels, std::int64_t results,
                            DType dtype) {
  const std::int64_t vector = 16 / static_cast<std::int64_t>(size_of(dtype));
  const auto at_most = [](const Dims& axes, std::int64_t most) { return *std::max_element(axes.begin(), axes.end()) <= most; };
  const bool usual = all_equal(options.dilation, 1) && at_most(options.stride, 2) && at_most(kernel, 5);
  return usual && channels % vector == 0 && results % vector == 0 && on_tensor_cores(dtype) && is_for_hopper();
}

Values dense(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes) {
  const ConvolutionOptions options = canonical(attributes.as<ConvolutionOptions>(), inputs[0].rank() - 2);
  const Shape& weight = inputs[1].shape();
  if (has_kernels_for_groups(options, image_of(weight), inputs[0].dim(1), weight[0], inputs[1].dtype())) return {};
  // The library is fast at groups of 4, 8, ... channels, and frit at depthwise ones. On an H100 in halves, at 64 images of 14 x 14, 14
  // groups of 24 took 150 us and one convolution of all channels 60; a network's part with 32 groups of 2 took 1,860 us, and so 550.
  constexpr std::int64_t most_groups = 40, vector = 8;
  const bool fills_vectors = inputs[0].dim(1) % vector == 0 && weight[0] % vector == 0;
  if (options.groups == 1 || options.groups > most_groups || weight[1] > most_of_small_group) return {};
  if (has_library_kernel_for_group(weight[1]) || !fills_vectors) return {};
  ConvolutionOptions whole = options;
  whole.groups = 1;
  return {convolution(inputs[0], block_diagonal(emitter, inputs[1], options.groups), whole, bias_or_none(inputs))};
}

Values diagonal_of_dense(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes) {
  constexpr std::int64_t most_of_group = 4, most_channels_in_all = 256;
  const auto& given = attributes.as<WeightGradientOptions>();
  const Value gradient = inputs[0], input = inputs[1];
  const std::int64_t groups = given.convolution.groups, channels = input.dim(1), results = gradient.dim(1);
  const std::int64_t of_group = channels / groups;
  if (of_group < 2 || of_group > most_of_group || groups < 8 || std::max(channels, results) > most_channels_in_all) return {};
  ConvolutionOptions options = canonical(given.convolution, input.rank() - 2);
  if (has_kernels_for_groups(options, given.kernel_size, channels, results, input.dtype())) return {};
  options.groups = 1;
  const Value dense = weight_gradient(gradient, input, options, given.kernel_size);
  const Value blocks = reshape(dense, {groups, results / groups, groups, -1});
  // A number that is not finite in a block that is none of the weight's must not reach the others.
  const Value kept = sum(where(diagonal(emitter, groups), blocks, 0), {2});
  Shape shape = dense.shape();
  shape[1] = of_group;
  return {reshape(kept, shape)};
}

/// An image as one of a single row, in which `merged` neighbouring pixels are one: (1, merged * C, 1, pixels / merged).
Value with_merged_pixels(Value x, std::int64_t merged) {
  const std::int64_t channels = merged * x.dim(1), pixels = element_count(x.shape()) / channels;
  return channels_second(reshape(channels_innermost(x), {1, 1, pixels, channels}));
}

/// Of weights of size 1, whose channels make up no vectors but those of some pixels do: the sum of the blocks along the diagonal.
Values diagonal_of_merged(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes) {
  constexpr std::int64_t vector = 8, few = 8, most = 512;  // channels; of halves are 8 a vector
  const auto& given = attributes.as<WeightGradientOptions>();
  const Value gradient = inputs[0], input = inputs[1];
  const int axes = input.rank() - 2;
  const ConvolutionOptions options = canonical(given.convolution, axes);
  const std::int64_t channels = input.dim(1), results = gradient.dim(1),
                     pixels = element_count(input.shape()) / std::max<std::int64_t>(1, channels);
  const bool pointwise = all_equal(given.kernel_size, 1) && all_equal(options.stride, 1) && all_equal(options.padding, 0);
  std::int64_t merged = 1;
  while (merged * channels % vector != 0 || merged * results % vector != 0) merged *= 2;
  if (!pointwise || options.groups != 1 || merged == 1 || pixels == 0 || pixels % merged != 0) return {};
  if (std::min(channels, results) < few || merged * std::max(channels, results) > most) return {};
  const Value dense = weight_gradient(with_merged_pixels(gradient, merged), with_merged_pixels(input, merged), {}, {1, 1});
  const Value blocks = reshape(dense, {merged, results, merged, channels});
  Shape shape = Shape::filled(input.rank(), 1);
  shape[0] = results, shape[1] = channels;
  // A number that is not finite in a block of two pixels must not reach the weight's.
  return {reshape(sum(where(diagonal(emitter, merged), blocks, 0), {0, 2}), shape)};
}

}  // namespace

// Tensor cores are loaded 16 bytes at a time.
Lowering padded_channels(const char* name, std::int64_t multiple) {
  return {.name = name,
          .rule = [multiple](Emitter&, std::span<const Value> inputs, const Attributes& a) { return padded(inputs, a, multiple); },
          .likely_fastest =
              [multiple](std::span<const TensorType> inputs) {
                const DType dtype = inputs[1].dtype;
                return on_tensor_cores(dtype) && multiple * static_cast<std::int64_t>(size_of(dtype)) == 16;
              }};
}

Lowering blocks_as_channels(const char* name) {
  return {.name = name, .rule = over_blocks, .likely_fastest = [](std::span<const TensorType> inputs) { return is_half(inputs[1].dtype); }};
}

Lowering few_channels_in_vectors(const char* name) {
  return {.name = name, .rule = in_vectors, .likely_fastest = [](std::span<const TensorType> inputs) {
            constexpr std::int64_t fewest = 4;  // with no more, padding to these is as good
            return inputs[0].shape[1] > fewest && on_tensor_cores(inputs[1].dtype) && is_for_hopper();
          }};
}

Lowering dense_groups(const char* name) {
  return {
      .name = name, .rule = dense, .likely_fastest = [](std::span<const TensorType> inputs) { return on_tensor_cores(inputs[1].dtype); }};
}

Lowering dense_weight_gradient(const char* name) {
  return {.name = name, .rule = diagonal_of_dense, .likely_fastest = [](std::span<const TensorType> inputs) {
            return on_tensor_cores(inputs[0].dtype);
          }};
}

Lowering merged_pixels(const char* name) {
  return {.name = name, .rule = diagonal_of_merged, .likely_fastest = [](std::span<const TensorType> inputs) {
            return is_half(inputs[0].dtype);
          }};
}

Lowering results_in_blocks(const char* name) {
  return {.name = name, .rule = in_blocks, .likely_fastest = [](std::span<const TensorType> inputs) {
            return on_tensor_cores(inputs[1].dtype);
          }};
}

Lowering subpixel_lowering(const char* name) {
  return {.name = name, .rule = subpixel, .likely_fastest = [](std::span<const TensorType> inputs) {
            return on_tensor_cores(inputs[0].dtype) || inputs[0].dtype == DType::f32;
          }};
}

}  // namespace frit::ops
