#pragma once

#include <numeric>

#include "frit/core/cuda/vector.h"
#include "frit/ops/cuda/async_copy.h"
#include "frit/ops/cuda/cluster_totals.h"
#include "frit/ops/fused/group_norm_scale_max_pool_clamp_backward_cuda.h"

namespace frit::ops {

// The gradients of group_norm_scale_max_pool_clamp in one walk: a cluster of blocks holds some whole groups of a sample in shared memory,
// adds up what its windows' winners send back, and writes the input's gradient.

/// The share of each block: rows of windows and the image's rows that they cover, of the channels of its cluster. Windows lie side by side
/// without gaps; the last block with windows has the rows below them too.
struct GradientTiles {
  static constexpr int threads = 256;
  static constexpr int width = 4;                 ///< channels that a thread looks at together, channels-last
  static constexpr int least_channel_bytes = 32;  ///< of a pixel: one sector of memory

  int blocks = 0;    ///< of a cluster; 0: not to be done in this way
  int units = 1;     ///< clusters to a sample
  int channels = 0;  ///< of a cluster
  int rows = 0;      ///< windows' rows of a block
  std::int64_t clusters = 0;
  std::size_t windows_offset = 0, numbers_offset = 0, totals_offset = 0, shared_bytes = 0;

  dim3 grid() const { return dim3(static_cast<unsigned>(clusters * blocks)); }

  template <class Stored>
  static GradientTiles plan(const Tensor& input, const PoolGradientCall<Stored, std::uint8_t>& call) {
    GradientTiles tiles;
    const cuda::DeviceProperties& device = cuda::properties(input.device().index);
    const WindowAxis &height = call.height, &image_width = call.width;
    const std::int64_t vector = cuda::vector_width<Stored>, columns = image_width.image;
    if (device.capability < 90 || !height.side_by_side() || !image_width.side_by_side() || height.kernel != image_width.kernel)
      return tiles;
    if (input.elements() == 0 || call.windows() == 0 || !cuda::aligned_for_vectors(input.raw())) return tiles;
    const std::int64_t least = least_channel_bytes / static_cast<std::int64_t>(sizeof(Stored));
    tiles.channels = static_cast<int>(call.places.channels_last() ? std::lcm(call.group_channels, least) : call.group_channels);
    if (call.planes.channels % tiles.channels != 0 || tiles.channels > threads) return tiles;
    if (call.places.channels_last() && cuda::warp_size % std::max(1, tiles.channels / width) != 0) return tiles;
    tiles.units = static_cast<int>(call.planes.channels / tiles.channels);
    for (const std::size_t resident : {3, 2, 1}) {  // blocks to a multiprocessor: some read while others write
      const auto room = static_cast<std::int64_t>((device.shared_per_block + 1024) / resident) - 1280;
      for (int blocks = 1; blocks <= cuda::most_cluster_blocks; blocks *= 2) {
        const bool few = call.planes.samples * tiles.units * blocks < 4 * device.multiprocessors && blocks < cuda::most_cluster_blocks;
        const std::int64_t rows = (height.output + blocks - 1) / blocks;
        const std::int64_t last = (height.output - 1) / rows, last_pixels = (height.image - last * rows * height.kernel) * columns;
        const std::int64_t pixels = std::max(rows * height.kernel * columns, last_pixels);
        // A block's part of a plane begins and ends at whole vectors.
        const bool whole =
            call.places.channels_last() || (rows * height.kernel * columns % vector == 0 && call.planes.pixels % vector == 0);
        const std::int64_t windows = rows * image_width.output;
        const std::int64_t elements = aligned(pixels * tiles.channels * static_cast<std::int64_t>(sizeof(Stored)));
        const std::int64_t gradients = aligned(windows * tiles.channels * static_cast<std::int64_t>(sizeof(float)));
        const std::int64_t numbers = aligned(windows * tiles.channels);
        const std::int64_t bytes = elements + gradients + numbers + tiles.channels * static_cast<std::int64_t>(channel_bytes());
        if (few || !whole || bytes > room) continue;
        tiles.blocks = blocks;
        tiles.rows = static_cast<int>(rows);
        tiles.clusters = call.planes.samples * tiles.units;
        tiles.windows_offset = static_cast<std::size_t>(elements);
        tiles.numbers_offset = static_cast<std::size_t>(elements + gradients);
        tiles.totals_offset = static_cast<std::size_t>(elements + gradients + numbers);
        tiles.shared_bytes = static_cast<std::size_t>(bytes);
        if (tiles.clusters * blocks > INT32_MAX) tiles.blocks = 0;
        return tiles;
      }
    }
    return tiles;
  }

 private:
  static std::int64_t aligned(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }
  static constexpr std::size_t channel_bytes() {
    return ClusterTotals<ChannelSums, threads>::channel_bytes + sizeof(ChannelSums) + sizeof(double) + sizeof(GroupGradient<float>) +
           sizeof(float);
  }
};

/// A block's work on its tile.
template <class Stored, int kernel, bool channels_last>
class GradientTile {
 public:
  using T = ComputeType<Stored>;
  using Call = PoolGradientCall<Stored, std::uint8_t>;
  using Totals = ClusterTotals<ChannelSums, GradientTiles::threads>;
  static constexpr int width = channels_last ? GradientTiles::width : 1;
  using Elements = cuda::Vector<Stored, width>;

  __device__ GradientTile(const Call& call, const GradientTiles& tiles, std::byte* memory, cuda::ByteBarrier* barriers)
      : call_(call),
        rank_(static_cast<int>(blockIdx.x) % tiles.blocks),
        channels_(tiles.channels),
        sample_(static_cast<std::int64_t>(blockIdx.x) / tiles.blocks / tiles.units),
        first_channel_(static_cast<std::int64_t>(blockIdx.x) / tiles.blocks % tiles.units * tiles.channels),
        first_row_(min(rank_ * tiles.rows, call.height.output)),
        rows_(min(tiles.rows, call.height.output - first_row_)),
        image_rows_(rows_ == 0                                 ? 0
                    : first_row_ + rows_ == call.height.output ? call.height.image - first_row_ * kernel
                                                               : rows_ * kernel),
        totals_(memory + tiles.totals_offset, barriers, tiles.channels, rank_, tiles.blocks),
        elements_(reinterpret_cast<Stored*>(memory)),
        gradients_(reinterpret_cast<T*>(memory + tiles.windows_offset)),
        numbers_(reinterpret_cast<std::uint8_t*>(memory + tiles.numbers_offset)),
        sums_(reinterpret_cast<ChannelSums*>(totals_.end())),
        rstds_(reinterpret_cast<double*>(sums_ + tiles.channels)),
        rules_(reinterpret_cast<GroupGradient<T>*>(rstds_ + tiles.channels)),
        weights_(reinterpret_cast<T*>(rules_ + tiles.channels)) {}

  /// Everything: see carry_back_tiles.
  __device__ void run(Stored* input_gradient, ChannelSums* sums) {
    request_elements();
    if (thread() < channels_) {
      const int c = thread();
      rules_[c].map = call_.map(plane(c));
      rstds_[c] = call_.rstds[plane(c) / call_.group_channels];
      weights_[c] = convert<T>(call_.parameters.weight[first_channel_ + c]);
    }
    fetch_windows();
    cuda::wait_for_copies();
    __syncthreads();
    sum_over_winners();
    totals_.exchange(parts());
    close(sums);
    write(input_gradient);
  }

 private:
  static constexpr int warps = Totals::warps;

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int warp() { return thread() / cuda::warp_size; }
  __device__ static int lane() { return thread() % cuda::warp_size; }
  __device__ std::int64_t plane(int c) const { return sample_ * call_.planes.channels + first_channel_ + c; }
  __device__ int image_width() const { return call_.width.image; }
  __device__ int pixels() const { return image_rows_ * image_width(); }
  __device__ int windows() const { return rows_ * call_.width.output; }
  /// Where the block's pixel p of channel c is: in the tensor, and in the tile.
  __device__ std::int64_t place(int c, int p) const {
    const std::int64_t pixel = static_cast<std::int64_t>(first_row_) * kernel * image_width() + p;
    return channels_last ? (sample_ * call_.planes.pixels + pixel) * call_.planes.channels + first_channel_ + c
                         : plane(c) * call_.planes.pixels + pixel;
  }
  __device__ int tile_place(int c, int p) const { return channels_last ? p * channels_ + c : c * pixels() + p; }

  __device__ void request_elements() const {
    constexpr int vector = cuda::vector_width<Stored>;
    const int inner = channels_last ? channels_ : pixels(), outer = channels_last ? pixels() : channels_, across = inner / vector;
    for (int i = thread(); i < outer * across; i += GradientTiles::threads) {
      const int o = i / across, first = (i - o * across) * vector, c = channels_last ? first : o, p = channels_last ? o : first;
      cuda::copy_16_bytes(elements_ + tile_place(c, p), call_.input + place(c, p));
    }
  }

  /// A warp has a channel, or one of so many parts of it: its lanes have every so manieth window.
  __device__ int parts() const { return max(1, warps / channels_); }
  __device__ int part() const { return warp() / channels_; }
  __device__ int first_channel_of_warp() const { return part() < parts() ? warp() % channels_ : channels_; }
  __device__ int first_window() const { return part() * cuda::warp_size + lane(); }
  __device__ int window_step() const { return parts() * cuda::warp_size; }

  /// The windows' gradients and winners, each for the thread that reads it again.
  __device__ void fetch_windows() const {
    for (int c = first_channel_of_warp(); c < channels_; c += warps) {
      const std::int64_t first = (plane(c) * call_.height.output + first_row_) * call_.width.output;
      for (int i = first_window(); i < windows(); i += window_step()) {
        gradients_[i * channels_ + c] = convert<T>(call_.gradient[first + i]);
        numbers_[i * channels_ + c] = call_.winners[first + i];
      }
    }
  }

  /// Each channel's sums to totals_.partials; gradients_ becomes what the winners get besides.
  __device__ void sum_over_winners() const {
    for (int c = first_channel_of_warp(); c < channels_; c += warps) {
      const GroupMap<T> map = rules_[c].map;
      ChannelSums sums;
      for (int i = first_window(); i < windows(); i += window_step()) {
        const int row = i / call_.width.output, column = i - row * call_.width.output, number = numbers_[i * channels_ + c];
        const int p = (row * kernel + number / kernel) * image_width() + column * kernel + number % kernel;
        T& gradient = gradients_[i * channels_ + c];
        sums = sums + call_.at_winner(map, convert<T>(elements_[tile_place(c, p)]), gradient, gradient);
      }
      sums = cuda::warp_reduce(sums);
      if (lane() == 0) totals_.partials[part() * channels_ + c] = sums;
    }
  }

  __device__ void close(ChannelSums* sums) const {
    const int c = thread(), group_channels = static_cast<int>(call_.group_channels);
    if (c < channels_) sums_[c] = call_.whole(rules_[c].map, totals_.total(c));
    __syncthreads();
    if (c < channels_) {
      ChannelSums total;
      for (int i = 0; i < group_channels; ++i) {
        const int other = c / group_channels * group_channels + i;
        total = total + sums_[other].weighted(static_cast<double>(weights_[other]));
      }
      rules_[c] = GroupGradient<T>(rules_[c].map, total, rstds_[c], static_cast<double>(group_channels * call_.planes.pixels));
      if (rank_ == 0) sums[plane(c)] = {sums_[c].gradient, sums_[c].product * rstds_[c], sums_[c].scale};
    }
    __syncthreads();
  }

  /// A warp an image row, all channels of it or one.
  __device__ void write(Stored* input_gradient) const {
    const int lanes = channels_last ? channels_ / width : 1, rows = channels_last ? image_rows_ : image_rows_ * channels_;
    const std::int64_t step = channels_last ? call_.planes.channels : 1;
    GroupGradient<T> own[width];
    for (int r = warp(); r < rows; r += warps) {
      const int c = channels_last ? lane() % lanes * width : r / image_rows_, h = channels_last ? r : r % image_rows_;
      if (!channels_last || r == warp()) {
#pragma unroll
        for (int j = 0; j < width; ++j) own[j] = rules_[c + j];
      }
      const int row = h / kernel, number = (h - row * kernel) * kernel, windows_width = row < rows_ ? call_.width.output : 0;
      const Stored* const from = elements_ + tile_place(c, h * image_width());
      Stored* const to = input_gradient + place(c, h * image_width());
#pragma unroll 2
      for (int w = lane() / lanes; w < image_width(); w += cuda::warp_size / lanes) {
        const int column = w / kernel;
        const bool in_window = column < windows_width;
        const int window = in_window ? (row * call_.width.output + column) * channels_ + c : 0;
        const int mine = in_window ? number + w - column * kernel : -1;
        const Elements x = *reinterpret_cast<const Elements*>(from + w * (channels_last ? channels_ : 1));
        const auto through_window = *reinterpret_cast<const cuda::Vector<T, width>*>(gradients_ + window);
        const auto numbers = *reinterpret_cast<const cuda::Vector<std::uint8_t, width>*>(numbers_ + window);
        Elements dx;
#pragma unroll
        for (int j = 0; j < width; ++j) {
          const T spread = (convert<T>(x[j]) - own[j].map.reference) * own[j].by_difference + own[j].offset;
          dx[j] = convert<Stored>(numbers[j] == mine ? spread + through_window[j] : spread);
        }
        *reinterpret_cast<Elements*>(to + w * step) = dx;
      }
    }
  }

  const Call& call_;
  int rank_, channels_;
  std::int64_t sample_, first_channel_;
  int first_row_, rows_, image_rows_;
  Totals totals_;
  Stored* elements_;       ///< (pixels, channels), or (channels, pixels) in contiguous layout
  T* gradients_;           ///< (windows, channels)
  std::uint8_t* numbers_;  ///< likewise
  ChannelSums* sums_;      ///< (channels), as the rest
  double* rstds_;
  GroupGradient<T>* rules_;
  T* weights_;
};

/// One cluster some channels of a sample. Reads the input once, into shared memory, and writes its gradient, which may lie over it.
/// Deterministic.
template <class Stored, int kernel, bool channels_last>
__global__ void __launch_bounds__(GradientTiles::threads, 3)
    carry_back_tiles(Stored* input_gradient, ChannelSums* sums /* (N, C) */, PoolGradientCall<Stored, std::uint8_t> call,
                     GradientTiles tiles) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier barriers[ClusterTotals<ChannelSums, GradientTiles::threads>::rounds];
  GradientTile<Stored, kernel, channels_last>(call, tiles, memory, barriers).run(input_gradient, sums);
}

}  // namespace frit::ops
