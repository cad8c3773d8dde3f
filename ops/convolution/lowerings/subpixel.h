#pragma once

#include "frit/ops/convolution/geometry.h"

// A transposed convolution as a sub-pixel convolution (W. Shi et al., "Real-time single image and video super-resolution using an efficient
// sub-pixel convolutional neural network", 2016). The output, with its padding in front modulo the stride, is cut into blocks of one
// stride; all outputs of a block need the same few inputs, its taps: output q s + r and tap u meet at element u s + r of the kernel, on
// input q + padding / s - u. So one convolution of size 1 gives, from the taps that im2col makes channels, all outputs of block q as the
// channels of position q.

namespace frit::ops {

struct Im2colAttributes {
  Dims taps = {}, shift = {};       ///< an image axis: tap u of position q is input q + shift - u
  Dims output_size = {};            ///< the output's image
  std::int64_t channels = 0;        ///< of one tap in the output; those that the input does not have are 0
  bool ones = false;                ///< the first of these, of tap 0, is 1 instead, so that the convolution's weight holds a bias
  std::optional<DType> dtype = {};  ///< a half that float32 is stored as; none: the input's
  std::int64_t kept = 0;            ///< of the output's channels only the first so many; 0: all
  void fields(FieldVisitor& v) {
    v.field("taps", taps);
    v.field("shift", shift);
    v.field("output_size", output_size);
    v.field("channels", channels);
    v.field("ones", ones);
    v.field("dtype", dtype);
    v.field("kept", kept);
  }
};

struct Im2colBackwardAttributes {
  Im2colAttributes im2col = {};
  std::int64_t in_channels = 0;
  Dims image = {};  ///< of im2col's input
  void fields(FieldVisitor& v) {
    im2col.fields(v);
    v.field("in_channels", in_channels);
    v.field("image", image);
  }
};

struct SubpixelWeightAttributes {
  Dims stride = {};
  std::int64_t channels = 0;        ///< as those of Im2colAttributes
  std::optional<DType> dtype = {};  ///< of the outputs, where not the input's: the other of float32 and a half
  void fields(FieldVisitor& v) {
    v.field("stride", stride);
    v.field("channels", channels);
    v.field("dtype", dtype);
  }
};

struct SubpixelWeightBackwardAttributes : SubpixelWeightAttributes {
  std::int64_t in_channels = 0;
  Dims kernel = {};
  void fields(FieldVisitor& v) {
    SubpixelWeightAttributes::fields(v);
    v.field("in_channels", in_channels);
    v.field("kernel", kernel);
  }
};

/// Of depth_to_space and space_to_depth, and of a chain that takes its input in blocks.
struct BlockAttributes {
  Dims block = {};              ///< the size of a block, an image axis
  Dims offset = {};             ///< elements of the first block that lie in front of the image
  Dims size = {};               ///< of the result's image; what the blocks hold beyond the smaller image is cut off, or zero
  bool channels_first = false;  ///< channel k block + r is place r of channel k, as in PyTorch's pixel_shuffle, not channel r K + k
  void fields(FieldVisitor& v) {
    v.field("block", block);
    v.field("offset", offset);
    v.field("size", size);
    v.field("channels_first", channels_first);
  }
};

std::int64_t product(const Dims& dims);
/// Of a kernel on each axis: (kernel - 1) / stride + 1.
Dims subpixel_taps(const Dims& kernel, const Dims& stride);

/// Calls body(index, its number in row-major order) for each index below `sizes`.
template <class Body>
void for_each_index(const Dims& sizes, const Body& body) {
  const std::int64_t count = product(sizes);
  for (std::int64_t number = 0; number < count; ++number) {
    Dims index = sizes;
    std::int64_t rest = number;
    for (int axis = sizes.rank() - 1; axis >= 0; --axis) {
      index[axis] = rest % sizes[axis];
      rest /= sizes[axis];
    }
    body(index, number);
  }
}

/// input (N, C, ...) -> (N, taps * channels or `kept`, positions...), the taps of a position one after another; zeros beyond the input's
/// edge.
Value im2col(Value input, const Im2colAttributes& attributes);
/// weight (C, K, kernel...) and bias (K) or none -> (block * K, taps * channels, 1...): for each place in a block and each of its taps. The
/// bias may be float32 with halves.
Value subpixel_weight(Value weight, Value bias, const SubpixelWeightAttributes& attributes);
/// input (N, block * K, positions...) -> (N, K, size...): element r K + k of position q goes to channel k at q block + r - offset.
Value depth_to_space(Value input, const BlockAttributes& attributes);
/// The reverse, with zeros where a block holds what the image does not have.
Value space_to_depth(Value input, const BlockAttributes& attributes);

/// The type that depth_to_space gives of `input`. Throws what infer rules throw.
TensorType depth_to_space_type(const InferContext& call, const TensorType& input, const BlockAttributes& attributes);

}  // namespace frit::ops
