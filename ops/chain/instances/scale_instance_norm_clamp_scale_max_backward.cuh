#pragma once

#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max.cuh"
#include "frit/ops/chain/schedules/streamed_gradient.cuh"
#include "frit/ops/cuda/async_copy.cuh"
#include "frit/ops/cuda/parameter.cuh"

namespace frit::ops {

/// What the kernels read.
template <class Stored, class Index>
struct InstanceGradientCall {
  using T = Computed<Stored>;

  Planes planes;
  const Stored *gradient, *elements;  // elements: the chain's input
  Places places;
  Parameter<Stored> scale, post_scale;
  Clamp<T> clamp;
  double eps;
  const Index* argmax;
  const double *means, *rstds;
  const Stored* argmax_input;

  /// Of a backward operator of the chain: input 0 is the gradient, and from `first` on come the chain's input, the two scales, argmax,
  /// mean, rstd and argmax_input.
  InstanceGradientCall(const KernelContext& call, const ScaleInstanceNormClampScaleMaxAttributes& chain, std::size_t first)
      : planes(call.inputs[first].shape()),
        gradient(call.inputs[0].data<Stored>()),
        elements(call.inputs[first].data<Stored>()),
        places(call.inputs[first], planes),
        scale(call.inputs[first + 1]),
        post_scale(call.inputs[first + 2]),
        clamp(chain.clamp()),
        eps(chain.eps),
        argmax(call.inputs[first + 3].data<Index>()),
        means(call.inputs[first + 4].data<double>()),
        rstds(call.inputs[first + 5].data<double>()),
        argmax_input(call.inputs[first + 6].data<Stored>()) {}

  /// An element of the chain's input; few are asked for.
  __device__ T input(std::int64_t n, std::int64_t c, std::int64_t p) const { return convert<T>(elements[places(n, c, p)]); }
  /// For a scale of 0, when the statistics do not tell the input's mean, its first element is the reference.
  __device__ InstanceMap<T> map(std::int64_t n, std::int64_t c) const {
    const std::int64_t slice = n * planes.channels + c;
    const T s = scale[c];
    const double mean = means[slice];
    const double near = s != 0 ? mean / static_cast<double>(s) : static_cast<double>(input(n, c, 0));
    return {near, mean, rstds[slice], s, post_scale[c]};
  }
};

/// How a sample's pixels are dealt out for the sums: a block has a chunk of them, or with many samples all, and looks for so many channels'
/// maxima.
template <class T>
struct ArgmaxSplit {
  static constexpr int channels = 64 / static_cast<int>(sizeof(T)), most_pixels = 2048, few_threads = 128, most_threads = 512;

  int threads = few_threads;
  std::int64_t chunks, chunk_pixels, tiles;

  ArgmaxSplit(const Planes& planes, const cuda::DeviceProperties& device)
      : chunks(most_chunks(planes)), tiles((planes.channels + channels - 1) / channels) {
    const bool many = planes.samples * tiles >= device.multiprocessors * 3 / 4;
    if (chunks > 1 && many && shared_bytes(most_threads) <= device.shared_per_block) {
      threads = most_threads;
      chunks = 1;
    }
    chunk_pixels = chunks == 0 ? 0 : (planes.pixels + chunks - 1) / chunks;
  }

  static std::int64_t most_chunks(const Planes& planes) { return (planes.pixels + most_pixels - 1) / most_pixels; }
  /// For each channel its map, and three sums of each thread.
  static std::size_t shared_bytes(int threads) {
    return channels * (sizeof(InstanceMap<T>) + 3 * static_cast<std::size_t>(threads) * sizeof(T));
  }
};

/// A warp's mean of x less its map's reference in one channel of one sample.
template <class Call>
__device__ double mean_difference(const Call& call, const InstanceMap<typename Call::T>& map, std::int64_t n, std::int64_t c, int lane) {
  const typename Call::T scale = call.scale[c];
  if (scale != 0) return call.means[n * call.planes.channels + c] / static_cast<double>(scale) - static_cast<double>(map.reference);
  double sum = 0;
  for (std::int64_t p = lane; p < call.planes.pixels; p += cuda::warp_size) {
    sum += static_cast<double>(call.input(n, c, p)) - static_cast<double>(map.reference);
  }
  return cuda::warp_reduce(sum) / static_cast<double>(call.planes.pixels);
}

/// Makes the rule of the input's gradient in one channel of one sample,
///   dx = (entering - mean(entering) - normalized * mean(entering * normalized)) * rstd * scale
/// and the channel's parts of the gradients of scale and post_scale and of the sum of dx.
template <class T>
struct FinalizeGradients {
  ChannelParts<3>* parts;  // (N, C)
  GradientRules<T> rules;

  /// By a warp, with the sums over all pixels.
  template <class Call>
  __device__ void operator()(const Call& call, const InstanceMap<T>& map, std::int64_t n, std::int64_t c, const ChannelSums<double>& total,
                             int lane) const {
    const std::int64_t slice = n * call.planes.channels + c;
    const double center = mean_difference(call, map, n, c, lane);
    if (lane != 0) return;
    // Elsewhere than at the maxima the gradient is 0 times the factors, which matters where one is not finite.
    const double pixels = static_cast<double>(call.planes.pixels);
    const double zero = 0 * static_cast<double>(map.post_scale), rstd = call.rstds[slice];
    const double gradient = total.gradient + zero, product = total.product + zero;
    const double slope = static_cast<double>(call.scale[c]) * rstd, shift = static_cast<double>(map.shift);
    const double by_normalized = -slope * ((slope * product + shift * gradient) / pixels);
    const double by_difference = slope * by_normalized, offset = shift * by_normalized - slope * (gradient / pixels);
    rules.set(slice, map.reference, by_difference, offset);
    // The norm undoes the scale but for eps. The sum of dx is 0 where all is finite.
    parts[slice] = {{call.eps * rstd * rstd * rstd * (product - center * gradient), total.factor + 0 * rstd,
                     0 * (static_cast<double>(map.reference) + slope + by_difference + offset)}};
  }
};

/// One block a chunk of a sample's pixels, one thread some pixels. Each thread adds up for itself what the channels get, in shared memory,
/// where it has a bank. Reads the small tensors and writes what each pixel's maximum gets in addition; finalizes the gradients where the
/// chunk is the sample. Deterministic.
template <class Stored, class Index, int threads>
__global__ void __launch_bounds__(threads)
    sum_over_argmax(ChannelSums<double>* partials /* (N, chunks, C) */, Computed<Stored>* more /* (N, pixels) */,
                    FinalizeGradients<Computed<Stored>> finalize, InstanceGradientCall<Stored, Index> call,
                    ArgmaxSplit<Computed<Stored>> split) {
  using T = Computed<Stored>;
  using Split = ArgmaxSplit<T>;
  constexpr int at_once = 13;  // two rounds for a sample's 13,000 pixels
  extern __shared__ __align__(16) std::byte memory[];
  auto* const maps = reinterpret_cast<InstanceMap<T>*>(memory);
  const int t = static_cast<int>(threadIdx.x), warp = t / cuda::warp_size, lane = t % cuda::warp_size;
  T* const gradients = reinterpret_cast<T*>(maps + Split::channels);  // (channels, threads), as the others
  T *const products = gradients + Split::channels * threads, *const post_scales = products + Split::channels * threads;
  const Planes planes = call.planes;
  const int first_channel = static_cast<int>(blockIdx.y) * Split::channels;
  const int channels = static_cast<int>(min(static_cast<std::int64_t>(Split::channels), planes.channels - first_channel));
  const std::int64_t begin = blockIdx.x * split.chunk_pixels, end = min(planes.pixels, begin + split.chunk_pixels);
  for (std::int64_t n = blockIdx.z; n < planes.samples; n += gridDim.z) {
    const auto prefetch = [&](const auto* from) {
      constexpr int line = 128 / static_cast<int>(sizeof(*from));
      for (std::int64_t p = begin + t * line; p < end; p += threads * line) cuda::prefetch_to_l2(from + n * planes.pixels + p);
    };
    // They come while the maps are made.
    prefetch(call.gradient);
    prefetch(call.argmax_input);
    prefetch(call.argmax);
    if (t < channels) maps[t] = call.map(n, first_channel + t);
    for (int c = 0; c < channels; ++c) gradients[c * threads + t] = products[c * threads + t] = post_scales[c * threads + t] = 0;
    __syncthreads();
    for (std::int64_t first = begin + t; first < end; first += at_once * threads) {
      const std::int64_t place = n * planes.pixels + first;
      const int count = static_cast<int>(min((end - first + threads - 1) / threads, static_cast<std::int64_t>(at_once)));
      const Stored *const own_gradient = call.gradient + place, *const own_argmax_input = call.argmax_input + place;
      const Index* const own_argmax = call.argmax + place;
      T* const own_more = more + place;
      T g[at_once], x[at_once];
      int channel[at_once];
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        g[u] = u < count ? convert<T>(own_gradient[u * threads]) : T(0);
        x[u] = u < count ? convert<T>(own_argmax_input[u * threads]) : T(0);
        channel[u] = u < count ? static_cast<int>(own_argmax[u * threads]) - first_channel : -1;
      }
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const int c = channel[u];
        if (c < 0 || c >= channels) continue;
        const InstanceMap<T> map = maps[c];
        const T normalized = map.normalized(x[u]), entering = call.clamp.gradient(g[u] * map.post_scale, normalized);
        T &gradient = gradients[c * threads + t], &product = products[c * threads + t], &post_scale = post_scales[c * threads + t];
        const T others[] = {gradient, product, post_scale};  // all on their way before the first is written
        gradient = others[0] + entering;
        product = others[1] + entering * (x[u] - map.reference);
        post_scale = others[2] + g[u] * call.clamp(normalized);
        own_more[u * threads] = entering * map.slope;
      }
    }
    __syncthreads();
    for (int c = warp; c < channels; c += threads / cuda::warp_size) {
      ChannelSums<double> total;
      for (int i = lane; i < threads; i += cuda::warp_size) {
        total = total + ChannelSums<double>{static_cast<double>(gradients[c * threads + i]), static_cast<double>(products[c * threads + i]),
                                            static_cast<double>(post_scales[c * threads + i])};
      }
      total = cuda::warp_reduce(total);
      if (split.chunks == 1) {
        finalize(call, maps[c], n, first_channel + c, total, lane);
      } else if (lane == 0) {
        partials[(n * split.chunks + blockIdx.x) * planes.channels + first_channel + c] = total;
      }
    }
    __syncthreads();
  }
}

/// One warp a channel of a sample: adds the partial sums and finalizes the gradients. Deterministic.
template <class Stored, class Index>
__global__ void finalize_instances(FinalizeGradients<Computed<Stored>> finalize, const ChannelSums<double>* partials /* (N, chunks, C) */,
                                   InstanceGradientCall<Stored, Index> call, std::int64_t chunks) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const std::int64_t channels = call.planes.channels;
  for (std::int64_t slice = cuda::first_item() / cuda::warp_size; slice < call.planes.samples * channels;
       slice += cuda::item_step() / cuda::warp_size) {
    const std::int64_t n = slice / channels, c = slice % channels;
    ChannelSums<double> total;
    for (std::int64_t chunk = lane; chunk < chunks; chunk += cuda::warp_size) total = total + partials[(n * chunks + chunk) * channels + c];
    finalize(call, call.map(n, c), n, c, cuda::warp_reduce(total), lane);
  }
}

/// The parts of the scratch memory, in bytes.
struct InstanceGradientScratch {
  ScratchParts all;
  std::size_t partials, parts, rules, more;

  template <class T>
  InstanceGradientScratch(const Planes& planes, T /* what is computed in */)
      : partials(all.add(planes.samples * planes.channels * ArgmaxSplit<T>::most_chunks(planes), sizeof(ChannelSums<double>))),
        parts(all.add(planes.samples * planes.channels, sizeof(ChannelParts<3>))),
        rules(all.add(1, GradientRules<T>::bytes(planes.samples * planes.channels))),
        more(all.add(planes.samples * planes.pixels, sizeof(T))) {}
};

/// What the kernels make of a call, in its scratch memory.
template <class T>
struct InstanceGradients {
  FinalizeGradients<T> finalize;
  T* more;

  InstanceGradients(const KernelContext& context, const InstanceGradientScratch& scratch, const Planes& planes)
      : finalize{scratch_part<ChannelParts<3>>(context, scratch.parts),
                 GradientRules<T>(scratch_part<std::byte>(context, scratch.rules), planes.samples * planes.channels)},
        more(scratch_part<T>(context, scratch.more)) {}
};

/// Makes the rules of the call's gradients and what each pixel's maximum gets in addition.
template <class Stored, class Index>
void launch_argmax_sums(const InstanceGradients<Computed<Stored>>& results, const InstanceGradientCall<Stored, Index>& call,
                        const KernelContext& context, const InstanceGradientScratch& scratch) {
  using Split = ArgmaxSplit<Computed<Stored>>;
  const Split split(call.planes, cuda::properties(context.inputs[0].device().index));
  auto* const partials = scratch_part<ChannelSums<double>>(context, scratch.partials);
  const dim3 grid(static_cast<unsigned>(split.chunks), static_cast<unsigned>(split.tiles), sample_blocks(call.planes));
  auto* const kernel = split.threads == Split::most_threads ? &sum_over_argmax<Stored, Index, Split::most_threads>
                                                            : &sum_over_argmax<Stored, Index, Split::few_threads>;
  cuda::launch(kernel, {grid, dim3(static_cast<unsigned>(split.threads)), Split::shared_bytes(split.threads)}, context.stream, partials,
               results.more, results.finalize, call, split);
  if (split.chunks > 1) {
    cuda::launch(finalize_instances<Stored, Index>, cuda::loop_shape(call.planes.samples * call.planes.channels * cuda::warp_size),
                 context.stream, results.finalize, partials, call, split.chunks);
  }
}

}  // namespace frit::ops
