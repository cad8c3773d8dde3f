#pragma once

#include "frit/ops/convolution/tiles/staged_taps.cuh"
#include "frit/ops/cuda/warpgroup_products.cuh"

namespace frit::ops {

/// A box of positions whose pixels, of 4 channels, are staged for products by warpgroups, which take a row of pixels at a time: it is
/// multiplied with all 3 rows of a kernel's taps at once, and so adds to 3 rows of positions. A product takes chunks of 16 bytes, and those
/// of neighbouring positions lie one after the other; a chunk is a pixel, or two neighbouring ones in halves, of which each is staged
/// twice.
struct TapRows : StagedTaps {
  static constexpr int out_channels = 16;
  static constexpr int slots = 3;  ///< rows of taps, and of positions at a time
  static constexpr int most_depths = 3, most_steps = 5;                                         ///< of taps; of two chunks each
  static constexpr int side = warpgroup::group_rows;     ///< positions of a group, which are neighbours
  static constexpr int groups = warpgroup::rows / side;  ///< of a strip of positions
  static constexpr std::uint32_t step_bytes = 2 * warpgroup::columns * warpgroup::chunk_bytes;  ///< of the weight
  static_assert(warpgroup::columns == slots * out_channels);

  int size[3];  ///< positions along each axis
  bool wide;    ///< the groups of a strip lie next to each other, else one after the other
  int steps;
  std::uint32_t first_words[most_steps];  ///< of a step's chunks, from a position's first pixel on
  int number[most_steps * 4];             ///< of the vectors of a step's chunks in the first row of taps; -1: of none, whose weights are 0
  cuda::Divisor column_strips, depth_strips;  ///< of the box
  std::size_t bytes;                          ///< of shared memory: the pixels, and what lies after them for positions that do not exist

  /// Whether an output channel of the weight has just the taps of a kernel 3 x 3, or 3 x 3 x 3.
  static bool fit(const StagedTaps& taps) {
    const bool kernel = (taps.taps[0] == 1 || taps.taps[0] == most_depths) && taps.taps[1] == slots && taps.taps[2] == slots;
    return kernel && taps.tap_vectors == 1 && taps.used_columns == taps.taps[0] * slots * slots * width;
  }
  /// For elements of such a size and kernels of such a depth.
  static constexpr int steps_of(std::size_t element_bytes, bool deep) {
    const int chunks = element_bytes == sizeof(Half) ? 2 : 3;
    return ((deep ? most_depths : 1) * chunks + 1) / 2;
  }

  TapRows(const StagedTaps& all, int depths, int rows_, int columns, std::size_t element_bytes)
      : StagedTaps(all), size{depths, rows_, columns}, wide(depths == 1), steps(steps_of(element_bytes, all.taps[0] > 1)) {
    FRIT_CHECK(fit(all));
    lay_out(depths, rows_, columns, element_bytes, warpgroup::chunk_bytes / static_cast<int>(element_bytes));
    column_strips = cuda::Divisor(parts(columns, wide ? side * groups : side));
    depth_strips = cuda::Divisor(parts(depths, wide ? 1 : groups));
    const int extra_depths = depth_strips.value<int>() * (wide ? 1 : groups) - depths;
    const int extra_columns = column_strips.value<int>() * (wide ? side * groups : side) - columns;
    bytes = staged_bytes + static_cast<std::size_t>(extra_depths * depth_step + extra_columns * pixel_step) * element_bytes;
    // In the order of their pixels, so that a distance is not negative.
    const bool paired = element_bytes == sizeof(Half);
    const int row_taps = taps[1] * taps[2];
    int chunks = 0;
    std::uint32_t last = 0;
    const auto add = [&](int vector, int neighbour) {
      FRIT_CHECK(chunks < 2 * steps);
      const auto offset =
          static_cast<std::uint32_t>(offset_of(vector) - (taps[1] - 1) * row_step) * static_cast<std::uint32_t>(element_bytes);
      number[paired ? 2 * chunks : chunks] = vector;
      if (paired) number[2 * chunks + 1] = neighbour;
      if (chunks % 2 == 0) {
        first_words[chunks / 2] = warpgroup::first_word(offset, 0);
      } else {
        first_words[chunks / 2] = warpgroup::first_word(last, offset - last);
      }
      last = offset;
      ++chunks;
    };
    for (int z = taps[0] - 1; z >= 0; --z) {
      for (int x = taps[2] - 1; x >= 0; x -= paired ? 2 : 1) add(z * row_taps + x, paired && x > 0 ? z * row_taps + x - 1 : -1);
    }
    if (chunks % 2 == 1) {
      for (int i = 0; i < (paired ? 2 : 1); ++i) number[(paired ? 2 * chunks : chunks) + i] = -1;
      first_words[steps - 1] = warpgroup::first_word(last, 0);
    }
  }

  FRIT_HOST_DEVICE std::size_t weight_bytes() const { return static_cast<std::size_t>(steps) * step_bytes; }
  FRIT_HOST_DEVICE int strips() const { return column_strips.value<int>() * depth_strips.value<int>(); }

  static int parts(int count, int of) { return (count + of - 1) / of; }

  /// Column n of the products has this channel of the weight, so that a thread gets 4 neighbouring ones of each position.
  __device__ static int channel_of(int n) { return n % 8 / 2 * 4 + n / 8 * 2 + n % 2; }

  /// As `stage`; of a pair that has no second pixel that is 0.
  template <int threads, class Stored, class Image>
  __device__ void stage_chunks(Stored* to, const Image* from, std::int64_t sample, int depth, int row, int column) const {
    if constexpr (!is_half_type<Stored>) {
      stage<threads>(to, from, sample, depth, row, column);
    } else {
      load<threads>(from, sample, depth, row, column, [&](int z, int y, int x, int, const cuda::Vector<float, width>& elements) {
        Stored* const pixel = to + z * depth_step + y * row_step + x * pixel_step;
        store(pixel, elements);
        if (x > 0) store(pixel - pixel_step + width, elements);
        if (x == staged[2] - 1) store(pixel + width, cuda::Vector<float, width>{});
      });
    }
    warpgroup::fence_stores();
  }
  template <int threads, class Stored>
  __device__ void stage_weight(Stored* to, const KernelWeight<Stored>& weight) const {
    constexpr int elements = warpgroup::chunk_bytes / sizeof(Stored), vectors = elements / width;
    for (int i = static_cast<int>(threadIdx.x); i < steps * 2 * warpgroup::columns; i += threads) {
      const int chunk = i / warpgroup::columns, n = i % warpgroup::columns, row_of_taps = taps[1] - 1 - n / out_channels;
      for (int v = 0; v < vectors; ++v) {
        const int first = number[chunk * vectors + v];
        *reinterpret_cast<Words<Stored>*>(to + i * elements + v * width) =
            weights(weight, channel_of(n % out_channels), first < 0 ? -1 : first + row_of_taps * taps[2]);
      }
    }
    warpgroup::fence_stores();
  }

  /// Calls body(row, sums) for each row of positions from 0 to `count` of a strip whose first pixel is at `pixels` in shared memory, by a
  /// warpgroup: [4 j + 2 h + v] is channel 4 (lane % 4) + 2 j + v of position lane / 4 in group 2 w + h, w being the warp's number of four.
  template <class Stored, bool deep, class Body>
  __device__ void for_each_row(int count, std::uint32_t pixels, std::uint32_t weight, const Body& body) const {
    const std::uint64_t left_groups = static_cast<std::uint64_t>(warpgroup::second_word(
                                          static_cast<std::uint32_t>(wide ? side * pixel_step : depth_step) * sizeof(Stored)))
                                      << 32,
                        right_groups = static_cast<std::uint64_t>(warpgroup::second_word(side * warpgroup::chunk_bytes)) << 32;
    const std::uint32_t row_units = static_cast<std::uint32_t>(row_step) * sizeof(Stored) / 16;
    const std::uint32_t right = warpgroup::first_word(0, warpgroup::columns * warpgroup::chunk_bytes) + warpgroup::units(weight);
    std::uint32_t left = warpgroup::units(pixels);
    constexpr int held = 8;                     // numbers of a row of positions
    float second[held] = {}, third[held] = {};  // the rows of positions for which this is the second and the third row of pixels
    warpgroup::Sums products = {};
#pragma unroll 1
    for (int row = 1 - slots; row < count; ++row, left += row_units) {
      std::uint32_t factor = right;
      warpgroup::begin_products();
#pragma unroll
      for (int step = 0; step < steps_of(sizeof(Stored), deep); ++step, factor += step_bytes / 16) {
        warpgroup::multiply<Stored>(products, left_groups | (left + first_words[step]), right_groups | factor, step > 0);
      }
      warpgroup::complete_products();
      float complete[held];
#pragma unroll
      for (int i = 0; i < held; ++i) {
        complete[i] = third[i] + products[2 * held + i];
        third[i] = second[i] + products[held + i];
        second[i] = products[i];
      }
      if (row >= 0) body(row, complete);
    }
  }
};

}  // namespace frit::ops
