#pragma once

#include "frit/ops/cuda/async_copy.h"
#include "frit/ops/fused/held_samples_cuda.h"
#include "frit/ops/fused/scale_instance_norm_clamp_scale_max_backward_cuda.h"

namespace frit::ops {

/// A block's work on the samples that its cluster holds, channels-last: the sums over the winners, from the small tensors, while the input
/// is on its way, and then the input's gradient.
template <class Stored>
class HeldGradients {
 public:
  static constexpr int channels = 16;  ///< few enough that a thread has the sums of all in registers

  using T = ComputeType<Stored>;
  using Held = WarpHeldSamples;
  using Holder = SampleHolder<Stored, true, Held, channels>;
  using Totals = HeldTotals<InstanceSums, Held>;
  using Call = InstanceGradientCall<Stored, std::uint8_t>;
  static constexpr std::size_t channel_bytes = Totals::channel_bytes + 3 * sizeof(T) + 2 * (sizeof(InstanceMap<T>) + sizeof(double));

  __device__ HeldGradients(const Call& call, const Held& held, std::byte* memory, cuda::ByteBarrier* chunk_barriers,
                           cuda::ByteBarrier* round_barriers)
      : call_(call),
        held_(held),
        rank_(static_cast<int>(blockIdx.x) % held.blocks),
        holder_(call.input, held, memory, chunk_barriers, rank_),
        totals_(memory + held.rest_offset, round_barriers, channels, rank_, held.blocks),
        rules_(totals_.end(), channels),
        maps_(reinterpret_cast<InstanceMap<T>*>(totals_.end() + GradientRules<T>::bytes(channels))),
        centers_(reinterpret_cast<double*>(maps_ + 2 * channels)) {}

  /// Everything: see write_held_gradients. Begins with the last sample, which was written last and may still be in the cache.
  __device__ void run(Stored* input_gradient, ChannelParts<3>* parts) {
    const std::int64_t cluster = blockIdx.x / static_cast<unsigned>(held_.blocks), step = gridDim.x / static_cast<unsigned>(held_.blocks);
    const std::int64_t last = held_.planes.samples - 1 - cluster;
    prefetch(last);
    for (int chunk = warp(); has(chunk); chunk += Held::warps) holder_.request(chunk, last);
    if (warp() == 0) make_maps(last, 0);
    __syncthreads();
    unsigned turn = 0;
    for (std::int64_t n = last; n >= 0; n -= step, ++turn) {
      const std::int64_t next = n - step;
      sum(n, turn & 1);
      if (next >= 0) prefetch(next);
      totals_.send(Held::warps, [this](int part, int c) { return totals_.partials[part * channels + c]; });
      if (warp() == 0) {
        totals_.wait();
        close(parts, n, turn & 1);
      } else if (warp() == 1 && next >= 0) {
        make_maps(next, (turn + 1) & 1);
      }
      __syncthreads();
      write(input_gradient, n, next, turn);
    }
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int warp() { return static_cast<int>(threadIdx.x / cuda::warp_size); }
  __device__ static int lane() { return static_cast<int>(threadIdx.x % cuda::warp_size); }
  __device__ bool has(int chunk) const { return holder_.chunk_begin(chunk) < holder_.pixels(); }

  /// By a warp: what is known of sample n before its sums. No block writes the sample's gradient, maybe over the input, before all blocks
  /// have sent their sums, which is later.
  __device__ void make_maps(std::int64_t n, unsigned half) const {
    const int own = lane() % channels;
    const InstanceMap<T> map = call_.map(n, own);
    double center = told_difference(call_, map, n, own);
#pragma unroll 1
    for (int c = 0; rank_ == 0 && c < channels; ++c) {
      if (call_.scale[c] != 0) continue;
      const double mean = mean_difference(call_, call_.map(n, c), n, c, lane());
      if (c == own) center = mean;
    }
    if (lane() >= channels) return;
    maps_[half * channels + own] = map;
    centers_[half * channels + own] = center;
  }

  /// Each warp's part of the channels' sums over the block's pixels.
  __device__ void sum(std::int64_t n, unsigned half) const {
    constexpr int at_once = 7;
    const InstanceMap<T>* const maps = maps_ + half * channels;
    const std::int64_t first = n * held_.planes.pixels + holder_.begin();
    T gradients[channels]{}, products[channels]{}, post_scales[channels]{};
#pragma unroll 1
    for (int p = thread(); p < holder_.pixels(); p += at_once * Held::threads) {
      T g[at_once], x[at_once];
      int winner[at_once];
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const int q = p + u * Held::threads;
        const bool inside = q < holder_.pixels();
        g[u] = inside ? convert<T>(call_.gradient[first + q]) : T(0);
        x[u] = inside ? convert<T>(call_.selected[first + q]) : T(0);
        winner[u] = inside ? call_.winners[first + q] : channels;
      }
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const WinnerParts<T> part(call_.clamp, maps[min(winner[u], channels - 1)], g[u], x[u]);
#pragma unroll
        for (int c = 0; c < channels; ++c) add_where_equal(winner[u], c, gradients[c], products[c], post_scales[c], part);
      }
    }
    const T gradient = sum_over_lanes(gradients), product = sum_over_lanes(products), post_scale = sum_over_lanes(post_scales);
    if (lane() >= channels) return;
    totals_.partials[warp() * channels + lane()] = {static_cast<double>(gradient), static_cast<double>(product),
                                                    static_cast<double>(post_scale)};
  }
  /// Where a == b. Spelled out, since the compiler would keep the sums in memory for the sake of an index.
  __device__ static void add_where_equal(int a, int b, float& gradient, float& product, float& post_scale, const WinnerParts<float>& part) {
    asm("{\n.reg .pred equal;\nsetp.eq.s32 equal, %3, %4;\n"
        "@equal add.f32 %0, %0, %5;\n@equal add.f32 %1, %1, %6;\n@equal add.f32 %2, %2, %7;\n}"
        : "+f"(gradient), "+f"(product), "+f"(post_scale)
        : "r"(a), "r"(b), "f"(part.entering), "f"(part.product), "f"(part.post_scale));
  }
  /// The warp's sum of number l % channels of all lanes, in lane l: half of the lanes go on with half of the numbers, and so on.
  template <int half = channels / 2>
  __device__ static T sum_over_lanes(T (&numbers)[channels]) {
    const bool upper = (lane() & half) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const T first = numbers[i], second = numbers[i + half];
      numbers[i] = (upper ? second : first) + cuda::shuffle_xor(upper ? first : second, half);
    }
    if constexpr (half > 1) return sum_over_lanes<half / 2>(numbers);
    static_assert(2 * channels == cuda::warp_size);
    return numbers[0] + cuda::shuffle_xor(numbers[0], channels);
  }

  /// Has the block's small tensors of sample n brought nearer.
  __device__ void prefetch(std::int64_t n) const {
    constexpr int line = 128;
    const std::int64_t first = n * held_.planes.pixels + holder_.begin();
    const auto bring = [&](const auto* from) {
      constexpr int elements = line / static_cast<int>(sizeof(*from));
      for (int i = thread() * elements; i < holder_.pixels(); i += Held::threads * elements) cuda::prefetch_to_l2(from + first + i);
    };
    bring(call_.gradient);
    bring(call_.selected);
    bring(call_.winners);
  }

  /// By a warp, when the sums are there: the sample's rules. All blocks see the same sums, the first the centers.
  __device__ void close(ChannelParts<3>* parts, std::int64_t n, unsigned half) const {
    const int c = lane();
    if (c >= channels) return;
    const int known = static_cast<int>(half) * channels + c;
    const ChannelParts<3> own = close_instance(rules_, c, call_, maps_[known], n, c, centers_[known], totals_.total(c));
    if (rank_ == 0) parts[n * channels + c] = own;
  }

  /// A thread has 16 bytes of a pixel, of some pixels. Each chunk that is done with is asked for again, of sample `next`.
  __device__ void write(Stored* input_gradient, std::int64_t n, std::int64_t next, unsigned turn) const {
    constexpr int width = cuda::vector_width<Stored>, lanes = channels / width, rows = cuda::warp_size / lanes, at_once = 6;
    const int c = lane() % lanes * width, row = lane() / lanes;
    const std::int64_t first = n * held_.planes.pixels + holder_.begin();
    const InstanceMap<T>* const maps = maps_ + (turn & 1) * channels;
    const RuleVector<T, width> rule(rules_, c);
    for (int chunk = warp(); has(chunk); chunk += Held::warps) {
      const int end = holder_.chunk_end(chunk);
      holder_.wait(turn, chunk);
#pragma unroll 1
      for (int p = holder_.chunk_begin(chunk) + row; p < end; p += at_once * rows) {
        T g[at_once], x_won[at_once];
        int winner[at_once];
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          const int q = p + u * rows;
          if (q >= end) continue;
          g[u] = convert<T>(call_.gradient[first + q]);
          x_won[u] = convert<T>(call_.selected[first + q]);
          winner[u] = call_.winners[first + q];
        }
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          const int q = p + u * rows;
          if (q >= end) continue;
          const auto x = holder_.wide(c, q);
          const auto own = static_cast<unsigned>(winner[u] - c);
          T more = 0;
          if (own < width) more = WinnerParts<T>(call_.clamp, maps[winner[u]], g[u], x_won[u]).more;
          cuda::WideVector<Stored> result;
#pragma unroll
          for (int j = 0; j < width; ++j) {
            const T spread = rule.spread(j, rule.difference(j, convert<T>(x[j])));
            result[j] = convert<Stored>(own == j ? spread + more : spread);
          }
          store_streamed(input_gradient + (first + q) * channels + c, result);
        }
      }
      if (next >= 0) holder_.request(chunk, next);
    }
  }

  const Call& call_;
  const Held& held_;
  int rank_;
  Holder holder_;
  Totals totals_;
  GradientRules<T> rules_;
  InstanceMap<T>* maps_;  ///< (2, C), those of this sample and of the next
  double* centers_;       ///< likewise: the mean of x less the map's reference
};

/// A cluster a sample, as many clusters as run at a time, each going through every so manieth sample. Reads the input once, into shared
/// memory, and the small tensors, and writes the input's gradient, maybe over the input, and what each sample adds to the channels'
/// gradients. Deterministic.
template <class Stored>
__global__ void __launch_bounds__(WarpHeldSamples::threads, WarpHeldSamples::most_resident)
    write_held_gradients(Stored* input_gradient, ChannelParts<3>* parts /* (N, C) */, InstanceGradientCall<Stored, std::uint8_t> call,
                         WarpHeldSamples held) {
  using Gradients = HeldGradients<Stored>;
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier chunk_barriers[WarpHeldSamples::chunks];
  __shared__ cuda::ByteBarrier round_barriers[Gradients::Totals::rounds];
  Gradients(call, held, memory, chunk_barriers, round_barriers).run(input_gradient, parts);
}

}  // namespace frit::ops
