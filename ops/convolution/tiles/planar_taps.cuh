#pragma once

#include "frit/ops/convolution/tiles/staged_taps.cuh"
#include "frit/ops/cuda/async_copy.cuh"

namespace frit::ops {

/// The taps of a tile of positions for products in strict float32: the pixels lie in shared memory as planes of rows, one for each depth
/// and channel, with zeros for what the image does not have. A thread computes 4 output channels of a patch of 4 x 4 neighbouring
/// positions, so that it loads few numbers for many products.
struct PlanarTaps : StagedTaps {
  static constexpr int side = 3;                       ///< rows and columns of taps
  static constexpr int patch = 4, patch_channels = 4;  ///< positions along either axis; output channels
  static constexpr int plane_taps = side * side;

  int image_channels = 0;
  int plane_step = 0;  ///< between channels in shared memory, in elements
  cuda::Divisor staged_columns, staged_channels;

  /// Whether a kernel has such taps.
  static bool fit(const StagedTaps& taps) { return taps.taps[1] == side && taps.taps[2] == side && taps.ones < 0; }

  explicit PlanarTaps(const StagedTaps& all) : StagedTaps(all) { FRIT_CHECK(fit(all)); }

  /// For tiles of so many positions; rows and columns are rounded up to whole patches.
  void lay_out_planes(int depths, int rows, int columns) {
    lay_out(depths, patches(rows) * patch, patches(columns) * patch, sizeof(float), 1);
    image_channels = static_cast<int>(planes.channels);
    staged_columns = cuda::Divisor(staged[2]);
    staged_channels = cuda::Divisor(image_channels);
    // 16 bytes are loaded at once, and those of 8 rows of taps, one after the other, lie in different banks.
    const int row_loads = patches(staged[2]) | 1, plane_loads = staged[1] * row_loads;
    row_step = row_loads * patch;
    plane_step = (plane_loads + ((side * row_loads - plane_loads) & 7)) * patch;
    depth_step = image_channels * plane_step;
    staged_bytes = static_cast<std::size_t>(staged[0] * depth_step) * sizeof(float);
  }
  static constexpr int patches(int positions) { return (positions + patch - 1) / patch; }

  FRIT_HOST_DEVICE int tap_planes() const { return taps[0] * image_channels; }
  /// Of `out_channels` channels, as stage_weight lays them out.
  FRIT_HOST_DEVICE std::size_t weight_bytes(int out_channels) const {
    return static_cast<std::size_t>(tap_planes() * plane_taps * out_channels) * sizeof(float);
  }
  /// Rows of taps, side by side, with which a gradient is multiplied.
  FRIT_HOST_DEVICE int tap_rows() const { return tap_planes() * side; }

  /// What belongs to an item of the sums that `add` makes.
  struct Item {
    int out_channel, plane, tap;  ///< of the output; of taps; in the plane

    FRIT_HOST_DEVICE Item(int item, int columns) : out_channel(item / columns) {
      const int column = item % columns, number = column / side;
      plane = number / side;
      tap = number % side * side + column % side;
    }
  };

  /// Starts to bring the pixels of the tile that begins at a position to shared memory; for all of so many threads, which then wait.
  template <int threads>
  __device__ void stage_planes(float* to, const float* from, std::int64_t sample, int depth, int row, int column) const {
    const int d = depth + shift[0] - taps[0] + 1, h = row + shift[1] - taps[1] + 1, w = column + shift[2] - taps[2] + 1;
    const float* const own = from + sample * places.sample;
    const int channel_step = static_cast<int>(places.channel), pixel = static_cast<int>(places.pixel),
              count = staged[0] * image_channels * staged[1] * staged[2];
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) {
      const auto number = static_cast<std::uint32_t>(i), line = staged_columns.quotient(number), plane = staged_rows.quotient(line),
                 z = staged_channels.quotient(plane), x = staged_columns.remainder(number, line), y = staged_rows.remainder(line, plane);
      const unsigned from_z = d + z, from_y = h + y, from_x = w + x;
      const bool inside =
          from_z < static_cast<unsigned>(image[0]) && from_y < static_cast<unsigned>(image[1]) && from_x < static_cast<unsigned>(image[2]);
      const int c = static_cast<int>(staged_channels.remainder(plane, z));
      const int place = inside ? static_cast<int>((from_z * image[1] + from_y) * image[2] + from_x) * pixel + c * channel_step : 0;
      cuda::copy_bytes_or_zeros<4>(cuda::shared_address(to + plane * plane_step + y * row_step + x), own + place, inside);
    }
  }

  /// Brings the weight to shared memory: (planes, taps of a plane, output channels). element(output channel, channel, tap) is given the
  /// tap's number among all, in the order of the pixels that it takes.
  template <class Element>
  __device__ void stage_weight(float* to, int out_channels, const Element& element) const {
    const int count = tap_planes() * plane_taps * out_channels;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      const int out_channel = i % out_channels, tap = i / out_channels % plane_taps, plane = i / (out_channels * plane_taps),
                z = plane / image_channels;
      to[i] = element(out_channel, plane - z * image_channels, z * plane_taps + tap);
    }
  }

  /// Of a patch: [i][y][x] is the thread's channel i, position (y, x).
  using Sums = float[patch_channels][patch][patch];

  /// sums = start + weight * taps. `pixels` are those of the patch's first position, `weight` (planes, taps of a plane, `out_channels`)
  /// begins at the thread's first channel.
  template <class Start>
  __device__ void convolve(Sums& sums, const Start& start, const float* pixels, const float* weight, int out_channels) const {
#pragma unroll
    for (int i = 0; i < patch_channels; ++i) {
#pragma unroll
      for (int position = 0; position < patch * patch; ++position) sums[i][position / patch][position % patch] = start[i];
    }
    const int planes_of_taps = tap_planes();
#pragma unroll 1
    for (int plane = 0; plane < planes_of_taps; ++plane, pixels += plane_step, weight += plane_taps * out_channels) {
      float4 factors[plane_taps];
#pragma unroll
      for (int tap = 0; tap < plane_taps; ++tap) factors[tap] = *reinterpret_cast<const float4*>(weight + tap * out_channels);
#pragma unroll
      for (int r = 0; r < patch + side - 1; ++r) {
        float line[patch + side - 1];
        load_line(line, pixels + r * row_step);
#pragma unroll
        for (int dy = 0; dy < side; ++dy) {
          const int y = r - dy;
          if (y < 0 || y >= patch) continue;
#pragma unroll
          for (int dx = 0; dx < side; ++dx) {
            const float4 factor = factors[dy * side + dx];
#pragma unroll
            for (int x = 0; x < patch; ++x) {
              sums[0][y][x] = fmaf(factor.x, line[x + dx], sums[0][y][x]);
              sums[1][y][x] = fmaf(factor.y, line[x + dx], sums[1][y][x]);
              sums[2][y][x] = fmaf(factor.z, line[x + dx], sums[2][y][x]);
              sums[3][y][x] = fmaf(factor.w, line[x + dx], sums[3][y][x]);
            }
          }
        }
      }
    }
  }

  /// Of the weight's gradient, for some rows of taps: [k][dx][i] is the thread's channel i.
  template <int tap_rows>
  using Products = float[tap_rows][side][patch_channels];

  /// From a position's first pixel to those that a row of taps takes; that of the first for one that does not exist.
  __device__ int tap_row_offset(int number) const {
    const int plane = number / side, dy = number - plane * side;
    return number < tap_rows() ? plane * plane_step + dy * row_step : 0;
  }
  /// products += gradients * taps, for `count` patches' width of positions in a line. `gradients` (channels, positions) begin at the
  /// thread's first channel, `gradient_step` elements from channel to channel.
  template <int rows>
  __device__ static void multiply(Products<rows>& products, const float* gradients, int gradient_step, const float* pixels,
                                  const int (&offsets)[rows], int count) {
#pragma unroll 1
    for (int done = 0; done < count; ++done, gradients += patch, pixels += patch) {
      float gradient[patch_channels][patch];
#pragma unroll
      for (int i = 0; i < patch_channels; ++i) {
        *reinterpret_cast<float4*>(gradient[i]) = *reinterpret_cast<const float4*>(gradients + i * gradient_step);
      }
#pragma unroll
      for (int k = 0; k < rows; ++k) {
        float line[patch + side - 1];
        load_line(line, pixels + offsets[k]);
#pragma unroll
        for (int x = 0; x < patch; ++x) {
#pragma unroll
          for (int dx = 0; dx < side; ++dx) {
#pragma unroll
            for (int i = 0; i < patch_channels; ++i) {
              products[k][dx][i] = fmaf(gradient[i][x], line[x + dx], products[k][dx][i]);
            }
          }
        }
      }
    }
  }
  /// Adds the products to sums of `columns` a channel, which begin at the thread's first: row of taps k is number `first` + k * `apart`.
  template <int rows>
  __device__ static void add(const Products<rows>& products, float* sums, int columns, int first, int apart) {
#pragma unroll
    for (int k = 0; k < rows; ++k) {
#pragma unroll
      for (int dx = 0; dx < side; ++dx) {
#pragma unroll
        for (int i = 0; i < patch_channels; ++i) sums[i * columns + (first + k * apart) * side + dx] += products[k][dx][i];
      }
    }
  }

 private:
  __device__ static void load_line(float (&line)[patch + side - 1], const float* from) {
    const float4 first = *reinterpret_cast<const float4*>(from);
    line[0] = first.x, line[1] = first.y, line[2] = first.z, line[3] = first.w;
    const float2 rest = *reinterpret_cast<const float2*>(from + patch);
    line[4] = rest.x, line[5] = rest.y;
  }
};

}  // namespace frit::ops
