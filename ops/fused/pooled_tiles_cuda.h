#pragma once

#include "frit/ops/cuda/cluster_totals.h"
#include "frit/ops/fused/slice_moments_cuda.h"
#include "frit/ops/fused/window_strips_cuda.h"

namespace frit::ops {

// group_norm_scale_max_pool_clamp in one walk. The sign of the factor before the pool is known before the statistics are, so that a block
// can pool sign * x while it sums x: max(a * x + b) is a * max(x) + b or a * min(x) + b. The pooled tile stays in shared memory until the
// cluster's blocks have added up their sums.

/// The strips, and what a block keeps of them.
struct PooledTiles : StripPlan {
  struct ChannelParameters {
    float sign, weight, bias, scale;
  };
  using Totals = ClusterTotals<ShiftedSums, threads>;

  int groups, group_channels;
  int entries;    ///< of what is summed over the cluster: each thread's channels together where they are of one group, or each channel
  double share;   ///< of an element in its group's mean
  int pitch = 0;  ///< places to a channel in the tile
  std::int64_t numbers_offset = 0, totals_offset = 0;  ///< behind the tile's values; behind the tile

  PooledTiles(const Tensor& input, const GroupNormPoolGeometry& geometry)
      : StripPlan(input, geometry),
        groups(static_cast<int>(geometry.groups)),
        group_channels(static_cast<int>(geometry.group_channels())),
        entries(group_channels % width == 0 ? channels / width : channels),
        share(share_of_each(geometry.group_pixels())) {}

  /// Lays a block's memory out for clusters of so many; false if it does not fit.
  bool fit(int cluster_blocks, std::int64_t element_bytes, bool numbered, std::int64_t room) {
    split(cluster_blocks);
    const std::int64_t places = (block_windows() | 1) * channels;  // an odd pitch spreads the channels over the banks
    numbers_offset = places * element_bytes;
    totals_offset = (numbers_offset + (numbered ? places : 0) + 15) / 16 * 16;
    pitch = static_cast<int>(std::min<std::int64_t>(block_windows() | 1, INT32_MAX));
    const std::size_t channel_bytes = sizeof(GroupMap<float>) + sizeof(ChannelParameters) + sizeof(float);
    const std::size_t own = static_cast<std::size_t>(entries) * (Totals::channel_bytes + sizeof(ShiftedSums)) +
                            static_cast<std::size_t>(channels) * channel_bytes;
    return place_ring(totals_offset + static_cast<std::int64_t>(own), room);
  }
};

/// Whether a map keeps the order of all finite elements, or turns it: what is pooled before it is what would be pooled behind it.
template <class T>
__device__ bool keeps_order(const GroupMap<T>& map) {
  return isfinite(map.reference) && isfinite(map.slope) && isfinite(map.shift) && isfinite(map.scale) && map.slope != 0 && map.scale != 0;
}

/// A thread's sums for each of the channels that it looks at together, around the first elements that it sees.
template <class Stored, class Sum>
struct VectorSums {
  static constexpr int width = StripPlan::width;
  ThreadSums<Sum> sums[width];
  int count = 0;

  /// Before `more` elements are added, of which x is one.
  __device__ void begin(const cuda::Vector<Stored, width>& x, int more) {
    if (count == 0) {
#pragma unroll
      for (int j = 0; j < width; ++j) sums[j] = ThreadSums<Sum>(convert<Sum>(x[j]));
    }
    count += more;
  }
  __device__ void add(const cuda::Vector<Stored, width>& x) {
#pragma unroll
    for (int j = 0; j < width; ++j) sums[j].add(convert<Sum>(x[j]));
  }
};

/// A block's work. `numbered`: it keeps which elements the maxima are.
template <class Stored, int kernel, bool numbered>
class TileBlock {
 public:
  using T = float;
  static constexpr int width = StripPlan::width;
  using Ring = StripRing<Stored, kernel>;
  using Elements = typename Ring::Elements;
  using Outputs = PoolOutputs<Stored, std::uint8_t>;

  __device__ TileBlock(const Stored* input, const GroupParameters<Stored>& parameters, const PooledTiles& tiles, std::byte* memory,
                       cuda::ByteBarrier* strip_barriers, cuda::ByteBarrier* round_barriers)
      : tiles_(tiles),
        input_(input),
        own_channel_(Ring::lane() % tiles.lanes * width),
        own_window_(Ring::lane() / tiles.lanes),
        totals_(memory + tiles.totals_offset, round_barriers, tiles.entries, static_cast<int>(blockIdx.x) % tiles.blocks, tiles.blocks),
        ring_(input, tiles, memory + tiles.ring_offset, strip_barriers),
        pooled_(reinterpret_cast<Stored*>(memory)),
        numbers_(reinterpret_cast<std::uint8_t*>(memory + tiles.numbers_offset)),
        sums_(reinterpret_cast<ShiftedSums*>(totals_.end())),
        maps_(reinterpret_cast<GroupMap<T>*>(sums_ + tiles.entries)),
        parameters_(reinterpret_cast<PooledTiles::ChannelParameters*>(maps_ + tiles.channels)),
        pivots_(reinterpret_cast<T*>(parameters_ + tiles.channels)) {
    if (const int c = thread(); c < tiles.channels) {
      parameters_[c] = {parameters.sign(c), convert<T>(parameters.weight[c]), convert<T>(parameters.bias[c]),
                        convert<T>(parameters.scale[c])};
      pivots_[c] = pivot(ring_.first_sample());
    }
    __syncthreads();
  }

  /// Everything: see pool_tiles.
  __device__ void run(const Outputs& outputs, const GroupStatistics& statistics, const Clamp<T>& clamp, double eps) {
    bool turned = false;
#pragma unroll
    for (int j = 0; j < width; ++j) turned |= parameters_[channel(j)].sign < 0;
    turned = __any_sync(~0u, turned);
    for (std::int64_t n = ring_.first_sample(); n >= 0; n -= ring_.step()) {
      VectorSums<Stored, T> sums;
      for (int item = Ring::warp(); item < ring_.items(); item += StripPlan::warps) {
        if (turned) {
          pool_strip<true>(ring_.strip(item), sums);
        } else {
          pool_strip<false>(ring_.strip(item), sums);
        }
      }
      exchange(sums);
      // Squares that overflow in float, and infinities and NaNs, are summed once more in double. All blocks see the same sums.
      if (__syncthreads_or(thread() < tiles_.entries && !isfinite(sums_[thread()].squares))) {
        VectorSums<Stored, double> wide;
        sum_again(n, wide);
        exchange(wide);
      }
      make_maps(n, statistics, eps);
      __syncthreads();
      const T next_pivot = pivot(n - ring_.step());
      write(n, outputs, clamp);
      if (thread() < tiles_.channels) pivots_[thread()] = next_pivot;
      __syncthreads();
    }
  }

 private:
  using Totals = PooledTiles::Totals;

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ bool idle() const { return own_channel_ >= tiles_.channels; }
  /// One of the thread's own, or of those of the first if it has none.
  __device__ int channel(int j) const { return (idle() ? 0 : own_channel_) + j; }
  __device__ const Stored* sample(std::int64_t n) const { return input_ + n * tiles_.planes.pixels * tiles_.channels; }
  /// The first element of the group of the thread's number, around which sums over blocks are.
  __device__ T pivot(std::int64_t n) const {
    if (n < 0 || thread() >= tiles_.channels) return 0;
    return convert<T>(sample(n)[thread() / tiles_.group_channels * tiles_.group_channels]);
  }

  /// Adds the warp's next strip's elements to `sums`, and puts its maxima into the tile.
  template <bool turned>
  __device__ void pool_strip(const Strip& strip, VectorSums<Stored, T>& sums) {
    Elements elements[kernel * kernel];
    ring_.take(elements, own_window_, channel(0));
    const int window = strip.first + own_window_, rows = ring_.rows_of(strip.row), columns = ring_.columns_of(window);
    if (idle() || columns <= 0) return;
    sums.begin(elements[0], rows * columns);
    if (rows == kernel && columns == kernel) {
#pragma unroll
      for (const Elements& x : elements) sums.add(x);
      pool_window<turned>(elements, strip.row * tiles_.breadth.output + window);
    } else {
#pragma unroll
      for (int i = 0; i < kernel * kernel; ++i) {
        if (i / kernel < rows && i % kernel < columns) sums.add(elements[i]);
      }
    }
  }
  template <bool turned>
  __device__ void pool_window(const Elements (&elements)[kernel * kernel], int place) {
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const int c = own_channel_ + j;
      const T sign = turned ? parameters_[c].sign : T(1);
      T best = convert<T>(elements[0][j]) * sign;
      int number = 0;
#pragma unroll
      for (int i = 1; i < kernel * kernel; ++i) {
        const T offered = convert<T>(elements[i][j]) * sign;
        if constexpr (numbered) number = offered > best ? i : number;
        best = offered > best ? offered : best;
      }
      pooled_[c * tiles_.pitch + place] = convert<Stored>(best);
      if constexpr (numbered) numbers_[c * tiles_.pitch + place] = static_cast<std::uint8_t>(number);
    }
  }

  /// The block's pixels, straight from the input.
  __device__ void sum_again(std::int64_t n, VectorSums<Stored, double>& sums) const {
    const int window_pixels = kernel * tiles_.breadth.image, rows = ring_.items() / tiles_.strips,
              slots = StripPlan::threads / tiles_.lanes;
    const std::int64_t first = static_cast<std::int64_t>(ring_.first_row()) * window_pixels;
    const std::int64_t end = min(first + static_cast<std::int64_t>(rows) * window_pixels, tiles_.planes.pixels);
    for (std::int64_t p = first + thread() / tiles_.lanes; !idle() && p < end; p += slots) {
      const Elements x = *reinterpret_cast<const Elements*>(sample(n) + p * tiles_.channels + own_channel_);
      sums.begin(x, 1);
      sums.add(x);
    }
  }

  /// The sums over the cluster, to sums_: of each entry.
  template <class Sum>
  __device__ void exchange(const VectorSums<Stored, Sum>& sums) {
    const bool joined = tiles_.entries < tiles_.channels;
    const int entry = joined ? own_channel_ / width : own_channel_;
    ShiftedSums shifted[width];
    if (!idle() && sums.count > 0) {
#pragma unroll
      for (int j = 0; j < width; ++j) shifted[j] = sums.sums[j].shifted(sums.count, static_cast<Sum>(pivots_[own_channel_ + j]));
    }
#pragma unroll
    for (int j = 1; j < width; ++j) {
      if (joined) shifted[0] = shifted[0] + shifted[j];
    }
#pragma unroll
    for (int j = 0; j < width; ++j) {
      if (j > 0 && joined) break;
      for (int mask = cuda::warp_size / 2; mask >= tiles_.lanes; mask /= 2) shifted[j] = shifted[j] + cuda::shuffle_xor(shifted[j], mask);
      if (own_window_ == 0 && !idle()) totals_.partials[Ring::warp() * tiles_.entries + entry + j] = shifted[j];
    }
    totals_.exchange(Totals::warps);
    if (thread() < tiles_.entries) sums_[thread()] = totals_.total(thread());
    __syncthreads();
  }

  __device__ void make_maps(std::int64_t n, const GroupStatistics& statistics, double eps) const {
    const int c = thread();
    if (c >= tiles_.channels) return;
    const int group = c / tiles_.group_channels, group_entries = max(1, tiles_.entries * tiles_.group_channels / tiles_.channels);
    ShiftedSums sums;
    for (int i = 0; i < group_entries; ++i) sums = sums + sums_[group * group_entries + i];
    const DeviceMoments moments(sums, static_cast<double>(pivots_[c]), tiles_.share);
    const double rstd = rsqrt(moments.variance + eps);
    const PooledTiles::ChannelParameters own = parameters_[c];
    maps_[c] = GroupMap<T>(moments.mean, rstd, own.weight, own.bias, own.scale);
    const bool writes = ring_.first_row() == 0 && c % tiles_.group_channels == 0;
    if (writes) statistics.write(n * tiles_.groups + group, moments.mean, rstd);
  }

  /// The tile's windows, a warp a channel.
  __device__ void write(std::int64_t n, const Outputs& outputs, const Clamp<T>& clamp) const {
    const int rows = min(tiles_.rows, tiles_.height.output - ring_.first_row()), columns = tiles_.breadth.output;
    for (int c = Ring::warp(); c < tiles_.channels; c += StripPlan::warps) {
      const GroupMap<T> map = maps_[c];
      const Outputs to = outputs.from(((n * tiles_.channels + c) * tiles_.height.output + ring_.first_row()) * columns);
      if (keeps_order(map)) {
        const T sign = parameters_[c].sign;
#pragma unroll 4
        for (int i = Ring::lane(); i < rows * columns; i += cuda::warp_size) {
          const T selected = convert<T>(pooled_[c * tiles_.pitch + i]) * sign;
          to.write(i, clamp(map(selected)), numbered ? numbers_[c * tiles_.pitch + i] : 0, selected);
        }
      } else {
        for (int i = Ring::lane(); i < rows * columns; i += cuda::warp_size) {
          const auto best = find_window_maximum(map, sample(n) + c, tiles_.channels, tiles_.height, tiles_.breadth,
                                                ring_.first_row() + i / columns, i % columns);
          to.write(i, clamp(best.value), best.number, best.element);
        }
      }
    }
  }

  const PooledTiles& tiles_;
  const Stored* input_;
  int own_channel_, own_window_;
  Totals totals_;
  Ring ring_;
  Stored* pooled_;         ///< (channels, pitch)
  std::uint8_t* numbers_;  ///< likewise
  ShiftedSums* sums_;      ///< (entries)
  GroupMap<T>* maps_;      ///< (channels), as what follows
  PooledTiles::ChannelParameters* parameters_;
  T* pivots_;
};

/// As many clusters as run at a time, each going through every so manieth sample. Reads the input once and writes the results.
/// Deterministic.
template <class Stored, int kernel, bool numbered>
__global__ void __launch_bounds__(StripPlan::threads, 1)
    pool_tiles(PoolOutputs<Stored, std::uint8_t> outputs, GroupStatistics statistics, const Stored* input,
               GroupParameters<Stored> parameters, Clamp<float> clamp, double eps, PooledTiles tiles) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier strip_barriers[StripPlan::warps * StripPlan::most_stages];
  __shared__ cuda::ByteBarrier round_barriers[PooledTiles::Totals::rounds];
  TileBlock<Stored, kernel, numbered>(input, parameters, tiles, memory, strip_barriers, round_barriers)
      .run(outputs, statistics, clamp, eps);
}

}  // namespace frit::ops
