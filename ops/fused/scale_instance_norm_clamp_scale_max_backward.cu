// The gradients of max over channels of clamp(instance_norm(input * scale)) * post_scale.

#include "frit/ops/fused/held_samples_cuda.h"
#include "frit/ops/fused/scale_instance_norm_clamp_scale_max_cuda.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = ScaleInstanceNormClampScaleMaxAttributes;

/// What one channel of one sample, or a part of it, adds to the gradients.
struct InstanceSums {
  double gradient = 0, product = 0;  ///< of the gradient that enters the norm; of it times the norm's result
  double post_scale = 0;

  __device__ friend InstanceSums operator+(const InstanceSums& a, const InstanceSums& b) {
    return {a.gradient + b.gradient, a.product + b.product, a.post_scale + b.post_scale};
  }
};

/// What one pixel adds to the gradients of its winning channel.
template <class T>
struct PixelTerms {
  T entering, product, clamped_product;
  std::int32_t channel;
};

/// The input's gradient in one channel of one sample: entering * by_entering + normalized * by_normalized + offset.
template <class T>
struct InstanceGradient {
  InstanceMap<T> map;
  T by_entering, by_normalized, offset;
};

/// What all kernels below read.
template <class Stored, class Winner>
struct Call {
  using T = ComputeType<Stored>;

  Planes planes;
  Places places, gradient_places;  // of the input, of its gradient
  const Stored *gradient, *input, *scale, *post_scale;
  Clamp<T> clamp;
  double eps;
  const Winner* winners;
  const double *means, *rstds;

  __device__ InstanceMap<T> map(std::int64_t n, std::int64_t c) const {
    const std::int64_t slice = n * planes.channels + c;
    const T s = convert<T>(scale[c]);
    return {s == 0 ? 0 : means[slice] / static_cast<double>(s), means[slice], rstds[slice], s, convert<T>(post_scale[c])};
  }
  /// Leaves out the first samples.
  void skip(std::int64_t samples) {
    gradient += samples * planes.pixels;
    input += samples * places.sample;
    winners += samples * planes.pixels;
    means += samples * planes.channels;
    rstds += samples * planes.channels;
  }

  /// The gradient that enters the norm. It is 0 but at the winner, which matters where that meets an infinity or NaN.
  __device__ T entering(const InstanceMap<T>& map, T pixel_gradient, bool wins, T normalized) const {
    return clamp.gradient((wins ? pixel_gradient : T(0)) * map.post_scale, normalized);
  }
};

/// How the pixels of a sample are dealt out for the sums: a block adds up a chunk of them for `lanes` channels.
struct WinnerSplit {
  static constexpr std::int64_t chunk_pixels = 2048;
  std::int64_t chunks, tiles;
  int lanes;

  explicit WinnerSplit(const Planes& planes)
      : chunks((planes.pixels + chunk_pixels - 1) / chunk_pixels), lanes(lanes_for(planes.channels)) {
    tiles = (planes.channels + lanes - 1) / lanes;
  }
};

/// One block a chunk of pixels and `lanes` channels. A thread first finds the terms of a pixel, from the winner alone, and then adds up
/// those of one channel in the block's tile of pixels. Reads the small tensors, and one element a pixel of the input. Deterministic.
template <class Stored, class Winner>
__global__ void sum_over_winners(InstanceSums* partials /* (N, chunks, C) */, Call<Stored, Winner> call, WinnerSplit split,
                                 std::int64_t items) {
  using T = ComputeType<Stored>;
  __shared__ PixelTerms<T> terms[cuda::default_threads];
  __shared__ InstanceSums shared[cuda::default_threads];
  const Planes planes = call.planes;
  const int lane = static_cast<int>(threadIdx.x) % split.lanes, row = static_cast<int>(threadIdx.x) / split.lanes;
  const int rows = cuda::default_threads / split.lanes;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t chunk = item % split.chunks, tile = item / split.chunks % split.tiles, n = item / split.chunks / split.tiles;
    const std::int64_t c = tile * split.lanes + lane, end = min(planes.pixels, (chunk + 1) * split.chunk_pixels);
    InstanceSums sums;
    for (std::int64_t first = chunk * split.chunk_pixels; first < end; first += cuda::default_threads) {
      const std::int64_t p = first + threadIdx.x;
      PixelTerms<T> mine{0, 0, 0, -1};
      if (p < end) {
        mine.channel = static_cast<std::int32_t>(call.winners[n * planes.pixels + p]);
        const InstanceMap<T> map = call.map(n, mine.channel);
        const T g = convert<T>(call.gradient[n * planes.pixels + p]);
        const T normalized = map.normalized(convert<T>(call.input[call.places(n, mine.channel, p)]));
        mine.entering = call.entering(map, g, true, normalized);
        mine.product = mine.entering * normalized;
        mine.clamped_product = g * call.clamp(normalized);
      }
      __syncthreads();
      terms[threadIdx.x] = mine;
      __syncthreads();
      T gradient = 0, product = 0, post_scale = 0;
      for (int i = row; i < cuda::default_threads; i += rows) {
        if (terms[i].channel != c) continue;
        gradient += terms[i].entering;
        product += terms[i].product;
        post_scale += terms[i].clamped_product;
      }
      sums = sums + InstanceSums{static_cast<double>(gradient), static_cast<double>(product), static_cast<double>(post_scale)};
    }
    sums = sum_rows(sums, split.lanes, shared);
    if (row == 0 && c < planes.channels) partials[(n * split.chunks + chunk) * planes.channels + c] = sums;
    __syncthreads();
  }
}

/// A warp's sum over a channel of entering * (x - mean of x), for a scale of 0, where the sums over the winners do not tell it; else 0.
template <class Stored, class Winner>
__device__ double unscaled_product(const Call<Stored, Winner>& call, const InstanceMap<ComputeType<Stored>>& map, std::int64_t n,
                                   std::int64_t c, int lane) {
  using T = ComputeType<Stored>;
  if (convert<T>(call.scale[c]) != 0 || call.planes.pixels == 0) return 0;
  const Stored* const x = call.input + call.places(n, c, 0);
  const double first = static_cast<double>(convert<T>(x[0]));
  double difference_sum = 0, gradient_sum = 0, product = 0;
  for (std::int64_t p = lane; p < call.planes.pixels; p += cuda::warp_size) {
    const std::int64_t place = n * call.planes.pixels + p;
    const T element = convert<T>(x[p * call.places.pixel]);
    const bool wins = call.winners[place] == static_cast<Winner>(c);
    const double difference = static_cast<double>(element) - first;
    const double entering = static_cast<double>(call.entering(map, convert<T>(call.gradient[place]), wins, map.normalized(element)));
    difference_sum += difference;
    gradient_sum += entering;
    product += entering * difference;
  }
  const double mean = cuda::warp_reduce(difference_sum) / static_cast<double>(call.planes.pixels);
  return cuda::warp_reduce(product) - cuda::warp_reduce(gradient_sum) * mean;
}

/// The rule of the input's gradient, dx = (entering - mean(entering) - normalized * mean(entering * normalized)) * rstd * scale, given the
/// sums over the sample.
template <class Stored, class Winner>
__device__ InstanceGradient<ComputeType<Stored>> gradient_rule(const Call<Stored, Winner>& call,
                                                               const InstanceMap<ComputeType<Stored>>& map, const InstanceSums& total,
                                                               std::int64_t n, std::int64_t c) {
  using T = ComputeType<Stored>;
  const double slope = static_cast<double>(convert<T>(call.scale[c])) * call.rstds[n * call.planes.channels + c];
  const double pixels = static_cast<double>(call.planes.pixels);
  // Elsewhere than at the winners the gradient is 0, which matters where it meets an infinity or NaN.
  const double zero = 0 * static_cast<double>(map.post_scale);
  return {map, static_cast<T>(slope), static_cast<T>(-slope * ((total.product + zero) / pixels)),
          static_cast<T>(-slope * ((total.gradient + zero) / pixels))};
}

/// What a channel of a sample adds to the gradients of the scales. The norm undoes the scale but for eps: the sum of dz * x, where
/// z = x * scale, is eps rstd^3 times that of entering * (x - mean of x); `unscaled` is that one for a scale of 0.
template <class Stored, class Winner>
__device__ InstanceSums scale_sums(const Call<Stored, Winner>& call, const InstanceMap<ComputeType<Stored>>& map, InstanceSums total,
                                   double unscaled, std::int64_t n, std::int64_t c) {
  const double scale = static_cast<double>(convert<ComputeType<Stored>>(call.scale[c])), rstd = call.rstds[n * call.planes.channels + c];
  const double zero = 0 * static_cast<double>(map.post_scale);
  total.product = call.eps * rstd * rstd * (scale == 0 ? rstd * unscaled : (total.product + zero) / scale);
  total.post_scale += 0 * rstd;
  return total;
}

/// One warp a channel of a sample: adds the partial sums. Deterministic.
template <class Stored, class Winner>
__global__ void close_instances(InstanceSums* sums /* (N, C) */, InstanceGradient<ComputeType<Stored>>* rules /* (N, C) */,
                                const InstanceSums* partials /* (N, chunks, C) */, Call<Stored, Winner> call, std::int64_t chunks) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const std::int64_t channels = call.planes.channels;
  for (std::int64_t slice = cuda::first_item() / cuda::warp_size; slice < call.planes.samples * channels;
       slice += cuda::item_step() / cuda::warp_size) {
    const std::int64_t n = slice / channels, c = slice % channels;
    const auto map = call.map(n, c);
    InstanceSums total;
    for (std::int64_t chunk = lane; chunk < chunks; chunk += cuda::warp_size) total = total + partials[(n * chunks + chunk) * channels + c];
    total = cuda::warp_reduce(total);
    const double unscaled = unscaled_product(call, map, n, c, lane);
    if (lane != 0) continue;
    rules[slice] = gradient_rule(call, map, total, n, c);
    sums[slice] = scale_sums(call, map, total, unscaled, n, c);
  }
}

/// One element a thread, in the order of the input's memory. Reads and writes each element once. Deterministic.
template <class Stored, class Winner>
__global__ void write_input_gradient(Stored* input_gradient, const InstanceGradient<ComputeType<Stored>>* rules /* (N, C) */,
                                     Call<Stored, Winner> call) {
  using T = ComputeType<Stored>;
  const Planes planes = call.planes;
  const std::int64_t count = planes.samples * planes.channels * planes.pixels;
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const std::int64_t n = i / call.places.sample, rest = i - n * call.places.sample;
    const bool channels_last = call.places.pixel != 1;
    const std::int64_t inner = channels_last ? planes.channels : planes.pixels, outer_index = rest / inner,
                       inner_index = rest - outer_index * inner;
    const std::int64_t c = channels_last ? inner_index : outer_index, p = channels_last ? outer_index : inner_index;
    const InstanceGradient<T> rule = rules[n * planes.channels + c];
    const std::int64_t pixel = n * planes.pixels + p;
    const T normalized = rule.map.normalized(convert<T>(call.input[i]));
    const T entering = call.entering(rule.map, convert<T>(call.gradient[pixel]), call.winners[pixel] == static_cast<Winner>(c), normalized);
    input_gradient[call.gradient_places(n, c, p)] =
        convert<Stored>(entering * rule.by_entering + normalized * rule.by_normalized + rule.offset);
  }
}

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

/// Of a held sample: the sums over the winners among the block's pixels, those of each warp for itself.
template <class Stored, class Winner, bool channels_last>
__device__ void sum_over_held_winners(const HeldTotals<InstanceSums>& totals, const SampleHolder<Stored, channels_last>& holder,
                                      const HeldSamples& held, unsigned turn, std::int64_t n, const Call<Stored, Winner>& call,
                                      const InstanceGradient<ComputeType<Stored>>* rules) {
  using T = ComputeType<Stored>;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % cuda::warp_size, first = thread - lane;
  InstanceSums* const sums = totals.partials + first / cuda::warp_size * totals.channels();
  for (int c = lane; c < totals.channels(); c += cuda::warp_size) sums[c] = {};
  for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) holder.wait(turn, chunk);
  __syncwarp();
  for (int begin = first; begin < HeldSamples::chunks * held.chunk_pixels; begin += HeldSamples::threads) {
    const int chunk = (begin + lane) / held.chunk_pixels, p = begin + lane - chunk * held.chunk_pixels;
    PixelTerms<T> terms{0, 0, 0, -1};
    if (chunk < HeldSamples::chunks && p < holder.pixels_of(chunk)) {
      const std::int64_t pixel = n * held.planes.pixels + holder.begin_of(chunk) + p;
      terms.channel = static_cast<std::int32_t>(call.winners[pixel]);
      const InstanceMap<T> map = rules[terms.channel].map;
      const T g = convert<T>(call.gradient[pixel]);
      const T normalized = map.normalized(convert<T>(holder.one(holder.elements(turn, chunk), terms.channel, p)));
      terms.entering = call.entering(map, g, true, normalized);
      terms.product = terms.entering * normalized;
      terms.clamped_product = g * call.clamp(normalized);
    }
    add_by_channel(sums, totals.channels(), terms);
    __syncwarp();
  }
}

/// Of a held sample: the gradient at the block's pixels. While it goes on, the chunks of the turn after next are asked for.
template <class Stored, class Winner, bool channels_last, class Request>
__device__ void write_held_gradient(Stored* input_gradient, const SampleHolder<Stored, channels_last>& holder, const HeldSamples& held,
                                    unsigned turn, std::int64_t n, const Call<Stored, Winner>& call,
                                    const InstanceGradient<ComputeType<Stored>>* rules, const Request& request_again) {
  using T = ComputeType<Stored>;
  using Holder = SampleHolder<Stored, channels_last>;
  const int thread = static_cast<int>(threadIdx.x), channels = static_cast<int>(held.planes.channels);
  const auto gradient_of = [&](const InstanceGradient<T>& rule, Stored element, T g, bool wins) {
    const T normalized = rule.map.normalized(convert<T>(element));
    const T entering = call.clamp.gradient(g * rule.map.post_scale, normalized) * rule.by_entering;
    return convert<Stored>(normalized * rule.by_normalized + rule.offset + (wins ? entering : T(0)));
  };
  if constexpr (channels_last) {
    const int c = thread % held.lanes * Holder::width, row = thread / held.lanes, rows = HeldSamples::threads / held.lanes;
    InstanceGradient<T> own[Holder::width];
#pragma unroll
    for (int j = 0; j < Holder::width; ++j) own[j] = rules[min(c, channels - Holder::width) + j];
    for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) {
      const Stored* const elements = holder.elements(turn, chunk);
      const int pixels = c < channels ? holder.pixels_of(chunk) : 0;
      for (int p = row; p < pixels; p += rows) {
        const std::int64_t pixel = n * held.planes.pixels + holder.begin_of(chunk) + p;
        const int winner = static_cast<int>(call.winners[pixel]) - c;
        const T g = convert<T>(call.gradient[pixel]);
        const typename Holder::Elements x = holder.at(elements, c, p);
        typename Holder::Elements dx;
#pragma unroll
        for (int j = 0; j < Holder::width; ++j) dx[j] = gradient_of(own[j], x[j], g, winner == j);
        *reinterpret_cast<typename Holder::Elements*>(input_gradient + pixel * channels + c) = dx;
      }
      __syncthreads();
      request_again(chunk);
    }
  } else {
    for (int place = thread; place < HeldSamples::chunks * held.chunk_pixels; place += HeldSamples::threads) {
      const int chunk = place / held.chunk_pixels, p = place - chunk * held.chunk_pixels;
      if (p >= holder.pixels_of(chunk)) continue;
      const Stored* const elements = holder.elements(turn, chunk);
      const std::int64_t within = holder.begin_of(chunk) + p, pixel = n * held.planes.pixels + within;
      const int winner = static_cast<int>(call.winners[pixel]);
      const T g = convert<T>(call.gradient[pixel]);
      Stored* const dx = input_gradient + n * channels * held.planes.pixels + within;
#pragma unroll 4
      for (int c = 0; c < channels; ++c) dx[c * held.planes.pixels] = gradient_of(rules[c], holder.one(elements, c, p), g, winner == c);
    }
    __syncthreads();
    for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) request_again(chunk);
  }
}

/// A cluster a sample, as many clusters as run at a time, each going through every so manieth sample. Reads the input once, into shared
/// memory, and writes its gradient, which may lie over it. Deterministic.
template <class Stored, class Winner, bool channels_last>
__global__ void __launch_bounds__(HeldSamples::threads, 1)
    carry_back_held_samples(Stored* input_gradient, InstanceSums* sums /* (N, C) */, Call<Stored, Winner> call, HeldSamples held) {
  using T = ComputeType<Stored>;
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ cuda::ByteBarrier barriers[HeldSamples::most_buffers * HeldSamples::chunks];
  __shared__ cuda::ByteBarrier round_barriers[HeldTotals<InstanceSums>::rounds];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % cuda::warp_size;
  const int rank = static_cast<int>(blockIdx.x) % held.blocks, channels = static_cast<int>(held.planes.channels);
  const std::int64_t clusters = gridDim.x / static_cast<unsigned>(held.blocks), samples = held.planes.samples;
  HeldTotals<InstanceSums> totals(memory + held.rest_offset, round_barriers, channels, rank, held.blocks);
  auto* const unscaled = reinterpret_cast<double*>(totals.end());  // (C)
  auto* const rules = reinterpret_cast<InstanceGradient<T>*>(unscaled + channels);
  const SampleHolder<Stored, channels_last> holder(call.input, held, memory, barriers, rank);
  const auto request = [&](unsigned turn, int chunk, std::int64_t n) {
    if (n < samples && thread < cuda::warp_size) holder.request(turn, chunk, n);
  };

  const std::int64_t first = blockIdx.x / static_cast<unsigned>(held.blocks);
  for (int buffer = 0; buffer < held.buffers; ++buffer) {
    for (int chunk = 0; chunk < HeldSamples::chunks; ++chunk) request(static_cast<unsigned>(buffer), chunk, first + buffer * clusters);
  }
  unsigned turn = 0;
  for (std::int64_t n = first; n < samples; n += clusters, ++turn) {
    for (int c = thread; c < channels; c += HeldSamples::threads) rules[c].map = call.map(n, c);
    __syncthreads();
    for (int c = thread / cuda::warp_size; rank == 0 && c < channels; c += HeldSamples::threads / cuda::warp_size) {
      const double product = unscaled_product(call, rules[c].map, n, c, lane);
      if (lane == 0) unscaled[c] = product;
    }
    sum_over_held_winners(totals, holder, held, turn, n, call, rules);
    totals.exchange(HeldSamples::threads / cuda::warp_size);
    for (int c = thread; c < channels; c += HeldSamples::threads) {
      const InstanceMap<T> map = rules[c].map;
      const InstanceSums total = totals.total(c);
      rules[c] = gradient_rule(call, map, total, n, c);
      if (rank == 0) sums[n * channels + c] = scale_sums(call, map, total, unscaled[c], n, c);
    }
    __syncthreads();
    write_held_gradient(input_gradient, holder, held, turn, n, call, rules,
                        [&](int chunk) { request(turn + static_cast<unsigned>(held.buffers), chunk, n + held.buffers * clusters); });
  }
}

/// One warp a channel: its sums over the batch. Deterministic.
template <class Stored>
__global__ void sum_over_batch(Stored* scale_gradient, Stored* post_scale_gradient, const InstanceSums* sums /* (N, C) */, Planes planes) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  for (std::int64_t c = cuda::first_item() / cuda::warp_size; c < planes.channels; c += cuda::item_step() / cuda::warp_size) {
    InstanceSums total;
    for (std::int64_t n = lane; n < planes.samples; n += cuda::warp_size) total = total + sums[n * planes.channels + c];
    total = cuda::warp_reduce(total);
    if (lane != 0) continue;
    if (scale_gradient != nullptr) scale_gradient[c] = convert<Stored>(static_cast<ComputeType<Stored>>(total.product));
    if (post_scale_gradient != nullptr) post_scale_gradient[c] = convert<Stored>(static_cast<ComputeType<Stored>>(total.post_scale));
  }
}

/// The parts of the scratch memory.
struct Scratch {
  std::size_t sums, partials, rules;

  Scratch(const Planes& planes, std::size_t rule_bytes)
      : sums(aligned(planes.samples * planes.channels, sizeof(InstanceSums))),
        partials(aligned(planes.samples * planes.channels * WinnerSplit(planes).chunks, sizeof(InstanceSums))),
        rules(aligned(planes.samples * planes.channels, rule_bytes)) {}
  std::size_t total() const { return partials + sums + rules; }

 private:
  static std::size_t aligned(std::int64_t count, std::size_t size) { return (static_cast<std::size_t>(count) * size + 63) / 64 * 64; }
};

/// Two steps over each part of the batch, of which the second finds in the cache what the first looked at.
template <class Stored, class Winner>
void walk_twice(const KernelContext& context, Call<Stored, Winner> call, const Scratch& scratch) {
  using T = ComputeType<Stored>;
  const Tensor& input_gradient = context.outputs[0];
  const Planes planes = call.planes;
  std::byte* const memory = context.scratch.data();
  auto* const partials = reinterpret_cast<InstanceSums*>(memory + scratch.sums);
  auto* const rules = reinterpret_cast<InstanceGradient<T>*>(memory + scratch.sums + scratch.partials);
  auto* sums = reinterpret_cast<InstanceSums*>(memory);
  Stored* dx = data_or_null<Stored>(input_gradient);
  const WinnerSplit split(planes);
  const std::int64_t part = samples_in_cache(context.inputs[1]);
  for (std::int64_t n = 0; n < planes.samples; n += part) {
    call.planes.samples = std::min(part, planes.samples - n);
    const std::int64_t slices = call.planes.samples * planes.channels, items = call.planes.samples * split.chunks * split.tiles;
    if (items > 0) {
      cuda::launch(sum_over_winners<Stored, Winner>, cuda::loop_shape(items * cuda::default_threads), context.stream, partials, call, split,
                   items);
    }
    cuda::launch(close_instances<Stored, Winner>, cuda::loop_shape(slices * cuda::warp_size), context.stream, sums, rules, partials, call,
                 split.chunks);
    if (dx != nullptr && planes.pixels > 0) {
      cuda::launch(write_input_gradient<Stored, Winner>, cuda::loop_shape(slices * planes.pixels), context.stream, dx, rules, call);
      dx += part * call.places.sample;
    }
    sums += part * planes.channels;
    call.skip(part);
  }
}

/// One walk, where the device has clusters and the samples fit into them; false if not.
template <class Stored, class Winner, bool channels_last>
bool hold_samples(const KernelContext& context, const Call<Stored, Winner>& call) {
  constexpr std::size_t channel_bytes =
      HeldTotals<InstanceSums>::channel_bytes + sizeof(double) + sizeof(InstanceGradient<ComputeType<Stored>>);
  const auto held = HeldSamples::plan<Stored>(context.inputs[1], channel_bytes, 0);
  if (held.blocks == 0) return false;
  return held.launch(carry_back_held_samples<Stored, Winner, channels_last>, context.stream, context.outputs[0].data<Stored>(),
                     reinterpret_cast<InstanceSums*>(context.scratch.data()), call, held);
}

template <class Stored, class Winner>
bool hold_samples(const KernelContext& context, const Call<Stored, Winner>& call) {
  if constexpr (std::is_same_v<Stored, double> || !std::is_same_v<Winner, std::uint8_t>) {
    return false;
  } else {
    const Tensor& input_gradient = context.outputs[0];
    if (!input_gradient.defined() || call.gradient_places.pixel != call.places.pixel) return false;
    if (!cuda::aligned_for_vectors(input_gradient.raw())) return false;
    return call.places.channels_last() ? hold_samples<Stored, Winner, true>(context, call)
                                       : hold_samples<Stored, Winner, false>(context, call);
  }
}

template <class Stored, class Winner>
void run_typed(const KernelContext& context) {
  const auto& attributes = context.as<ChainAttributes>();
  const Tensor &input = context.inputs[1], &input_gradient = context.outputs[0];
  const Planes planes(input.shape());
  const Places places(input, planes);
  const Call<Stored, Winner> call{.planes = planes,
                                  .places = places,
                                  .gradient_places = input_gradient.defined() ? Places(input_gradient, planes) : places,
                                  .gradient = context.inputs[0].data<Stored>(),
                                  .input = input.data<Stored>(),
                                  .scale = context.inputs[2].data<Stored>(),
                                  .post_scale = context.inputs[3].data<Stored>(),
                                  .clamp = Clamp<ComputeType<Stored>>(attributes.clamp()),
                                  .eps = attributes.eps,
                                  .winners = context.inputs[4].data<Winner>(),
                                  .means = context.inputs[5].data<double>(),
                                  .rstds = context.inputs[6].data<double>()};
  if (!hold_samples(context, call)) walk_twice(context, call, Scratch(planes, sizeof(InstanceGradient<ComputeType<Stored>>)));
  const auto* const sums = reinterpret_cast<const InstanceSums*>(context.scratch.data());
  cuda::launch(sum_over_batch<Stored>, cuda::loop_shape(planes.channels * cuda::warp_size), context.stream,
               data_or_null<Stored>(context.outputs[1]), data_or_null<Stored>(context.outputs[2]), sums, planes);
}

/// inputs (gradient, input, scale, post_scale, winner, mean, rstd), outputs (input_gradient, scale_gradient, post_scale_gradient)
void run(const KernelContext& call) {
  dispatch_stored(call.inputs[1].dtype(), [&]<class Stored>() {
    dispatch_winner(call.inputs[4].dtype(), [&]<class Winner>() { run_typed<Stored, Winner>(call); });
  });
}

std::size_t scratch_bytes(const InferContext& call) {
  const bool wide = call.inputs[1].dtype == DType::f64;
  return Scratch(Planes(call.shape(1)), wide ? sizeof(InstanceGradient<double>) : sizeof(InstanceGradient<float>)).total();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(scale_instance_norm_clamp_scale_max_backward) {
  using namespace frit::ops;
  registry.add_cuda("scale_instance_norm_clamp_scale_max_backward",
                    {.run = run, .halves = true, .scratch = scratch_bytes, .any_layout_inputs = {1}, .any_layout_outputs = {0}});
}
