#pragma once

#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/weight_gradient/staged_windows.cuh"
#include "frit/ops/cuda/tensor_cores.cuh"

namespace frit::ops {

/// What a warp multiplies: a row's positions of the gradient, of 32 channels, with those of the input that 3 taps of a row meet, of 8.
/// Halves of either kind.
template <class Stored>
struct WindowProduct {
  static constexpr int depth = 16;
  struct Left {
    std::uint32_t of[2][4];
  };
  struct Right {
    std::uint32_t of[TapWindows::side][2];
  };

  __device__ static int output_of(int half, int i, int lane) { return half * 16 + i / 2 * 8 + lane / 4; }
  __device__ static int left_offset(const TapWindows& w, int lane) {
    return (lane % 8 + lane / 16 * 8) * w.gradient_pixel + lane / 8 % 2 * 16;
  }
  __device__ static Left left(std::uint32_t own, const TapWindows&) {
    Left a;
    tensor_cores::load_transposed(a.of[0], own);
    tensor_cores::load_transposed(a.of[1], own + 32);
    return a;
  }
  __device__ static int right_offset(const TapWindows& w, int lane) { return lane % 16 * w.input_pixel + lane / 16 * w.tap_bytes[1]; }
  __device__ static Right right(std::uint32_t own, const TapWindows& w, int lane) {
    Right b;
    std::uint32_t two[4];
    tensor_cores::load_transposed(two, own);
    tensor_cores::load_transposed(b.of[2], own + static_cast<std::uint32_t>(lane < 16 ? w.tap_bytes[2] : 0));
    b.of[0][0] = two[0], b.of[0][1] = two[1], b.of[1][0] = two[2], b.of[1][1] = two[3];
    return b;
  }
};

/// float32, rounded to TF32. A thread has 4 neighbouring channels of the gradient.
template <>
struct WindowProduct<float> {
  static constexpr int depth = 8;
  struct Left {
    std::uint32_t of[2][4];
  };
  struct Right {
    std::uint32_t of[TapWindows::side][2];
  };

  __device__ static int output_of(int half, int i, int lane) { return lane / 4 * 4 + half * 2 + i / 2; }
  __device__ static int left_offset(const TapWindows& w, int lane) { return lane % 4 * w.gradient_pixel + lane / 4 * 16; }
  __device__ static Left left(std::uint32_t own, const TapWindows& w) {
    Left a;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const auto four =
          tensor_cores::Product<float>::rounded(cuda::load_shared<float>(own + static_cast<std::uint32_t>(k * 4 * w.gradient_pixel)));
#pragma unroll
      for (int i = 0; i < 4; ++i) a.of[i / 2][k * 2 + i % 2] = __float_as_uint(four[i]);
    }
    return a;
  }
  __device__ static int right_offset(const TapWindows& w, int lane) { return lane % 4 * w.input_pixel + lane / 4 * 4; }
  __device__ static Right right(std::uint32_t own, const TapWindows& w, int) {
    Right b;
#pragma unroll
    for (int tap = 0; tap < TapWindows::side; ++tap) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float element = tensor_cores::load_float(own + static_cast<std::uint32_t>(w.tap_bytes[tap] + k * 4 * w.input_pixel));
        b.of[tap][k] = __float_as_uint(tensor_cores::Product<float>::rounded(cuda::Vector<float, 1>{element})[0]);
      }
    }
    return b;
  }
};

/// A thread's sums, of a warp's 3 x 3 taps.
template <class Stored, int stride>
struct WindowSums {
  using Product = WindowProduct<Stored>;
  static constexpr int side = TapWindows::side, kept = (side - 1) / stride + 1, period = kept * stride;

  float of[side][side][2][4] = {};

  /// Adds the products of some rows of one strip of columns. Each row of the input is read once, for all the rows of the gradient that
  /// it meets, which are kept in registers.
  __device__ void add(std::uint32_t gradient, std::uint32_t input, int rows, int tap_rows, const TapWindows& w, int lane) {
    typename Product::Left left[kept];
    const int gradient_row = w.columns * w.gradient_pixel, input_row = w.input_row_bytes();
    const int input_rows = (rows - 1) * stride + tap_rows;
#pragma unroll 1
    for (int first = 0; first < input_rows; first += period) {
#pragma unroll
      for (int q = 0; q < period; ++q) {
        const int row = first + q;
        if (row >= input_rows) break;
        if (q % stride == 0) {
          if (row < rows * stride) left[q / stride] = Product::left(gradient, w);
          gradient += gradient_row;
        }
        const typename Product::Right right = Product::right(input, w, lane);
        input += input_row;
#pragma unroll
        for (int tap = 0; tap < side; ++tap) {
          if ((q + period - tap) % stride != 0) continue;
          if (tap < tap_rows && row >= tap && row - tap < rows * stride) multiply(tap, left[(q + period - tap) / stride % kept], right);
        }
      }
    }
  }

 private:
  __device__ void multiply(int row, const typename Product::Left& left, const typename Product::Right& right) {
#pragma unroll
    for (int tap = 0; tap < side; ++tap) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        tensor_cores::Instruction<Stored>::multiply(of[row][tap][half], left.of[half], right.of[tap][0], right.of[tap][1]);
      }
    }
  }
};

/// Block (share, kind), of warps that stage and warps that multiply. Reads the gradient and the input once for each kind, but for the
/// borders of tiles. Deterministic.
template <class Stored, int stride>
__global__ void __launch_bounds__(TapWindows::most_warps * 32 + TapWindows::stagers, 1)
    multiply_windows(float* partials /* (shares, splits, kinds, roles, held, 32) */, const Stored* gradient /* (N, D, H, W, K) */,
                     const Stored* input /* (N, D, H, W, C) */, const __grid_constant__ TapWindows w) {
  using Product = WindowProduct<Stored>;
  extern __shared__ __align__(16) std::byte memory[];
  const int kinds = w.kinds(), share = static_cast<int>(blockIdx.x) / kinds, kind = static_cast<int>(blockIdx.x) % kinds;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t begin = w.tiles * share / w.shares, end = w.tiles * (share + 1) / w.shares;
  const TapWindow window(w, kind);
  WindowRing ring(cuda::shared_address(memory), w);
  if (warp >= w.warps()) {
    return stage_tiles(static_cast<int>(threadIdx.x) - w.warps() * 32, ring, gradient + window.bundle * w.out_channels,
                       input + window.bundle * w.in_channels, w, window, begin, end);
  }

  const int role_number = warp % w.roles(), split = warp / w.roles();
  const WarpRole role(w, role_number);
  const int left_offset = role.output * static_cast<int>(sizeof(Stored)) + Product::left_offset(w, lane);
  const int right_offset = role.input * static_cast<int>(sizeof(Stored)) + Product::right_offset(w, lane);
  const int tap_rows = min(w.kernel[1] - window.tap[1], TapWindows::side);
  WindowSums<Stored, stride> sums;
#pragma unroll 1
  for (std::int64_t number = begin; number < end; ++number) {
    const WindowTile tile = ring.advance(w, number, number == begin);
    meet();  // the tile is there, and the one before it was used
    const int rows = min(w.rows, w.size[1] - tile.row), used_columns = min(w.columns, w.size[2] - tile.column);
    const std::uint32_t left = ring.gradient(w) + static_cast<std::uint32_t>(left_offset);
    const std::uint32_t right = ring.plane(w, role.depth) + static_cast<std::uint32_t>(right_offset);
#pragma unroll 1
    for (int column = split * Product::depth; column < used_columns; column += w.splits * Product::depth) {
      sums.add(left + static_cast<std::uint32_t>(column * w.gradient_pixel), right + static_cast<std::uint32_t>(column * w.input_pixel),
               rows, tap_rows, w, lane);
    }
  }
  float* to = partials + (static_cast<std::int64_t>(share * w.splits + split) * kinds + kind) * (w.roles() * TapWindows::held * 32) +
              role_number * (TapWindows::held * 32) + lane;
  const float* const own = &sums.of[0][0][0][0];
#pragma unroll
  for (int i = 0; i < TapWindows::held; ++i) to[i * 32] = own[i];
}

/// Where the sums of multiply_windows go.
template <class Stored>
struct WindowPlace {
  TapWindows w;
  WeightSteps steps;

  /// -1 for sums that mean nothing.
  __device__ std::int64_t operator()(int item) const {
    const int lane = item % 32, i = item / 32 % TapWindows::held, role_number = item / (32 * TapWindows::held);
    const WarpRole role(w, role_number % w.roles());
    const TapWindow window(w, role_number / w.roles());
    const int output = window.output + role.output + WindowProduct<Stored>::output_of(i / 4 % 2, i % 4, lane);
    const int channel = window.input + role.input + lane % 4 * 2 + i % 2;
    const int z = window.tap[0] + role.depth, y = window.tap[1] + i / 24, x = window.tap[2] + i / 8 % 3;
    if (output >= w.out_channels || channel >= w.in_channels || z >= w.kernel[0] || y >= w.kernel[1] || x >= w.kernel[2]) return -1;
    if (output / w.group_outputs != channel / w.group_inputs) return -1;
    return (window.bundle * w.out_channels + output) * steps.row + channel % w.group_inputs * steps.channel +
           ((z * w.kernel[1] + y) * w.kernel[2] + x) * steps.tap;
  }
};

}  // namespace frit::ops
