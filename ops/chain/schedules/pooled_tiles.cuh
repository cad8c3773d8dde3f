#pragma once

#include <numeric>

#include "frit/ops/chain/schedules/window_strips.cuh"
#include "frit/ops/chain/stages/window_vectors.cuh"
#include "frit/ops/cuda/cluster_totals.cuh"

namespace frit::ops {

// group_norm_scale_max_pool_clamp in one pass. The sign of the factor before the pool is known before the statistics are, so that a block
// can pool sign * x while it sums x: max(a * x + b) is a * max(x) + b or a * min(x) + b. The pooled tile stays in shared memory until the
// cluster's blocks have added up their sums, and is written while the next sample streams through: nobody waits for the exchange.

/// The strips, and what a block keeps of them.
struct PooledTiles : StripPlan {
  struct ChannelParameters {
    float sign, weight, bias, scale;
  };
  using Totals = ClusterTotals<ShiftedSums, threads>;

  int groups, group_channels;
  int entry_channels, entries;                      ///< of a thread's channels those of one group are summed up together over the cluster
  double share;                                     ///< of an element in its group's mean
  int pitch = 0;                                    ///< places to a channel in a tile
  std::int64_t numbers_offset = 0, tile_bytes = 0;  ///< after a tile's values; of a tile, of which there are two

  PooledTiles(const Tensor& input, const GroupNormPoolGeometry& geometry)
      : StripPlan(input, geometry),
        groups(static_cast<int>(geometry.groups)),
        group_channels(static_cast<int>(geometry.group_channels())),
        entry_channels(std::gcd(group_channels, width)),
        entries(channels / entry_channels),
        share(share_of_each(geometry.group_pixels())) {}

  /// Lays a block's memory out for clusters of so many; false if it does not fit.
  bool fit(int cluster_blocks, std::int64_t element_bytes, bool numbered, std::int64_t room) {
    split(cluster_blocks);
    const std::int64_t places = (block_windows() | 1) * channels;  // an odd pitch spreads the channels over the banks
    numbers_offset = places * element_bytes;
    tile_bytes = (numbers_offset + (numbered ? places : 0) + 15) / 16 * 16;
    pitch = static_cast<int>(std::min<std::int64_t>(block_windows() | 1, INT32_MAX));
    const std::size_t channel_bytes = sizeof(GroupMap<float>) + sizeof(ChannelParameters) + 2 * sizeof(float);
    const std::size_t own = static_cast<std::size_t>(entries) * Totals::channel_bytes + static_cast<std::size_t>(channels) * channel_bytes;
    return place_ring(2 * tile_bytes + static_cast<std::int64_t>(own), room);
  }
};

/// Whether a map keeps the order of all finite elements, or turns it: what is pooled before it is what would be pooled after it.
template <class T>
__device__ bool keeps_order(const GroupMap<T>& map) {
  return isfinite(map.reference) && isfinite(map.slope) && isfinite(map.shift) && isfinite(map.scale) && map.slope != 0 && map.scale != 0;
}

/// A block's work. `numbered`: it keeps which elements the maxima are.
template <class Stored, int kernel, bool numbered>
class TileBlock {
 public:
  using T = float;
  using Ring = StripRing<Stored, kernel>;
  using Elements = typename Ring::Elements;
  static constexpr int width = Ring::width;
  using Outputs = MaximumOutputs<Stored, std::uint8_t>;
  using Maxima = VectorMaxima<Stored, numbered>;
  using Words = typename Maxima::Words;

  __device__ TileBlock(const Stored* input, const GroupParameters<Stored>& parameters, const PooledTiles& tiles, std::byte* memory,
                       cuda::ByteBarrier* strip_barriers, cuda::ByteBarrier* round_barriers)
      : tiles_(tiles),
        input_(input),
        own_channel_(Ring::lane() % tiles.lanes * width),
        own_window_(Ring::lane() / tiles.lanes),
        memory_(memory),
        totals_(memory + 2 * tiles.tile_bytes, round_barriers, tiles.entries, static_cast<int>(blockIdx.x) % tiles.blocks, tiles.blocks),
        ring_(input, tiles, memory + tiles.ring_offset, strip_barriers),
        maps_(reinterpret_cast<GroupMap<T>*>(totals_.end())),
        parameters_(reinterpret_cast<PooledTiles::ChannelParameters*>(maps_ + tiles.channels)),
        pivots_(reinterpret_cast<T*>(parameters_ + tiles.channels)) {
    if (const int c = thread(); c < tiles.channels) {
      parameters_[c] = {parameters.sign(c), parameters.weight[c], parameters.bias[c], parameters.scale[c]};
    }
    __syncthreads();
  }

  /// Everything: see pool_tiles.
  __device__ void run(const Outputs& outputs, const StatisticsOutputs& statistics, const Clamp<T>& clamp, double eps) {
    bool turned[width], any_turned = false;
#pragma unroll
    for (int j = 0; j < width; ++j) any_turned |= turned[j] = !idle() && parameters_[own_channel_ + j].sign < 0;
    any_turned = __any_sync(~0u, any_turned);
    signs_ = Maxima::signs(turned);
    const std::int64_t first = ring_.first_sample(), step = ring_.step();
    int tile = 0;
    for (std::int64_t n = first;; n -= step, tile ^= 1) {
      const bool streams = n >= 0;  // the last turn only finalizes the sample before
      const T own_pivot = streams ? pivot(n) : T(0);
      VectorSums<Stored, T> sums;
      int item = streams ? Ring::warp() : ring_.items();
      bool finalizes = n < first;
#pragma unroll 1
      do {
        if (item < ring_.items()) {
          if (any_turned) {
            pool_strip<true>(ring_.strip(item), tile, sums);
          } else {
            pool_strip<false>(ring_.strip(item), tile, sums);
          }
        }
        if (finalizes) finalize(n + step, tile ^ 1, outputs, statistics, clamp, eps);
        finalizes = false;
        item += StripPlan::warps;
      } while (item < ring_.items());
      if (!streams) return;
      if (thread() < tiles_.channels) pivots(tile)[thread()] = own_pivot;
      __syncthreads();
      put(sums, tile);
      send();
    }
  }

 private:
  using Totals = PooledTiles::Totals;

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ bool idle() const { return own_channel_ >= tiles_.channels; }
  __device__ Stored* pooled(int tile) const {
    return reinterpret_cast<Stored*>(memory_ + tile * tiles_.tile_bytes);
  }                                                   ///< (channels, pitch)
  __device__ std::uint8_t* numbers(int tile) const {  ///< likewise
    return reinterpret_cast<std::uint8_t*>(memory_ + tile * tiles_.tile_bytes + tiles_.numbers_offset);
  }
  __device__ T* pivots(int tile) const { return pivots_ + tile * tiles_.channels; }
  __device__ const Stored* sample(std::int64_t n) const { return input_ + n * tiles_.planes.pixels * tiles_.channels; }
  /// The first element of the group of the thread's number, around which sums over blocks are.
  __device__ T pivot(std::int64_t n) const {
    if (thread() >= tiles_.channels) return 0;
    return convert<T>(sample(n)[thread() / tiles_.group_channels * tiles_.group_channels]);
  }

  /// Adds the warp's next strip's elements to `sums`, and puts its maxima into a tile.
  template <bool turned>
  __device__ void pool_strip(const Strip& strip, int tile, VectorSums<Stored, T>& sums) {
    Elements elements[kernel * kernel];
    ring_.take(elements, own_window_, idle() ? 0 : own_channel_);
    const int window = strip.first + own_window_, rows = ring_.rows_of(strip.row), columns = ring_.columns_of(window);
    if (idle() || columns <= 0) return;
    sums.begin(elements[0], rows * columns);
    const bool whole = rows == kernel && columns == kernel;
    Words words[kernel * kernel];
#pragma unroll
    for (int i = 0; i < kernel * kernel; ++i) words[i] = std::bit_cast<Words>(elements[i]);
    if (!whole) {
      const auto pivots = std::bit_cast<Words>(sums.pivots());  // which add nothing
#pragma unroll
      for (int i = 0; i < kernel * kernel; ++i) {
        if (i / kernel >= rows || i % kernel >= columns) words[i] = pivots;
      }
    }
#pragma unroll
    for (const Words& x : words) sums.add(std::bit_cast<Elements>(x));
    if (whole) pool_window<turned>(words, tile, strip.row * tiles_.breadth.output + window);
  }
  template <bool turned>
  __device__ void pool_window(const Words (&elements)[kernel * kernel], int tile, int place) {
    Maxima maxima;
    maxima.template find<turned>(elements, signs_);
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const int to = (own_channel_ + j) * tiles_.pitch + place;
      pooled(tile)[to] = maxima.value(j);
      if constexpr (numbered) numbers(tile)[to] = maxima.number(j);
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

  /// Adds up the warp's sums of each entry, to the partial sums that are sent.
  template <class Sum>
  __device__ void put(const VectorSums<Stored, Sum>& sums, int tile) {
    ShiftedSums shifted[width];
    if (!idle() && sums.count > 0) {
#pragma unroll
      for (int j = 0; j < width; ++j) shifted[j] = sums.sums[j].shifted(sums.count, static_cast<Sum>(pivots(tile)[own_channel_ + j]));
    }
    // Neighbours that are of one entry, then the lanes that have the same channels.
#pragma unroll
    for (int apart = 1; apart < width; apart *= 2) {
      if (apart == tiles_.entry_channels) break;
#pragma unroll
      for (int j = 0; j < width; j += 2 * apart) shifted[j] = shifted[j] + shifted[j + apart];
    }
#pragma unroll
    for (int j = 0; j < width; ++j) {
      if (j % tiles_.entry_channels != 0) continue;
      for (int mask = cuda::warp_size / 2; mask >= tiles_.lanes; mask /= 2) shifted[j] = shifted[j] + cuda::shuffle_xor(shifted[j], mask);
      const int entry = (own_channel_ + j) / tiles_.entry_channels;
      if (own_window_ == 0 && !idle()) totals_.partials[Ring::warp() * tiles_.entries + entry] = shifted[j];
    }
  }
  __device__ void send() {
    totals_.send(Totals::warps, [this](int part, int entry) { return totals_.partials[part * tiles_.entries + entry]; });
  }

  /// Writes a sample's results, whose sums are on their way: the warps take the channels in turn.
  __device__ void finalize(std::int64_t n, int tile, const Outputs& outputs, const StatisticsOutputs& statistics, const Clamp<T>& clamp,
                           double eps) {
    totals_.wait();
    bool overflows = false;
    for (int entry = Ring::lane(); entry < tiles_.entries; entry += cuda::warp_size) {
      overflows |= !isfinite(totals_.total(entry).squares);
    }
    // Squares that overflow in float, and infinities and NaNs, are summed once more in double. All warps of the cluster see the same sums.
    if (__any_sync(~0u, overflows)) {
      __syncthreads();
      VectorSums<Stored, double> wide;
      sum_again(n, wide);
      put(wide, tile);
      send();
      totals_.wait();
    }
    const int c = Ring::warp() + Ring::lane() * StripPlan::warps;
    if (c < tiles_.channels) make_map(n, c, tile, statistics, eps);
    __syncwarp();
    write(n, tile, outputs, clamp);
    __syncwarp();
  }

  __device__ void make_map(std::int64_t n, int c, int tile, const StatisticsOutputs& statistics, double eps) const {
    const int group = c / tiles_.group_channels, group_entries = tiles_.group_channels / tiles_.entry_channels;
    ShiftedSums sums;
    for (int i = 0; i < group_entries; ++i) sums = sums + totals_.total(group * group_entries + i);
    const DeviceMoments moments(sums, static_cast<double>(pivots(tile)[c]), tiles_.share);
    const double rstd = rsqrt(moments.variance + eps);
    const PooledTiles::ChannelParameters own = parameters_[c];
    maps_[c] = GroupMap<T>(moments.mean, rstd, own.weight, own.bias, own.scale);
    const bool writes = ring_.first_row() == 0 && c % tiles_.group_channels == 0;
    if (writes) statistics.write(n * tiles_.groups + group, moments.mean, rstd);
  }

  /// The tile's windows, a warp a channel.
  __device__ void write(std::int64_t n, int tile, const Outputs& outputs, const Clamp<T>& clamp) const {
    const int columns = tiles_.breadth.output, windows = min(tiles_.rows, tiles_.height.output - ring_.first_row()) * columns;
    for (int c = Ring::warp(); c < tiles_.channels; c += StripPlan::warps) {
      const GroupMap<T> map = maps_[c];
      const Stored* const values = pooled(tile) + c * tiles_.pitch;
      const std::uint8_t* const window_numbers = numbers(tile) + c * tiles_.pitch;
      const Outputs to = outputs.from(((n * tiles_.channels + c) * tiles_.height.output + ring_.first_row()) * columns);
      if (keeps_order(map)) {
        const T sign = parameters_[c].sign;
#pragma unroll 4
        for (int begin = 0; begin < windows; begin += cuda::warp_size) {  // for all lanes alike
          const int i = begin + Ring::lane();
          if (i >= windows) continue;
          const T argmax_input = convert<T>(values[i]) * sign;
          to.write(i, clamp(map(argmax_input)), numbered ? window_numbers[i] : 0, argmax_input);
        }
      } else {
        for (int i = Ring::lane(); i < windows; i += cuda::warp_size) {
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
  Words signs_;  ///< of the thread's channels
  std::byte* memory_;
  Totals totals_;
  Ring ring_;
  GroupMap<T>* maps_;  ///< (channels), as what follows
  PooledTiles::ChannelParameters* parameters_;
  T* pivots_;  ///< (2, channels)
};

/// As many clusters as run at a time, which loop over the samples with that stride. Reads the input once and writes the results.
/// Deterministic.
template <class Stored, int kernel, bool numbered>
__global__ void __launch_bounds__(StripPlan::threads, 1)
    pool_tiles(MaximumOutputs<Stored, std::uint8_t> outputs, StatisticsOutputs statistics, const Stored* input,
               GroupParameters<Stored> parameters, Clamp<float> clamp, double eps, PooledTiles tiles) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier strip_barriers[StripPlan::warps * StripPlan::most_stages];
  __shared__ cuda::ByteBarrier round_barriers[PooledTiles::Totals::rounds];
  TileBlock<Stored, kernel, numbered>(input, parameters, tiles, memory, strip_barriers, round_barriers)
      .run(outputs, statistics, clamp, eps);
}

}  // namespace frit::ops
