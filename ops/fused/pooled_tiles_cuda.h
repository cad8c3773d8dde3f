#pragma once

#include "frit/core/cuda/vector.h"
#include "frit/ops/cuda/cluster_totals.h"
#include "frit/ops/fused/group_norm_scale_max_pool_clamp_cuda.h"
#include "frit/ops/fused/slice_moments_cuda.h"

namespace frit::ops {

// group_norm_scale_max_pool_clamp in one walk. The sign of the factor before the pool is known before the statistics are, so that a block
// can pool sign * x while it sums x: max(a * x + b) is a * max(x) + b or a * min(x) + b. The pooled tile stays in shared memory until the
// cluster's blocks have added up their sums.

/// The share of each block. A cluster has all channels of a sample, or in contiguous layout one of its groups; a block of it has some rows
/// of windows. Windows lie side by side without gaps; pixels that they leave over are only summed.
struct PooledTiles {
  static constexpr int threads = 256;
  static constexpr int resident = 3;  ///< blocks of a multiprocessor: while some close, others read
  static constexpr int width = 4;     ///< channels that a thread looks at together, channels-last

  Planes planes;
  WindowAxis height, width_axis;
  int groups = 1, group_channels = 1;
  int blocks = 0;               ///< of a cluster; 0: not to be done in this way
  int units = 1;                ///< clusters to a sample
  int channels = 0, lanes = 1;  ///< of a cluster; threads to a window
  int rows = 0, pitch = 0;      ///< windows' rows of a block; places to a channel in the tile
  int entries = 1;              ///< of what is summed over the cluster: a group's, or each thread's first channel's, or each channel's
  double share = 0;             ///< of an element in its group's mean
  std::size_t numbers_offset = 0, totals_offset = 0, shared_bytes = 0;

  PooledTiles(const Tensor& input, const GroupNormPoolGeometry& geometry)
      : planes(input.shape()), height(geometry.pool, 1), width_axis(geometry.pool, 2) {
    const cuda::DeviceProperties& device = cuda::properties(input.device().index);
    const bool channels_last = Places(input, planes).channels_last();
    const std::int64_t limit = width * cuda::warp_size;  // channels, in either layout
    const std::int64_t held = channels_last ? planes.channels : geometry.group_channels();
    if (device.capability < 90 || !height.side_by_side() || !width_axis.side_by_side() || height.kernel != width_axis.kernel) return;
    if (held == 0 || held > limit || geometry.windows() == 0 || planes.samples == 0) return;
    if (channels_last && (held % width != 0 || !cuda::aligned_for_vectors(input.raw()))) return;
    groups = static_cast<int>(geometry.groups);
    group_channels = static_cast<int>(geometry.group_channels());
    units = channels_last ? 1 : groups;
    channels = static_cast<int>(held);
    if (channels_last) lanes = lanes_for(held / width);
    if (channels_last) entries = static_cast<int>(group_channels % width == 0 ? held / width : held);
    share = share_of_each(geometry.group_pixels());
    // A block's rows of windows, and what they take.
    for (int tried = 1; tried <= cuda::most_cluster_blocks; tried *= 2) {
      const bool few = planes.samples * units * tried < 4 * device.multiprocessors && tried < cuda::most_cluster_blocks;
      rows = (height.output + tried - 1) / tried;
      const std::int64_t windows = static_cast<std::int64_t>(rows) * width_axis.output, places = windows | 1;  // an odd pitch spreads banks
      const std::int64_t numbers = places * channels * static_cast<std::int64_t>(sizeof(float)),
                         totals = (numbers + places * channels + 15) / 16 * 16;
      const std::int64_t bytes = totals + channels * static_cast<std::int64_t>(channel_bytes());
      if (few || bytes > static_cast<std::int64_t>((device.shared_per_block + 1024) / resident) - 1280) continue;
      if (planes.samples * units * tried > INT32_MAX) return;
      pitch = static_cast<int>(places);
      numbers_offset = static_cast<std::size_t>(numbers);
      totals_offset = static_cast<std::size_t>(totals);
      shared_bytes = static_cast<std::size_t>(bytes);
      blocks = tried;
      return;
    }
  }

  /// Of shared memory besides the tile.
  static constexpr std::size_t channel_bytes() {
    return ClusterTotals<ShiftedSums, threads>::channel_bytes + sizeof(ShiftedSums) + sizeof(GroupMap<float>) + 4 * sizeof(float);
  }
};

/// Whether a map keeps the order of all finite elements, or turns it: what is pooled before it is what would be pooled behind it.
template <class T>
__device__ bool keeps_order(const GroupMap<T>& map) {
  return isfinite(map.reference) && isfinite(map.slope) && isfinite(map.shift) && isfinite(map.scale) && map.slope != 0 && map.scale != 0;
}

/// Where the results go. Each may be null.
template <class Stored>
struct PoolOutputs {
  Stored* output;         // (N, C, H', W')
  std::uint8_t* winners;  // likewise
  double *means, *rstds;  // (N, G)

  __device__ void write(std::int64_t window, ComputeType<Stored> value, std::int32_t winner) const {
    if (output != nullptr) output[window] = convert<Stored>(value);
    if (winners != nullptr) winners[window] = static_cast<std::uint8_t>(winner);
  }
  __device__ void write_statistics(std::int64_t slice, double mean, double rstd) const {
    if (means != nullptr) means[slice] = mean;
    if (rstds != nullptr) rstds[slice] = rstd;
  }
};

/// A thread's sums for each of the channels that it looks at together, around the first elements that it sees.
template <class Stored, class Sum, int width>
struct VectorSums {
  using Elements = cuda::Vector<Stored, width>;
  ThreadSums<Sum> sums[width];
  int count = 0;

  /// Before the first `add`s, of which x is one.
  __device__ void begin(const Elements& x) {
    if (count > 0) return;
#pragma unroll
    for (int j = 0; j < width; ++j) sums[j] = ThreadSums<Sum>(convert<Sum>(x[j]));
  }
  __device__ void add(const Elements& x) {
    ++count;
#pragma unroll
    for (int j = 0; j < width; ++j) sums[j].add(convert<Sum>(x[j]));
  }
  __device__ void begin_and_add(const Elements& x) {
    begin(x);
    add(x);
  }
};

/// A block's work on its tile.
template <class Stored, int kernel, bool channels_last>
class TileBlock {
 public:
  using T = ComputeType<Stored>;
  static constexpr int width = channels_last ? PooledTiles::width : 1;
  using Elements = cuda::Vector<Stored, width>;
  template <class Sum>
  using Sums = VectorSums<Stored, Sum, width>;

  __device__ TileBlock(const Stored* input, const PooledTiles& tiles, std::byte* memory, cuda::ByteBarrier* barriers)
      : tiles_(tiles),
        rank_(static_cast<int>(blockIdx.x) % tiles.blocks),
        sample_(static_cast<int>(blockIdx.x) / tiles.blocks / tiles.units),
        unit_(static_cast<int>(blockIdx.x) / tiles.blocks % tiles.units),
        channel_step_(channels_last ? 1 : tiles.planes.pixels),
        step_(channels_last ? tiles.planes.channels : 1),
        input_(input + sample_ * tiles.planes.channels * tiles.planes.pixels + unit_ * tiles.channels * channel_step_),
        own_channel_(static_cast<int>(threadIdx.x) % tiles.lanes * width),
        slot_(static_cast<int>(threadIdx.x) / tiles.lanes),
        slots_(PooledTiles::threads / tiles.lanes),
        first_row_(min(rank_ * tiles.rows, tiles.height.output)),
        rows_(min(tiles.rows, tiles.height.output - first_row_)),
        totals_(memory + tiles.totals_offset, barriers, tiles.entries, rank_, tiles.blocks),
        pooled_(reinterpret_cast<T*>(memory)),
        numbers_(reinterpret_cast<std::uint8_t*>(memory + tiles.numbers_offset)),
        sums_(reinterpret_cast<ShiftedSums*>(totals_.end())),
        maps_(reinterpret_cast<GroupMap<T>*>(sums_ + tiles.entries)),
        parameters_(reinterpret_cast<ChannelParameters*>(maps_ + tiles.channels)) {}

  /// Everything: see pool_tiles.
  __device__ void run(const PoolOutputs<Stored>& outputs, const GroupParameters<Stored>& parameters, const Clamp<T>& clamp, double eps) {
    if (thread() < tiles_.channels) {
      const std::int64_t c = channel(thread());
      parameters_[thread()] = {parameters.sign(c), convert<T>(parameters.weight[c]), convert<T>(parameters.bias[c]),
                               convert<T>(parameters.scale[c])};
    }
    __syncthreads();
    Sums<T> sums;
    pool_windows(sums);
    sum_pixels(sums, bottom(rank_), bottom(rank_ + 1));
    exchange(sums);
    // Squares that overflow in float, and infinities and NaNs, are summed once more in double. All blocks see the same sums.
    if (__syncthreads_or(thread() < tiles_.entries && !isfinite(sums_[thread()].squares))) {
      Sums<double> wide;
      const std::int64_t row_pixels = static_cast<std::int64_t>(kernel) * tiles_.width_axis.image;
      sum_pixels(wide, first_row_ * row_pixels, (first_row_ + rows_) * row_pixels);
      sum_pixels(wide, bottom(rank_), bottom(rank_ + 1));
      exchange(wide);
    }
    make_maps(outputs, eps);
    __syncthreads();
    write(outputs, clamp);
  }

 private:
  using Totals = ClusterTotals<ShiftedSums, PooledTiles::threads>;
  struct ChannelParameters {
    T sign, weight, bias, scale;
  };

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int warp() { return thread() / cuda::warp_size; }
  __device__ static int lane() { return thread() % cuda::warp_size; }
  __device__ std::int64_t channel(int c) const { return static_cast<std::int64_t>(unit_) * tiles_.channels + c; }
  __device__ bool idle() const { return own_channel_ >= tiles_.channels; }
  /// Where the pixels below the windows begin that are a block's to sum.
  __device__ std::int64_t bottom(int rank) const {
    const std::int64_t first = static_cast<std::int64_t>(tiles_.height.output) * kernel * tiles_.width_axis.image;
    const std::int64_t share = (tiles_.planes.pixels - first + tiles_.blocks - 1) / tiles_.blocks;
    return min(first + rank * share, tiles_.planes.pixels);
  }
  __device__ Elements load(const Stored* first, std::int64_t pixel) const {
    return *reinterpret_cast<const Elements*>(first + pixel * step_);
  }

  /// The block's windows and, as one more column, what they leave over at the ends of their rows: each element to `sums`, and the maxima to
  /// the tile.
  __device__ void pool_windows(Sums<T>& sums) const {
    const int image_width = tiles_.width_axis.image, columns = tiles_.width_axis.output, over = image_width - columns * kernel;
    const int across = columns + (over > 0 ? 1 : 0), items = (channels_last ? 1 : tiles_.channels) * rows_ * across;
    if (idle()) return;
    for (int item = slot_; item < items; item += slots_) {
      const int column = item % across, row = item / across % rows_, c = channels_last ? own_channel_ : item / across / rows_;
      const std::int64_t corner = static_cast<std::int64_t>(first_row_ + row) * kernel * image_width + column * kernel;
      const Stored* const first = input_ + c * channel_step_ + corner * step_;
      if (item == slot_) sums.begin(load(first, 0));
      if (column < columns) {
        pool_window(sums, first, c, row * columns + column);
      } else {
        for (int h = 0; h < kernel; ++h) {
          for (int w = 0; w < over; ++w) sums.add(load(first, static_cast<std::int64_t>(h) * image_width + w));
        }
      }
    }
  }

  __device__ void pool_window(Sums<T>& sums, const Stored* first, int c, int place) const {
    T sign[width], best[width];
    int number[width];
#pragma unroll
    for (int j = 0; j < width; ++j) {
      sign[j] = parameters_[c + j].sign;
      best[j] = -std::numeric_limits<T>::infinity();
      number[j] = 0;
    }
    // Some rows of loads under way at a time, as many as the registers hold.
    constexpr int rows_at_once = channels_last && kernel % 2 == 0 ? 2 : channels_last ? 1 : kernel;
#pragma unroll 1
    for (int h = 0; h < kernel; h += rows_at_once) {
      Elements elements[rows_at_once * kernel];
#pragma unroll
      for (int i = 0; i < rows_at_once * kernel; ++i) {
        elements[i] = load(first, static_cast<std::int64_t>(h + i / kernel) * tiles_.width_axis.image + i % kernel);
      }
#pragma unroll
      for (int i = 0; i < rows_at_once * kernel; ++i) {
        sums.add(elements[i]);
#pragma unroll
        for (int j = 0; j < width; ++j) {
          const T offered = convert<T>(elements[i][j]) * sign[j];
          number[j] = offered > best[j] ? h * kernel + i : number[j];
          best[j] = offered > best[j] ? offered : best[j];
        }
      }
    }
#pragma unroll
    for (int j = 0; j < width; ++j) {
      pooled_[(c + j) * tiles_.pitch + place] = best[j];
      numbers_[(c + j) * tiles_.pitch + place] = static_cast<std::uint8_t>(number[j]);
    }
  }

  template <class Sum>
  __device__ void sum_pixels(Sums<Sum>& sums, std::int64_t first, std::int64_t end) const {
    if (idle()) return;
    for (int c = own_channel_; c < (channels_last ? own_channel_ + 1 : tiles_.channels); ++c) {
      for (std::int64_t p = first + slot_; p < end; p += slots_) sums.begin_and_add(load(input_ + c * channel_step_, p));
    }
  }

  /// The sums over the cluster, to sums_: of each entry.
  template <class Sum>
  __device__ void exchange(const Sums<Sum>& sums) {
    const bool joined = channels_last && tiles_.entries < tiles_.channels;  // a thread's channels are all of one group
    const int step = joined ? 1 : width, entry = joined ? own_channel_ / width : own_channel_;
    ShiftedSums shifted[width];
    if (sums.count > 0 && !idle()) {
#pragma unroll
      for (int j = 0; j < width; ++j) shifted[j] = sums.sums[j].shifted(sums.count, convert<Sum>(group_first(own_channel_ + j)));
    }
#pragma unroll
    for (int j = 1; j < width; ++j) {
      if (joined) shifted[0] = shifted[0] + shifted[j];
    }
#pragma unroll
    for (int j = 0; j < width; ++j) {
      if (j >= step && joined) break;
      for (int mask = cuda::warp_size / 2; mask >= tiles_.lanes; mask /= 2) shifted[j] = shifted[j] + cuda::shuffle_xor(shifted[j], mask);
      if (lane() < tiles_.lanes && !idle()) totals_.partials[warp() * tiles_.entries + entry + j] = shifted[j];
    }
    totals_.exchange(Totals::warps);
    if (thread() < tiles_.entries) sums_[thread()] = totals_.total(thread());
    __syncthreads();
  }
  /// The first element of a channel's group, around which its sums are.
  __device__ Stored group_first(int c) const { return input_[c / tiles_.group_channels * tiles_.group_channels * channel_step_]; }

  __device__ void make_maps(const PoolOutputs<Stored>& outputs, double eps) const {
    const int c = thread();
    if (c >= tiles_.channels) return;
    const int group = c / tiles_.group_channels, group_entries = max(1, tiles_.entries * tiles_.group_channels / tiles_.channels);
    ShiftedSums sums;
    for (int i = 0; i < group_entries; ++i) sums = sums + sums_[group * group_entries + i];
    const DeviceMoments moments(sums, static_cast<double>(convert<T>(group_first(c))), tiles_.share);
    const double rstd = rsqrt(moments.variance + eps);
    const ChannelParameters own = parameters_[c];
    maps_[c] = GroupMap<T>(moments.mean, rstd, own.weight, own.bias, own.scale);
    const std::int64_t slice = static_cast<std::int64_t>(sample_) * tiles_.groups + channel(c) / tiles_.group_channels;
    if (rank_ == 0 && c % tiles_.group_channels == 0) outputs.write_statistics(slice, moments.mean, rstd);
  }

  /// The tile's windows, a warp a channel.
  __device__ void write(const PoolOutputs<Stored>& outputs, const Clamp<T>& clamp) const {
    const int columns = tiles_.width_axis.output;
    for (int c = warp(); c < tiles_.channels; c += Totals::warps) {
      const GroupMap<T> map = maps_[c];
      const bool ordered = keeps_order(map);
      const std::int64_t plane = sample_ * tiles_.planes.channels + channel(c);
      const std::int64_t first = (plane * tiles_.height.output + first_row_) * columns;
      for (int i = lane(); i < rows_ * columns; i += cuda::warp_size) {
        WindowMaximum<T> best{map(pooled_[c * tiles_.pitch + i] * parameters_[c].sign), numbers_[c * tiles_.pitch + i]};
        if (!ordered) {
          best = find_window_maximum(map, input_ + c * channel_step_, step_, tiles_.height, tiles_.width_axis, first_row_ + i / columns,
                                     i % columns);
        }
        outputs.write(first + i, clamp(best.value), best.number);
      }
    }
  }

  const PooledTiles& tiles_;
  int rank_, sample_, unit_;
  std::int64_t channel_step_, step_;
  const Stored* input_;  ///< of the cluster's first channel
  int own_channel_, slot_, slots_, first_row_, rows_;
  Totals totals_;
  T* pooled_;                      ///< (channels, pitch)
  std::uint8_t* numbers_;          ///< likewise
  ShiftedSums* sums_;              ///< (entries)
  GroupMap<T>* maps_;              ///< (channels)
  ChannelParameters* parameters_;  ///< likewise
};

/// One cluster a sample, or a group of one in contiguous layout. Reads the input once and writes the results. Deterministic.
template <class Stored, int kernel, bool channels_last>
__global__ void __launch_bounds__(PooledTiles::threads, PooledTiles::resident)
    pool_tiles(PoolOutputs<Stored> outputs, const Stored* input, GroupParameters<Stored> parameters, Clamp<ComputeType<Stored>> clamp,
               double eps, PooledTiles tiles) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier barriers[ClusterTotals<ShiftedSums, PooledTiles::threads>::rounds];
  TileBlock<Stored, kernel, channels_last>(input, tiles, memory, barriers).run(outputs, parameters, clamp, eps);
}

}  // namespace frit::ops
