#pragma once

#include <optional>

#include "frit/core/cuda/divisor.cuh"
#include "frit/core/cuda/runtime.h"
#include "frit/core/half.h"
#include "frit/ops/libraries/convolution_geometry.h"

namespace frit::ops {

/// How the weight gradient of a convolution is shared out to products on tensor cores. Channels are innermost everywhere. The kernel's taps
/// are cut into windows of up to 3 x 3 x 3, of which a block has one, for some channels of both images. It goes through tiles of the
/// gradient, which are rows of positions of one depth, from depth to depth, and keeps the input's planes that the window's depths meet in
/// shared memory, in a ring. A warp has the 3 x 3 taps of one depth and 32 x 8 channels, or shares them with others that have other
/// columns.
struct TapWindows {
  static constexpr int side = 3, warp_outputs = 32, warp_inputs = 8;
  static constexpr int held = side * side * warp_outputs * warp_inputs / 32;  ///< sums of a thread
  static constexpr int most_warps = 12, stagers = 128;  ///< of a block: warps that multiply, at most; threads that stage

  int out_channels, in_channels;  ///< of a bundle of groups, which are multiplied together
  int group_outputs, group_inputs, bundles;
  int out_pitch, in_pitch;                                  ///< elements from a pixel to the next of the gradient and of the input
  int input[3], size[3], kernel[3], stride[3], padding[3];  ///< size: of the output
  int block_outputs, block_inputs, block_depths;            ///< of a block: channels, and depths of its window
  int output_blocks, input_blocks, windows[3];              ///< a kind of block has one of each
  int depth_warps, output_warps, input_warps, splits;       ///< of a block; splits: of the columns
  int rows, columns, depth;                                 ///< of a tile; positions of one product
  cuda::Divisor row_tiles, column_tiles, depths;
  std::int64_t tiles;  ///< of all samples
  int shares;          ///< of the tiles: blocks of each kind
  // What is staged of a plane of the input: rows of pixels, in each those first that even positions meet where the stride is 2.
  int plane_rows, plane_columns, phase_columns;
  cuda::Divisor plane_column;
  int new_planes, planes;  ///< of each tile; in the ring
  int gradient_pixel, input_pixel, gradient_bytes, plane_bytes, shared_bytes;
  int tap_bytes[side];  ///< from the first tap of a row to each

  FRIT_HOST_DEVICE int kinds() const { return bundles * output_blocks * input_blocks * windows[0] * windows[1] * windows[2]; }
  FRIT_HOST_DEVICE int roles() const { return depth_warps * output_warps * input_warps; }
  FRIT_HOST_DEVICE int warps() const { return roles() * splits; }
  int threads() const { return warps() * 32 + stagers; }
  FRIT_HOST_DEVICE int input_row_bytes() const { return phase_columns * stride[2] * input_pixel; }
  /// What the blocks of a share leave, for each split.
  FRIT_HOST_DEVICE int items() const { return kinds() * roles() * held * 32; }
  std::size_t scratch_bytes() const {
    return sizeof(float) * static_cast<std::size_t>(shares * splits) * static_cast<std::size_t>(items());
  }

  /// The one that should be fastest; nothing where the geometry does not fit.
  static std::optional<TapWindows> of(const ConvolutionGeometry& geometry, std::size_t element_bytes, const cuda::DeviceProperties& device);
  /// With such blocks and tiles; nothing where they do not fit.
  static std::optional<TapWindows> with(const ConvolutionGeometry& geometry, std::size_t element_bytes,
                                        const cuda::DeviceProperties& device, int block_outputs, int block_inputs, int rows, int columns);
  /// Clocks, estimated.
  double cost(std::size_t element_bytes, int multiprocessors) const;
  /// The part of the tiles that are positions of the output.
  double used_part(std::int64_t batch) const;
  /// The part of the windows that are taps of the kernel.
  double used_taps() const;
};

/// Of a kind of block: its bundle, and in that its first channels and taps.
struct TapWindow {
  int bundle, output, input, tap[3];

  FRIT_HOST_DEVICE TapWindow(const TapWindows& w, int kind) {
    const auto take = [&](int count) {
      const int index = kind % count;
      kind /= count;
      return index;
    };
    output = take(w.output_blocks) * w.block_outputs;
    input = take(w.input_blocks) * w.block_inputs;
    for (int axis = 2; axis >= 0; --axis) tap[axis] = take(w.windows[axis]) * TapWindows::side;
    bundle = take(w.bundles);
  }
};

/// Of a warp: what it has of its block's window.
struct WarpRole {
  int depth, output, input;

  FRIT_HOST_DEVICE WarpRole(const TapWindows& w, int role)
      : depth(role % w.depth_warps),
        output(role / w.depth_warps % w.output_warps * TapWindows::warp_outputs),
        input(role / (w.depth_warps * w.output_warps) * TapWindows::warp_inputs) {}
};

}  // namespace frit::ops
