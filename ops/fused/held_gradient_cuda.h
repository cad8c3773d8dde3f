#pragma once

#include "frit/ops/cuda/async_copy.h"
#include "frit/ops/fused/held_samples_cuda.h"
#include "frit/ops/fused/scale_instance_norm_clamp_scale_max_backward_cuda.h"

namespace frit::ops {

/// Adds each lane's terms to `sums` of its channel; those of one channel are first added by the lowest of their lanes, in order. For a
/// whole warp, whose `sums` nobody else changes.
template <class T>
__device__ void add_by_channel(InstanceSums* sums /* (C) */, int channels, PixelTerms<T> terms) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const unsigned all = 0xffffffffu, peers = __match_any_sync(all, terms.channel);
  const bool leads = (peers & ((1u << lane) - 1)) == 0;
  unsigned rest = leads ? peers & ~(1u << lane) : 0;
  const PixelTerms<T> own = terms;
  while (__any_sync(all, rest != 0)) {
    const int from = rest != 0 ? __ffs(static_cast<int>(rest)) - 1 : lane;
    const T entering = __shfl_sync(all, own.entering, from), product = __shfl_sync(all, own.product, from);
    const T clamped_product = __shfl_sync(all, own.clamped_product, from);
    if (rest != 0) {
      terms.entering += entering;
      terms.product += product;
      terms.clamped_product += clamped_product;
      rest &= rest - 1;
    }
  }
  if (leads && terms.channel >= 0 && terms.channel < channels) {
    sums[terms.channel] = sums[terms.channel] + InstanceSums{static_cast<double>(terms.entering), static_cast<double>(terms.product),
                                                             static_cast<double>(terms.clamped_product)};
  }
}

/// A block's work on the samples that its cluster holds: the sums over the winners, and then the gradient at its pixels.
template <class Stored, bool channels_last>
class HeldGradient {
 public:
  using T = ComputeType<Stored>;
  using Call = InstanceGradientCall<Stored, std::uint8_t>;
  using Holder = SampleHolder<Stored, channels_last>;
  using Totals = HeldTotals<InstanceSums>;
  static constexpr std::size_t channel_bytes = Totals::channel_bytes + sizeof(double) + sizeof(InstanceGradient<float>) + 2 * sizeof(float);

  __device__ HeldGradient(const Call& call, const HeldSamples& held, std::byte* memory, cuda::ByteBarrier* chunk_barriers,
                          cuda::ByteBarrier* round_barriers)
      : held_(held),
        call_(call),
        rank_(static_cast<int>(blockIdx.x) % held.blocks),
        channels_(static_cast<int>(held.planes.channels)),
        holder_(call.input, held, memory, chunk_barriers, rank_),
        totals_(memory + held.rest_offset, round_barriers, channels_, rank_, held.blocks),
        unscaled_(reinterpret_cast<double*>(totals_.end())),
        rules_(reinterpret_cast<InstanceGradient<T>*>(unscaled_ + channels_)),
        scales_(reinterpret_cast<T*>(rules_ + channels_)),
        post_scales_(scales_ + channels_) {}

  /// Everything: see carry_back_held_samples.
  __device__ void run(Stored* input_gradient, InstanceSums* sums) {
    const std::int64_t first = blockIdx.x / static_cast<unsigned>(held_.blocks), step = gridDim.x / static_cast<unsigned>(held_.blocks);
    for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) request(chunk, first);
    if (thread() < channels_) {
      scales_[thread()] = convert<T>(call_.scale[thread()]);
      post_scales_[thread()] = convert<T>(call_.post_scale[thread()]);
    }
    unsigned turn = 0;
    for (std::int64_t n = first; n < held_.planes.samples; n += step, ++turn) {
      make_maps(n);
      sum_over_winners(n, turn);
      prefetch(n + step);
      totals_.exchange(HeldSamples::warps);
      make_rules(sums, n);
      write(input_gradient, n, n + step);
    }
  }

 private:
  static constexpr int at_once = 4;  ///< pixels of a thread whose small tensors are under way together

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int warp() { return thread() / cuda::warp_size; }
  __device__ static int lane() { return thread() % cuda::warp_size; }
  __device__ std::int64_t first_pixel(std::int64_t n) const { return n * held_.planes.pixels + holder_.begin(); }
  __device__ void request(int chunk, std::int64_t n) const {
    if (n < held_.planes.samples && warp() == 0) holder_.request(chunk, n);
  }
  /// Into the L2 cache: what the block reads of sample n besides the input.
  __device__ void prefetch(std::int64_t n) const {
    constexpr int line = 128;
    if (n >= held_.planes.samples) return;
    const auto fetch = [](const auto* first, int count, int t) {
      const auto* const bytes = reinterpret_cast<const char*>(first);
      if (t * line < count * static_cast<int>(sizeof(*first))) cuda::prefetch_to_l2(bytes + t * line);
    };
    for (int t = thread(); t * line < holder_.pixels() * static_cast<int>(sizeof(Stored)); t += HeldSamples::threads) {
      fetch(call_.gradient + first_pixel(n), holder_.pixels(), t);
      fetch(call_.winners + first_pixel(n), holder_.pixels(), t);
      fetch(call_.means + n * channels_, channels_, t);
      fetch(call_.rstds + n * channels_, channels_, t);
    }
  }

  __device__ void make_maps(std::int64_t n) const {
    if (thread() < channels_) {
      const std::int64_t slice = n * channels_ + thread();
      rules_[thread()].map = Call::map_of(call_.means[slice], call_.rstds[slice], scales_[thread()], post_scales_[thread()]);
    }
    __syncthreads();
    for (int c = warp(); rank_ == 0 && c < channels_; c += HeldSamples::warps) {
      if (scales_[c] != 0) continue;
      const double product = unscaled_product(call_, rules_[c].map, n, c, lane());
      if (lane() == 0) unscaled_[c] = product;
    }
  }

  /// Those of each warp for itself, to totals_.partials.
  __device__ void sum_over_winners(std::int64_t n, unsigned turn) const {
    InstanceSums* const sums = totals_.partials + warp() * channels_;
    for (int c = lane(); c < channels_; c += cuda::warp_size) sums[c] = {};
    __syncwarp();
    const Stored* const gradient = call_.gradient + first_pixel(n);
    const std::uint8_t* const winners = call_.winners + first_pixel(n);
    bool there = false;  // the sample; the small tensors are on their way before it is waited for
    const auto wait = [&] {
      for (int chunk = 0; !there && chunk < HeldSamples::chunks; ++chunk) holder_.wait(turn, chunk);
      there = true;
    };
    for (int first = thread() - lane(); first < holder_.pixels(); first += at_once * HeldSamples::threads) {
      T g[at_once];
      int winner[at_once];
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const int p = first + u * HeldSamples::threads + lane();
        g[u] = p < holder_.pixels() ? convert<T>(gradient[p]) : T(0);
        winner[u] = p < holder_.pixels() ? static_cast<int>(winners[p]) : -1;
      }
      wait();
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        if (first + u * HeldSamples::threads < holder_.pixels()) {
          add_by_channel(sums, channels_, terms(winner[u], first + u * HeldSamples::threads + lane(), g[u]));
        }
      }
    }
    wait();
  }
  __device__ PixelTerms<T> terms(int winner, int p, T g) const {
    if (winner < 0) return {0, 0, 0, -1};
    const InstanceMap<T> map = rules_[winner].map;
    const T normalized = map.normalized(convert<T>(holder_.one(winner, p))), entering = call_.entering(map, g, true, normalized);
    return {entering, entering * normalized, g * call_.clamp(normalized), winner};
  }

  __device__ void make_rules(InstanceSums* sums, std::int64_t n) const {
    if (thread() < channels_) {
      const int c = thread();
      const InstanceMap<T> map = rules_[c].map;
      const InstanceSums total = totals_.total(c);
      const double rstd = call_.rstds[n * channels_ + c];
      rules_[c] = instance_gradient(map, total, scales_[c], rstd, static_cast<double>(held_.planes.pixels));
      if (rank_ == 0) sums[n * channels_ + c] = scale_sums(map, total, unscaled_[c], scales_[c], rstd, call_.eps);
    }
    __syncthreads();
  }

  /// The gradient that the winner of a pixel gets besides.
  __device__ T at_winner(int winner, int p, T g) const {
    const InstanceGradient<T>& rule = rules_[winner];
    return call_.entering(rule.map, g, true, rule.map.normalized(convert<T>(holder_.one(winner, p)))) * rule.by_entering;
  }

  /// Each chunk that is done with is asked for again, of sample `next`.
  __device__ void write(Stored* input_gradient, std::int64_t n, std::int64_t next) const {
    const Stored* const gradient = call_.gradient + first_pixel(n);
    const std::uint8_t* const winners = call_.winners + first_pixel(n);
    if constexpr (channels_last) {
      const int c = thread() % held_.lanes * Holder::width, rows = HeldSamples::threads / held_.lanes;
      const bool idle = c >= channels_;
      T reference[Holder::width], by_difference[Holder::width], offset[Holder::width];
#pragma unroll
      for (int j = 0; j < Holder::width; ++j) {
        const InstanceGradient<T>& rule = rules_[idle ? 0 : c + j];
        reference[j] = rule.map.reference, by_difference[j] = rule.by_difference, offset[j] = rule.offset;
      }
      Stored* const dx = input_gradient + first_pixel(n) * channels_ + c;
      int p = thread() / held_.lanes;
      for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) {
        const int end = idle ? 0 : holder_.chunk_end(chunk);
#pragma unroll 2
        for (; p < end; p += rows) {
          const int winner = static_cast<int>(winners[p]);
          const T g = convert<T>(gradient[p]);
          const typename Holder::Elements x = holder_.at(c, p);
          T values[Holder::width];
#pragma unroll
          for (int j = 0; j < Holder::width; ++j) values[j] = (convert<T>(x[j]) - reference[j]) * by_difference[j] + offset[j];
          if (winner >= c && winner < c + Holder::width) {
            const T more = at_winner(winner, p, g);
#pragma unroll
            for (int j = 0; j < Holder::width; ++j) values[j] += winner == c + j ? more : T(0);
          }
          typename Holder::Elements result;
#pragma unroll
          for (int j = 0; j < Holder::width; ++j) result[j] = convert<Stored>(values[j]);
          *reinterpret_cast<typename Holder::Elements*>(dx + static_cast<std::int64_t>(p) * channels_) = result;
        }
        __syncthreads();
        request(chunk, next);
      }
    } else {
      Stored* const dx = input_gradient + n * channels_ * held_.planes.pixels + holder_.begin();
      for (int p = thread(); p < holder_.pixels(); p += HeldSamples::threads) {
        const int winner = static_cast<int>(winners[p]);
        const T more = at_winner(winner, p, convert<T>(gradient[p]));
#pragma unroll 4
        for (int c = 0; c < channels_; ++c) {
          const T spread = rules_[c].spread(convert<T>(holder_.one(c, p)));
          dx[c * held_.planes.pixels + p] = convert<Stored>(winner == c ? spread + more : spread);
        }
      }
      __syncthreads();
      for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) request(chunk, next);
    }
  }

  const HeldSamples& held_;
  const Call& call_;
  int rank_, channels_;
  Holder holder_;
  Totals totals_;
  double* unscaled_;  ///< (C), like the rest
  InstanceGradient<T>* rules_;
  T *scales_, *post_scales_;
};

/// A cluster a sample, as many clusters as run at a time, each going through every so manieth sample. Reads the input once, into shared
/// memory, and writes its gradient, which may lie over it. Deterministic.
template <class Stored, bool channels_last>
__global__ void __launch_bounds__(HeldSamples::threads, HeldSamples::most_resident)
    carry_back_held_samples(Stored* input_gradient, InstanceSums* sums /* (N, C) */, InstanceGradientCall<Stored, std::uint8_t> call,
                            HeldSamples held) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier chunk_barriers[HeldSamples::chunks];
  __shared__ cuda::ByteBarrier round_barriers[HeldTotals<InstanceSums>::rounds];
  HeldGradient<Stored, channels_last>(call, held, memory, chunk_barriers, round_barriers).run(input_gradient, sums);
}

}  // namespace frit::ops
