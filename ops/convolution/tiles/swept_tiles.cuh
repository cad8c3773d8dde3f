#pragma once

#include "frit/core/convert.h"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/cuda/phase_barrier.cuh"
#include "frit/ops/cuda/tensor_cores.cuh"
#include "frit/ops/cuda/warpgroup_products.cuh"

// What a swept convolution (3 x 3 x 3 or 3 x 3 taps) multiplies, in shared memory. A block takes a column of output positions, 16 x 16
// along (depth, width) or 128 along the width, and sweeps along the height: a row of the input, 18 x 18 or 130 pixels, is staged once and
// multiplied by all taps at once. For wgmma, a row of pixels is the left factor, a warpgroup's 64 rows being 8 x 8 or 64 positions, and the
// weight the right one: a column for each of 32 output channels and each of the 3 taps along the height, whose products belong to three
// rows of the output. The depth of the product is 9 or 3 taps by the channels of a pixel, in chunks of 16 bytes.

namespace frit::ops {

/// Sizes of a column and of what multiplies it. A flat one is of a kernel that leaves the depth alone.
template <bool flat>
struct SweepColumn {
  static constexpr int taps_side = 3, taps_deep = flat ? 1 : taps_side, taps = taps_deep * taps_side;  ///< of a row
  static constexpr int group_deep = flat ? 1 : warpgroup::group_rows, group_across = warpgroup::rows / group_deep;
  /// The warpgroups that multiply: along the depth, the width and the output channels. All 64 channels of a position in one block are
  /// written to memory in long runs.
  static constexpr int groups_deep = flat ? 1 : 2, groups_across = 2, groups_out = flat ? 2 : 1;
  static constexpr int warpgroups = groups_deep * groups_across * groups_out;
  static constexpr int group_channels = warpgroup::wide_columns / taps_side, out_channels = groups_out * group_channels;
  static constexpr int deep = groups_deep * group_deep, across = groups_across * group_across;  ///< in positions
  static constexpr int pixels_across = across + taps_side - 1, plane_pixels = (deep + taps_deep - 1) * pixels_across;
  static constexpr int moment_warps = groups_deep * groups_across * warpgroup::threads / 32;  ///< that have the same channels
  /// From a thread's first position to its second, 8 rows of wgmma further.
  static constexpr int second_deep = flat ? 0 : 1, second_across = flat ? warpgroup::group_rows : 0;
};

/// Sizes that are constants of a kernel: `chunks_` of 16 bytes are a pixel's channels that are multiplied at a time.
template <class Stored_, int chunks_, bool flat_>
struct SweepShape : SweepColumn<flat_> {
  using Column = SweepColumn<flat_>;
  using Stored = Stored_;
  static constexpr bool flat = flat_;
  static constexpr int chunks = chunks_, chunk_elements = warpgroup::chunk_bytes / sizeof(Stored), channels = chunks * chunk_elements;
  /// From a chunk of all pixels to the next: so that the chunks of a pixel are stored to different banks.
  static constexpr int residue = chunks >= 8 ? 1 : chunks == 4 ? 2 : chunks == 2 ? 4 : 0;
  static constexpr int plane = Column::plane_pixels + ((residue - Column::plane_pixels) % 8 + 8) % 8;
  static constexpr int used_chunks = Column::taps * chunks, steps = (used_chunks + 1) / 2;  ///< of the product's depth, two chunks each
  static constexpr int threads = (Column::warpgroups + 1) * warpgroup::threads;
  static constexpr int stages = chunks >= 4 && !flat ? 2 : 4;  ///< rows of pixels that are staged at a time
  static constexpr int group_weight_chunks = steps * 2 * warpgroup::wide_columns, weight_chunks = Column::groups_out * group_weight_chunks;
  static constexpr int weight_bytes = weight_chunks * warpgroup::chunk_bytes, stage_bytes = plane * chunks * warpgroup::chunk_bytes;
  static constexpr int shared_bytes = weight_bytes + stages * (stage_bytes + 2 * cuda::PhaseBarrier::bytes);
  static constexpr int moment_bytes = Column::warpgroups * warpgroup::threads * sizeof(float);  ///< more, where moments are found

  /// In pixels, from a position to what a tap reads.
  __device__ static constexpr int offset(int tap) { return tap / Column::taps_side * Column::pixels_across + tap % Column::taps_side; }
  /// For the left factor of a step. The last of an odd number of chunks is multiplied twice, by two halves of the weight.
  __device__ static constexpr std::uint32_t first_word(int step) {
    const int chunk = 2 * step, next = chunk + 1 < used_chunks ? chunk + 1 : chunk;
    const auto place = [](int c) { return offset(c / chunks) + c % chunks * plane; };
    return warpgroup::first_word(place(chunk) * warpgroup::chunk_bytes, (place(next) - place(chunk)) * warpgroup::chunk_bytes);
  }
};

/// A convolution with 3 x 3 x 3 or 1 x 3 x 3 taps and a stride of 1, over channels-last images; sizes along (depth, height, width).
struct SweptTiles {
  int input[3], output[3], padding[3];
  int in_channels, out_channels;
  int pitch;              ///< elements from a pixel of the input to the next
  int first_channel = 0;  ///< of those that are multiplied, where not all are at a time
  int columns_across, columns_deep, columns;
  bool mirrored;                                          ///< the taps, as of a data gradient
  std::int64_t out_channel_step, channel_step, tap_step;  ///< of the weight

  __device__ int rows() const { return columns * output[1]; }
};

/// The rows of the output, of all columns one after the other, in equal shares, of which a block has one.
struct SweptShares {
  int count, number;

  __device__ int begin(const SweptTiles& tiles) const { return first_of(tiles, number); }
  __device__ int end(const SweptTiles& tiles) const { return first_of(tiles, number + 1); }
  /// Of the shares that have rows of a sample, which this one is.
  __device__ int part(const SweptTiles& tiles, int sample) const {
    const std::int64_t first = static_cast<std::int64_t>(sample) * tiles.columns_deep * tiles.columns_across * tiles.output[1];
    return number - static_cast<int>(((first + 1) * count - 1) / tiles.rows());
  }

 private:
  __device__ int first_of(const SweptTiles& tiles, int share) const {
    return static_cast<int>(static_cast<std::int64_t>(tiles.rows()) * share / count);
  }
};

/// Rows of the output, [first, last), of a column whose first position is at `depth` and `across`.
struct SweptRows {
  int sample, depth, across, first, last;

  /// What comes first of the rows [row, end) of all columns, one column after the other.
  template <class Shape>
  __device__ static SweptRows at(const SweptTiles& tiles, int row, int end) {
    const int column = row / tiles.output[1], rest = column / tiles.columns_across, first = row - column * tiles.output[1];
    return {.sample = rest / tiles.columns_deep,
            .depth = rest % tiles.columns_deep * Shape::deep,
            .across = column % tiles.columns_across * Shape::across,
            .first = first,
            .last = min(first + end - row, tiles.output[1])};
  }
  __device__ int count() const { return last - first; }
  __device__ int first_input(const SweptTiles& tiles) const { return max(first - tiles.padding[1], 0); }
  __device__ int last_input(const SweptTiles& tiles) const { return min(last_reach(tiles), tiles.input[1]); }
  /// The same with rows that are padding.
  __device__ int last_reach(const SweptTiles& tiles) const { return last - tiles.padding[1] + 2; }
};

/// Numbers whose sum is `elements`, half of them or nearly so: what is multiplied by both instead is infinite only where it was.
template <class Stored>
__device__ cuda::WideVector<Stored> half_of(const cuda::WideVector<Stored>& elements, bool second) {
  cuda::WideVector<Stored> half;
#pragma unroll
  for (int k = 0; k < cuda::vector_width<Stored>; ++k) {
    const float whole = convert<float>(elements[k]), first = convert<float>(convert<Stored>(0.5f * whole));
    half[k] = convert<Stored>(second && first != whole ? whole - first : first);
  }
  return half;
}

/// Chunk i of what stage_weight stages. Output channel 8 (m % 8 / 2) + 2 (m / 8) + m % 2 of a warpgroup's is in column m, so that a thread
/// of wgmma has 8 that are neighbours.
template <class Shape, class Stored = typename Shape::Stored>
__device__ cuda::WideVector<Stored> weight_chunk(int i, const Stored* weight, const SweptTiles& tiles, int first_out_channel) {
  const int chunk = min(i / warpgroup::wide_columns % (2 * Shape::steps), Shape::used_chunks - 1);
  const int column = i % warpgroup::wide_columns, m = column % Shape::group_channels;
  const int tap = chunk / Shape::chunks, channel = tiles.first_channel + chunk % Shape::chunks * Shape::chunk_elements;
  const int out_channel = first_out_channel + i / Shape::group_weight_chunks * Shape::group_channels + m % 8 / 2 * 8 + m / 8 * 2 + m % 2;
  cuda::WideVector<Stored> elements = {};
  if (i >= Shape::weight_chunks || out_channel >= tiles.out_channels || channel >= tiles.in_channels) return elements;
  const int forward =
      (tap / Shape::taps_side * Shape::taps_side + column / Shape::group_channels) * Shape::taps_side + tap % Shape::taps_side;
  const int used = tiles.mirrored ? Shape::taps * Shape::taps_side - 1 - forward : forward;
  const Stored* const from = weight + out_channel * tiles.out_channel_step + used * tiles.tap_step + channel * tiles.channel_step;
  if (tiles.channel_step == 1) return *reinterpret_cast<const cuda::WideVector<Stored>*>(from);
#pragma unroll
  for (int k = 0; k < Shape::chunk_elements; ++k) elements[k] = from[k * tiles.channel_step];
  return elements;
}

/// By all threads of a block, each of which has several reads under way.
template <class Shape, class Stored = typename Shape::Stored>
__device__ void stage_weight(std::uint32_t to, const Stored* weight, const SweptTiles& tiles, int first_out_channel) {
  constexpr int at_once = 4;
  for (int first = static_cast<int>(threadIdx.x); first < Shape::weight_chunks; first += at_once * Shape::threads) {
    cuda::WideVector<Stored> chunks[at_once];
#pragma unroll
    for (int u = 0; u < at_once; ++u) chunks[u] = weight_chunk<Shape>(first + u * Shape::threads, weight, tiles, first_out_channel);
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      const int i = first + u * Shape::threads, part = i / warpgroup::wide_columns % (2 * Shape::steps);
      cuda::WideVector<Stored> elements = tensor_cores::Product<Stored>::rounded(chunks[u]);
      if constexpr (Shape::used_chunks % 2 != 0) {
        if (part >= Shape::used_chunks - 1) elements = half_of<Stored>(elements, part >= Shape::used_chunks);
      }
      if (i < Shape::weight_chunks) cuda::store_shared(to + i * warpgroup::chunk_bytes, elements);
    }
  }
}

/// By a warpgroup: a row of pixels, zeros for what the image does not have.
template <class Shape, class Stored = typename Shape::Stored>
__device__ void stage_pixels(std::uint32_t to, const Stored* input, const SweptTiles& tiles, const SweptRows& rows, int row, int thread) {
  constexpr int count = Shape::plane_pixels * Shape::chunks, at_once = 8;
  for (int first = thread; first < count; first += warpgroup::threads * at_once) {
    cuda::WideVector<Stored> vectors[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int item = first + i * warpgroup::threads, pixel = item / Shape::chunks;
      const int channel = tiles.first_channel + item % Shape::chunks * Shape::chunk_elements;
      const int d = rows.depth - tiles.padding[0] + pixel / Shape::pixels_across;
      const int w = rows.across - tiles.padding[2] + pixel % Shape::pixels_across;
      vectors[i] = {};
      if (item < count && d >= 0 && d < tiles.input[0] && w >= 0 && w < tiles.input[2] && channel < tiles.in_channels) {
        const std::int64_t line = static_cast<std::int64_t>(rows.sample * tiles.input[0] + d) * tiles.input[1] + row;
        vectors[i] = *reinterpret_cast<const cuda::WideVector<Stored>*>(input + (line * tiles.input[2] + w) * tiles.pitch + channel);
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int item = first + i * warpgroup::threads;
      if (item >= count) break;
      const int place = item / Shape::chunks + item % Shape::chunks * Shape::plane;
      cuda::store_shared(to + place * warpgroup::chunk_bytes, tensor_cores::Product<Stored>::rounded(vectors[i]));
    }
  }
}

}  // namespace frit::ops
