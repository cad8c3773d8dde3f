#pragma once

#include "frit/ops/cuda/async_copy.h"
#include "frit/ops/cuda/cluster_totals.h"
#include "frit/ops/fused/group_norm_scale_max_pool_clamp_backward_cuda.h"
#include "frit/ops/fused/window_strips_cuda.h"

namespace frit::ops {

// group_norm_scale_max_pool_clamp_backward in one walk. What the winners of a block's windows get, and the sums that the norm's gradient
// needs, come from the small tensors; they are found while the sample before still streams through, so that the cluster's exchange of sums
// keeps nobody waiting.

/// Of a group, what its norm's gradient needs: see NormGradientSums.
struct EnteringSums {
  double gradient = 0, product = 0;

  __device__ friend EnteringSums operator+(const EnteringSums& a, const EnteringSums& b) {
    return {a.gradient + b.gradient, a.product + b.product};
  }
};

/// The strips, and what a block keeps of the windows.
struct GradientTiles : StripPlan {
  using Totals = ClusterTotals<EnteringSums, threads>;

  static constexpr std::int64_t most_blocks = 256;  ///< of the grid, each of which has its parts of the channels' gradients

  /// Of one channel: its sums over the block's windows, and what the sample's map was, for the rule to be made of.
  struct Channel {
    ChannelParts<4> parts;  ///< over all samples of the block
    ChannelSums<double> sums;
    double rstd;
    GroupMap<float> map;
    float weight, bias, scale;
  };

  int groups, group_channels;
  double share;                     ///< of an element in its group's mean
  int pitch = 0;                    ///< places to a channel in a tile
  std::int64_t numbers_offset = 0;  ///< in a tile, behind its values
  std::int64_t tile_bytes = 0;      ///< of which there are two
  std::int64_t rules_bytes = 0;     ///< behind the tiles; then what the fields of GradientBlock say

  GradientTiles(const Tensor& input, const GroupNormPoolGeometry& geometry)
      : StripPlan(input, geometry),
        groups(static_cast<int>(std::min<std::int64_t>(geometry.groups, INT32_MAX))),
        group_channels(static_cast<int>(std::min<std::int64_t>(geometry.group_channels(), INT32_MAX))),
        share(1 / static_cast<double>(std::max<std::int64_t>(1, geometry.group_pixels()))) {}

  /// Lays a block's memory out for clusters of so many; false if it does not fit.
  bool fit(int cluster_blocks, std::int64_t room) {
    split(cluster_blocks);
    const std::int64_t odd = block_windows() | 1, places = odd * channels;  // an odd pitch spreads the channels over the banks
    pitch = static_cast<int>(std::min<std::int64_t>(odd, INT32_MAX));
    numbers_offset = places * static_cast<std::int64_t>(sizeof(float));
    tile_bytes = (numbers_offset + places + 127) / 128 * 128;
    rules_bytes = static_cast<std::int64_t>(GradientRules<float>::bytes(channels));
    const std::size_t channel_bytes = sizeof(Channel) + warps * sizeof(float);
    const std::size_t own = static_cast<std::size_t>(groups) * Totals::channel_bytes + static_cast<std::size_t>(channels) * channel_bytes;
    return place_ring(2 * tile_bytes + rules_bytes + static_cast<std::int64_t>(own), room);
  }
};

/// A block's work.
template <class Stored, int kernel>
class GradientBlock {
 public:
  using T = float;
  using Call = PoolGradientCall<Stored, std::uint8_t>;
  using Ring = StripRing<Stored, kernel>;
  using Elements = typename Ring::Elements;
  static constexpr int width = Ring::width;
  using Values = cuda::Vector<T, width>;
  using Rule = RuleVector<T, width>;

  __device__ GradientBlock(Stored* input_gradient, const Stored* input, const Call& call, const GradientTiles& tiles, std::byte* memory,
                           cuda::ByteBarrier* strip_barriers, cuda::ByteBarrier* round_barriers)
      : call_(call),
        tiles_(tiles),
        input_gradient_(input_gradient),
        own_channel_(Ring::lane() % tiles.lanes * width),
        own_window_(Ring::lane() / tiles.lanes),
        memory_(memory),
        rules_(memory + 2 * tiles.tile_bytes, tiles.channels),
        totals_(memory + 2 * tiles.tile_bytes + tiles.rules_bytes, round_barriers, tiles.groups,
                static_cast<int>(blockIdx.x) % tiles.blocks, tiles.blocks),
        channels_(reinterpret_cast<GradientTiles::Channel*>(totals_.end())),
        differences_(reinterpret_cast<T*>(channels_ + tiles.channels)),
        ring_(input, tiles, memory + tiles.ring_offset, strip_barriers) {
    if (const int c = thread(); c < tiles.channels) {
      GradientTiles::Channel& own = channels_[c];
      own.parts = {};
      own.weight = call.parameters.weight[c], own.bias = call.parameters.bias[c], own.scale = call.parameters.scale[c];
      rules_.by_difference[c] = 0;
    }
    __syncthreads();
  }

  /// Everything: see write_tiles.
  __device__ void run(ChannelParts<4>* parts /* (C) */) {
    const std::int64_t first = ring_.first_sample(), step = ring_.step();
    int tile = 1;
    // The first turn has no sample: it prepares the first.
    for (std::int64_t n = first + step; n >= 0; n -= step, tile ^= 1) {
      if (n <= first) open();
      const Rule rule(rules_, idle() ? 0 : own_channel_);
      Values sums{};
      int item = n <= first ? Ring::warp() : ring_.items();
      bool prepares = n >= step;
#pragma unroll 1
      do {
        if (item < ring_.items()) write_strip(n, ring_.strip(item), tile, rule, sums);
        if (prepares) prepare(n - step, tile ^ 1);
        prepares = false;
        item += StripPlan::warps;
      } while (item < ring_.items());
      keep(sums);
    }
    __syncthreads();
    if (thread() >= tiles_.channels) return;
    close(thread());
    parts[thread()] = channels_[thread()].parts;
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ bool idle() const { return own_channel_ >= tiles_.channels; }
  __device__ T* more(int tile) const { return reinterpret_cast<T*>(memory_ + tile * tiles_.tile_bytes); }  ///< (channels, pitch)
  __device__ std::uint8_t* numbers(int tile) const {
    return reinterpret_cast<std::uint8_t*>(memory_ + tile * tiles_.tile_bytes + tiles_.numbers_offset);
  }

  /// Finds what the winners of the block's windows get, to a tile, a warp a channel, and sends the sums to the cluster.
  __device__ void prepare(std::int64_t n, int tile) {
    constexpr int at_once = 4;
    const int windows = max(0, min(tiles_.rows, tiles_.height.output - ring_.first_row())) * tiles_.breadth.output;
    for (int c = Ring::warp(); c < tiles_.channels; c += StripPlan::warps) {
      GradientTiles::Channel& own = channels_[c];
      const std::int64_t slice = n * tiles_.groups + c / tiles_.group_channels;
      const std::int64_t first = ((n * tiles_.channels + c) * tiles_.height.output + ring_.first_row()) * tiles_.breadth.output;
      const double mean = call_.means[slice], rstd = call_.rstds[slice];
      const GroupMap<T> map(mean, rstd, own.weight, own.bias, own.scale);
      if (n >= ring_.step()) {
        const std::int64_t next = first - static_cast<std::int64_t>(ring_.step()) * tiles_.channels * call_.windows;
        prefetch(call_.gradient + next, windows);
        prefetch(call_.selected + next, windows);
        prefetch(call_.winners + next, windows);
      }
      ChannelSums<T> sums;
      for (int begin = Ring::lane(); begin < windows; begin += at_once * cuda::warp_size) {
        Stored gradient[at_once], x[at_once];
        std::uint8_t number[at_once];
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          const int i = min(begin + u * cuda::warp_size, windows - 1);
          gradient[u] = call_.gradient[first + i];
          x[u] = call_.selected[first + i];
          number[u] = call_.winners[first + i];
        }
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          const int i = begin + u * cuda::warp_size;
          if (i >= windows) break;
          T x_gradient;
          sums = sums + call_.at_winner(map, convert<T>(x[u]), convert<T>(gradient[u]), x_gradient);
          more(tile)[c * tiles_.pitch + i] = x_gradient;
          numbers(tile)[c * tiles_.pitch + i] = number[u];
        }
      }
      const ChannelSums<double> total = cuda::warp_reduce(sums.template to<double>());
      if (Ring::lane() != 0) continue;
      own.sums = ring_.first_row() == 0 ? Call::whole(map, total) : total;
      own.map = map;
      own.rstd = rstd;
    }
    totals_.send(1, [this](int, int group) {
      EnteringSums entering;
      for (int i = 0; i < tiles_.group_channels; ++i) {
        const GradientTiles::Channel& channel = channels_[group * tiles_.group_channels + i];
        const auto weight = static_cast<double>(channel.weight);
        entering = entering + EnteringSums{weight * channel.sums.gradient, weight * channel.sums.product};
      }
      return entering;
    });
  }

  /// Brings a row of elements nearer, a line a lane.
  template <class Element>
  __device__ static void prefetch(const Element* from, int count) {
    const int i = Ring::lane() * 128 / static_cast<int>(sizeof(Element));
    if (i < count) cuda::prefetch_to_l2(from + i);
  }

  /// Closes the last sample, and makes the rules of the next one, whose sums are on their way.
  __device__ void open() {
    __syncthreads();
    totals_.wait();
    if (thread() < tiles_.channels) {
      close(thread());
      make_rule(thread());
    }
    __syncthreads();
  }
  /// See close_groups.
  __device__ void make_rule(int c) const {
    GradientTiles::Channel& own = channels_[c];
    const EnteringSums total = totals_.total(c / tiles_.group_channels);
    const double slope = static_cast<double>(own.map.slope), elsewhere = 0 * slope * static_cast<double>(own.scale);
    const double by_difference = -own.rstd * own.rstd * own.rstd * (total.product * tiles_.share);
    const double offset =
        elsewhere * own.rstd - own.rstd * (total.gradient * tiles_.share) - static_cast<double>(own.map.rest) * by_difference;
    rules_.set(c, own.map.reference, by_difference, offset);
    const int rows = ring_.items() / tiles_.strips * kernel, image_rows = min(rows, tiles_.height.image - ring_.first_row() * kernel);
    const double pixels = static_cast<double>(max(0, image_rows)) * tiles_.breadth.image;
    own.parts = own.parts + ChannelParts<4>{{own.sums.product * own.rstd, own.sums.gradient, own.sums.scale,
                                             slope * own.sums.gradient + pixels * offset}};
  }

  /// Reads a strip and writes its gradient. Adds up x - reference.
  __device__ void write_strip(std::int64_t n, const Strip& strip, int tile, const Rule& rule, Values& sums) {
    const int window = strip.first + own_window_, rows = ring_.rows_of(strip.row), columns = ring_.columns_of(window);
    const int row = ring_.first_row() + strip.row;
    const bool in_window = row < tiles_.height.output && window < tiles_.breadth.output && !idle();
    const int place = in_window ? own_channel_ * tiles_.pitch + strip.row * tiles_.breadth.output + window : 0;
    Values addend;
    int number[width];
#pragma unroll
    for (int j = 0; j < width; ++j) {
      addend[j] = more(tile)[place + (in_window ? j * tiles_.pitch : 0)];
      number[j] = in_window ? numbers(tile)[place + j * tiles_.pitch] : kernel * kernel;
    }
    const std::int64_t pixel = n * tiles_.planes.pixels + static_cast<std::int64_t>(row) * kernel * tiles_.breadth.image + window * kernel;
    Stored* const to = input_gradient_ + pixel * tiles_.channels + own_channel_;
    const int row_step = tiles_.breadth.image * tiles_.channels;
    ring_.wait();
#pragma unroll
    for (int kh = 0; kh < kernel; ++kh) {
      Elements x[kernel];
#pragma unroll
      for (int kw = 0; kw < kernel; ++kw) x[kw] = ring_.element(kh * kernel + kw, own_window_, idle() ? 0 : own_channel_);
#pragma unroll
      for (int kw = 0; kw < kernel; ++kw) {
        if (idle() || kh >= rows || kw >= columns) continue;
        Elements result;
#pragma unroll
        for (int j = 0; j < width; ++j) {
          const T difference = rule.difference(j, convert<T>(x[kw][j])), spread = rule.spread(j, difference);
          sums[j] += difference;
          result[j] = convert<Stored>(number[j] == kh * kernel + kw ? spread + addend[j] : spread);
        }
        store_streamed(to + (kh * row_step + kw * tiles_.channels), result);
      }
    }
    ring_.release();
  }

  /// The warp's sums of x - reference over a sample, until the block's are added up.
  __device__ void keep(Values sums) const {
#pragma unroll
    for (int j = 0; j < width; ++j) {
      for (int mask = cuda::warp_size / 2; mask >= tiles_.lanes; mask /= 2) sums[j] += cuda::shuffle_xor(sums[j], mask);
      if (own_window_ == 0 && !idle()) differences_[Ring::warp() * tiles_.channels + own_channel_ + j] = sums[j];
    }
  }
  /// What the last sample's differences add to the channel's sum of the input's gradient.
  __device__ void close(int c) const {
    double total = 0;
    for (int warp = 0; warp < StripPlan::warps; ++warp) total += static_cast<double>(differences_[warp * tiles_.channels + c]);
    channels_[c].parts.values[3] += static_cast<double>(rules_.by_difference[c]) * total;
  }

  const Call& call_;
  const GradientTiles& tiles_;
  Stored* input_gradient_;
  int own_channel_, own_window_;
  std::byte* memory_;
  GradientRules<T> rules_;  ///< of the sample that streams
  GradientTiles::Totals totals_;
  GradientTiles::Channel* channels_;
  T* differences_;  ///< (warps, channels)
  Ring ring_;
};

/// As many clusters as run at a time, each going through every so manieth sample. Reads the input and the small tensors once, and writes
/// the input's gradient, which may lie on the input: a strip is in shared memory before its gradient is written. Each block's parts of the
/// channels' gradients go to `parts`. Deterministic.
template <class Stored, int kernel>
__global__ void __launch_bounds__(StripPlan::threads, 1)
    write_tiles(Stored* input_gradient, ChannelParts<4>* parts /* (blocks, C) */, const Stored* input,
                PoolGradientCall<Stored, std::uint8_t> call, GradientTiles tiles) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier strip_barriers[StripPlan::warps * StripPlan::most_stages];
  __shared__ cuda::ByteBarrier round_barriers[GradientTiles::Totals::rounds];
  GradientBlock<Stored, kernel>(input_gradient, input, call, tiles, memory, strip_barriers, round_barriers)
      .run(parts + static_cast<std::int64_t>(blockIdx.x) * tiles.channels);
}

}  // namespace frit::ops
