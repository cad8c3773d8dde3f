#pragma once

#include "frit/ops/convolution/weight_gradient/staged_rows.cuh"

namespace frit::ops {

/// A thread's sums of one column of taps: of 64 channels of the gradient, which are the rows, and 64 of the input. Rows r and r + 8 of a
/// warp are neighbours among the channels, so that they are read at once.
struct ColumnSums {
  float of[RowTiles::side][32] = {};
  using Left = std::uint32_t[4];

  __device__ static int output_of(int i, int thread) { return thread / 32 * 16 + thread % 32 / 4 * 2 + i / 2 % 2; }
  __device__ static int input_of(int i, int thread) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }
  __device__ static int left_offset(int tap, int thread) {
    return (RowTiles::side - 1 - tap + thread % 4) * RowTiles::gradient_pixel + output_of(0, thread) * static_cast<int>(sizeof(float));
  }

  /// 8 columns of a row of the gradient, and of the rows of the input that it meets.
  __device__ void add(Left& left, std::uint32_t gradient, const std::uint32_t (&rows)[RowTiles::side], std::uint64_t groups) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float low, high;
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(low), "=f"(high)
                   : "r"(gradient + static_cast<std::uint32_t>(k * 4 * RowTiles::gradient_pixel))
                   : "memory");
      const auto pair = tensor_cores::Product<float>::rounded(cuda::Vector<float, 2>{low, high});
      left[2 * k] = __float_as_uint(pair[0]), left[2 * k + 1] = __float_as_uint(pair[1]);
    }
    warpgroup::begin_products();
#pragma unroll
    for (int tap = 0; tap < RowTiles::side; ++tap) warpgroup::multiply_held<float, 64>(of[tap], left, groups | rows[tap]);
    warpgroup::commit_products();
  }
};

/// What a warpgroup multiplies next: 8 columns of a row of the gradient, shifted by its tap, with three rows of the input.
struct Step {
  static constexpr std::uint32_t left_step = RowTiles::depth * RowTiles::gradient_pixel, right_step = 2 * warpgroup::group_rows;

  const RowTiles& w;
  RowRing ring;
  int number, end;  ///< of tiles
  int left_offset;
  int row = 0, rows = 0, column = 0, columns = 0;
  int used = -1;  ///< the stage before, as long as products of it are under way
  std::uint32_t line = 0, left = 0, right[RowTiles::side];

  __device__ Step(const RowTiles& w, const RowRing& ring, int begin, int end, int left_offset)
      : w(w), ring(ring), number(begin), end(end), left_offset(left_offset) {
    to_tile(true);
  }
  __device__ bool more() const { return number < end; }
  __device__ void next() {
    left += left_step;
#pragma unroll
    for (int k = 0; k < RowTiles::side; ++k) right[k] += right_step;
    if (++column < columns) return;
    column = 0;
    if (++row < rows) {
      line += static_cast<std::uint32_t>((w.columns + RowTiles::side - 1) * RowTiles::gradient_pixel);
      to_row();
    } else if (++number < end) {
      used = ring.stage;
      to_tile(false);
    }
  }
  /// All products but those of the last step are complete.
  __device__ void release() {
    if (used < 0) return;
    ring.empty(used).arrive();
    used = -1;
  }

 private:
  __device__ void to_tile(bool begins) {
    ring.advance(w, number, begins);
    row = 0, rows = min(w.rows, w.size[1] - ring.row);
    columns = (min(w.columns, w.input[2] - ring.column) + RowTiles::depth - 1) / RowTiles::depth;
    line = ring.gradient(w) + static_cast<std::uint32_t>(left_offset);
    to_row();
    ring.full(ring.stage).wait(ring.parity);
  }
  __device__ void to_row() {
    left = line;
#pragma unroll
    for (int k = 0; k < RowTiles::side; ++k) {
      right[k] = warpgroup::first_word(0, warpgroup::group_rows * warpgroup::chunk_bytes) | warpgroup::units(ring.slot(w, row + k));
    }
  }
};

/// By a warpgroup, for its column of taps. While one step's products are under way the next one's left factor is read.
__device__ inline void multiply_tiles(ColumnSums& sums, Step step) {
  const std::uint64_t groups = static_cast<std::uint64_t>(warpgroup::second_word(static_cast<std::uint32_t>(step.w.group_bytes))) << 32;
  ColumnSums::Left even, odd;
#pragma unroll 1
  do {
    sums.add(even, step.left, step.right, groups);
    warpgroup::wait_for_products<1>();
    step.release();
    step.next();
    if (!step.more()) break;
    sums.add(odd, step.left, step.right, groups);
    warpgroup::wait_for_products<1>();
    step.release();
    step.next();
  } while (step.more());
  warpgroup::wait_for_products();
}

/// Writes a thread's sums to where their weights would be, channels innermost.
__device__ inline void put_sums(float* partials /* of the share: (K, taps, C) */, const ColumnSums& sums, int thread, int tap,
                                const RowTiles& w, const RowBlock& block) {
#pragma unroll
  for (int k = 0; k < RowTiles::side; ++k) {
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      const int output = block.output + ColumnSums::output_of(i, thread), channel = block.input + ColumnSums::input_of(i, thread);
      const int of_kernel = (block.depth_tap * RowTiles::side + k) * RowTiles::side + tap;
      float* const to = partials + (output * w.taps() + of_kernel) * w.in_channels + channel;
      if (output < w.out_channels && channel < w.in_channels) *reinterpret_cast<float2*>(to) = {sums.of[k][i], sums.of[k][i + 1]};
    }
  }
}

/// Block (share, kind). Reads the gradient and the input once for each kind, but for rows and columns where tiles meet. Deterministic.
__global__ void __launch_bounds__(RowTiles::threads, 1)
    multiply_rows(float* partials /* (shares, K, taps, C) */, const float* gradient /* (N, D, H, W, K) */,
                  const float* input /* (N, D, H, W, C) */, const __grid_constant__ RowTiles w) {
  if constexpr (FRIT_HAS_WARPGROUP_PRODUCTS) {
    constexpr int multiplier_registers = 136, stager_registers = 104;
    extern __shared__ __align__(128) std::byte memory[];
    const int kinds = w.kinds(), share = static_cast<int>(blockIdx.x) / kinds;
    const RowBlock block(w, static_cast<int>(blockIdx.x) % kinds);
    const int begin = share * w.share_tiles + min(share, w.longer_shares), end = begin + w.share_tiles + (share < w.longer_shares ? 1 : 0);
    const int thread = static_cast<int>(threadIdx.x) % warpgroup::threads, tap = static_cast<int>(threadIdx.x) / warpgroup::threads;
    RowRing ring{cuda::shared_address(memory)};
    if (threadIdx.x == 0) {
      for (int i = 0; i < RowTiles::stages; ++i) {
        ring.full(i).init(2 * RowTiles::stagers);
        ring.empty(i).init(RowTiles::warpgroups * warpgroup::threads);
      }
    }
    __syncthreads();
    if (tap == RowTiles::warpgroups) {
      warpgroup::leave_registers<stager_registers>();
      const RowStager rows(thread, input, w, block);
      const GradientStager gradients(thread, ring, gradient, w, block);
#pragma unroll 1
      for (int number = begin; number < end; ++number) {
        ring.advance(w, number, number == begin);
        ring.empty(ring.stage).wait(ring.parity ^ 1);
        rows.copy(ring, w, block);
        cuda::end_copy_group();
        gradients.stage(ring, w);
        cuda::end_copy_group();
        ring.full(ring.stage).arrive_after_copies();
        cuda::wait_for_copy_groups<1>();
        rows.transpose(ring, w);
        warpgroup::fence_stores();
        ring.full(ring.stage).arrive();
      }
    } else {
      warpgroup::take_registers<multiplier_registers>();
      ColumnSums sums;
      multiply_tiles(sums, Step(w, ring, begin, end, ColumnSums::left_offset(tap, thread)));
      put_sums(partials + static_cast<std::int64_t>(share) * w.items(), sums, thread, tap, w, block);
    }
  }
}

/// Where the sums go: from (K, taps, C) to the weight's layout.
struct RowPlace {
  int taps, channels;
  bool channels_last;

  __device__ std::int64_t operator()(int item) const {
    if (channels_last) return item;
    const int channel = item % channels, others = item / channels, tap = others % taps;
    return static_cast<std::int64_t>(others / taps * channels + channel) * taps + tap;
  }
};

}  // namespace frit::ops
