#pragma once

#include <algorithm>
#include <bit>

#include "frit/core/numerics.h"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/operator/value.h"

namespace frit::ops {

struct ChannelAffine;

// What the gradients and lowerings of convolutions are made of; the image rank is the first value's. output_padding plays no part.
Value convolution(Value input, Value weight, ConvolutionOptions options, Value bias = {});
Value data_gradient(Value gradient, Value weight, const ConvolutionOptions& options, const Dims& input_size);
Value weight_gradient(Value gradient, Value input, const ConvolutionOptions& options, const Dims& kernel_size);
/// The sum over the batch and the image.
Value bias_gradient(Value gradient);

/// The inputs (input, weight, bias) of a convolution whose output channels lie along `axis` of the weight, in so many groups along axis 0,
/// for Operator::fold_channel_affine.
Values fold_into_weight(std::span<const Value> inputs, const ChannelAffine& affine, int axis, std::int64_t groups);

/// Lowerings with other channels gain nothing where there are more than these.
inline constexpr std::int64_t most_channels = 64;
/// Channels that taps become: with more of them im2col costs more than it gains.
inline constexpr std::int64_t most_im2col_channels = 128;
/// Output channels up to which a transposed convolution that has one of its taps for each of so many output positions of an input's is
/// faster phase by phase, on Hopper, than by libraries and with other lowerings.
inline constexpr std::int64_t most_single_tap_channels(std::int64_t taps) { return 16 * taps; }

/// Groups of more channels are computed by libraries as fast as convolutions without groups, and those of one by kernels of their own.
inline constexpr std::int64_t most_of_small_group = 64;
inline bool are_small_groups(const ConvolutionGeometry& g) {
  return g.groups > 1 && std::min(g.in_channels, g.out_channels) > 1 && std::max(g.in_channels, g.out_channels) <= most_of_small_group;
}
/// As few of so many groups, by which these can be divided, as `fill` vectors of channels together; all if none do.
template <class Fill>
std::int64_t fewest_groups(std::int64_t groups, const Fill& fill) {
  std::int64_t few = 1;
  while (few < groups && (groups % few != 0 || !fill(few))) ++few;
  return few;
}
/// Whether cuDNN has kernels for small groups of so many channels.
inline bool has_library_kernel_for_group(std::int64_t channels) {
  return channels != 2 && std::has_single_bit(static_cast<std::uint64_t>(channels));
}
inline bool has_library_kernel_for_groups(const ConvolutionGeometry& g) {
  return has_library_kernel_for_group(g.in_channels) && has_library_kernel_for_group(g.out_channels);
}

/// Whether a GPU's tensor cores compute products of numbers of this dtype.
inline bool on_tensor_cores(DType dtype) { return is_half(dtype) || (dtype == DType::f32 && numerics().tf32); }

/// For Kernel::describe, of kernels of frit's that multiply the taps of a convolution in either way.
inline const char* schedule_of_taps(DType dtype) { return on_tensor_cores(dtype) ? "taps on tensor cores" : "taps in strict float32"; }

inline bool all_equal(const Dims& dims, std::int64_t value) {
  return std::all_of(dims.begin(), dims.end(), [&](std::int64_t size) { return size == value; });
}

inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// "conv2d_data_gradient" from "conv", 2 and "_data_gradient".
inline std::string convolution_name(const char* begin, int image_rank, const char* end = "") { return concat(begin, image_rank, "d", end); }

/// The multiplications of a convolution: the weight's first axis is of the channels that `image` has.
inline double multiplications_of(const TensorType& image, const TensorType& weight) {
  const double channels = static_cast<double>(std::max<std::int64_t>(weight.shape[0], 1));
  return static_cast<double>(image.elements()) * static_cast<double>(weight.elements()) / channels;
}

/// The bias among the inputs of a convolution, if there is one.
inline Value bias_or_none(std::span<const Value> inputs) { return inputs.size() > 2 ? inputs[2] : Value(); }

/// Likewise of a call; or null.
template <class T>
const T* bias_of(const KernelContext& call) {
  return call.has(2) ? call.inputs[2].data<T>() : nullptr;
}

}  // namespace frit::ops
