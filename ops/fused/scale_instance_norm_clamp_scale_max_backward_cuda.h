#pragma once

#include "frit/ops/fused/scale_instance_norm_clamp_scale_max_cuda.h"
#include "frit/ops/fused/streamed_gradient_cuda.h"

namespace frit::ops {

/// What one channel of one sample, or a part of it, adds to the gradients.
struct InstanceSums {
  double gradient = 0, product = 0;  ///< of the gradient that enters the norm; of it times (x - reference)
  double post_scale = 0;

  __device__ friend InstanceSums operator+(const InstanceSums& a, const InstanceSums& b) {
    return {a.gradient + b.gradient, a.product + b.product, a.post_scale + b.post_scale};
  }
};

/// What the kernels read.
template <class Stored, class Winner>
struct InstanceGradientCall {
  using T = ComputeType<Stored>;

  Planes planes;
  Places places;  // of the input
  const Stored *gradient, *input;
  Parameter<Stored> scale, post_scale;
  Clamp<T> clamp;
  double eps;
  const Winner* winners;
  const double *means, *rstds;
  const Stored* selected;

  /// For a scale of 0, when the statistics do not tell the input's mean, its first element is the reference.
  __device__ InstanceMap<T> map(std::int64_t n, std::int64_t c) const {
    const std::int64_t slice = n * planes.channels + c;
    const T s = scale[c];
    const double mean = means[slice];
    const double near = s != 0 ? mean / static_cast<double>(s) : static_cast<double>(convert<T>(input[places(n, c, 0)]));
    return {near, mean, rstds[slice], s, post_scale[c]};
  }
};

/// How a sample's pixels are dealt out for the sums: a block has a chunk of them, and looks for so many channels' winners.
template <class T>
struct WinnerSplit {
  static constexpr int threads = 128, channels = 64 / static_cast<int>(sizeof(T)), most_pixels = 2048;
  std::int64_t chunks, chunk_pixels, tiles;

  explicit WinnerSplit(const Planes& planes)
      : chunks((planes.pixels + most_pixels - 1) / most_pixels),
        chunk_pixels(chunks == 0 ? 0 : (planes.pixels + chunks - 1) / chunks),
        tiles((planes.channels + channels - 1) / channels) {}
};

/// One block a chunk of a sample's pixels, one thread some pixels. Each thread adds up for itself what the channels get, in shared memory,
/// where it has a bank. Reads the small tensors and writes what each pixel's winner gets besides. Deterministic.
template <class Stored, class Winner>
__global__ void __launch_bounds__(WinnerSplit<ComputeType<Stored>>::threads)
    sum_over_winners(InstanceSums* partials /* (N, chunks, C) */, ComputeType<Stored>* more /* (N, pixels) */,
                     InstanceGradientCall<Stored, Winner> call, WinnerSplit<ComputeType<Stored>> split) {
  using T = ComputeType<Stored>;
  using Split = WinnerSplit<T>;
  constexpr int at_once = 8, warps = Split::threads / cuda::warp_size;
  __shared__ InstanceMap<T> maps[Split::channels];
  __shared__ T gradients[Split::channels][Split::threads], products[Split::channels][Split::threads],
      post_scales[Split::channels][Split::threads];
  const Planes planes = call.planes;
  const int t = static_cast<int>(threadIdx.x), warp = t / cuda::warp_size, lane = t % cuda::warp_size;
  const int first_channel = static_cast<int>(blockIdx.y) * Split::channels;
  const int channels = static_cast<int>(min(static_cast<std::int64_t>(Split::channels), planes.channels - first_channel));
  const std::int64_t begin = blockIdx.x * split.chunk_pixels, end = min(planes.pixels, begin + split.chunk_pixels);
  for (std::int64_t n = blockIdx.z; n < planes.samples; n += gridDim.z) {
    if (t < channels) maps[t] = call.map(n, first_channel + t);
    for (int c = 0; c < channels; ++c) gradients[c][t] = products[c][t] = post_scales[c][t] = 0;
    __syncthreads();
    for (std::int64_t first = begin + t; first < end; first += at_once * Split::threads) {
      const std::int64_t place = n * planes.pixels + first;
      const int count = static_cast<int>((end - first + Split::threads - 1) / Split::threads);
      T g[at_once], x[at_once];
      int channel[at_once];
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        g[u] = u < count ? convert<T>(call.gradient[place + u * Split::threads]) : T(0);
        x[u] = u < count ? convert<T>(call.selected[place + u * Split::threads]) : T(0);
        channel[u] = u < count ? static_cast<int>(call.winners[place + u * Split::threads]) - first_channel : -1;
      }
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const int c = channel[u];
        if (c < 0 || c >= channels) continue;
        const InstanceMap<T> map = maps[c];
        const T normalized = map.normalized(x[u]), entering = call.clamp.gradient(g[u] * map.post_scale, normalized);
        gradients[c][t] += entering;
        products[c][t] += entering * (x[u] - map.reference);
        post_scales[c][t] += g[u] * call.clamp(normalized);
        more[place + u * Split::threads] = entering * map.slope;
      }
    }
    __syncthreads();
    for (int c = warp; c < channels; c += warps) {
      InstanceSums total;
      for (int i = lane; i < Split::threads; i += cuda::warp_size) {
        total = total + InstanceSums{static_cast<double>(gradients[c][i]), static_cast<double>(products[c][i]),
                                     static_cast<double>(post_scales[c][i])};
      }
      total = cuda::warp_reduce(total);
      if (lane == 0) partials[(n * split.chunks + blockIdx.x) * planes.channels + first_channel + c] = total;
    }
    __syncthreads();
  }
}

/// A warp's mean of x less its map's reference in one channel of one sample.
template <class Stored, class Winner>
__device__ double mean_difference(const InstanceGradientCall<Stored, Winner>& call, const InstanceMap<ComputeType<Stored>>& map,
                                  std::int64_t n, std::int64_t c, int lane) {
  using T = ComputeType<Stored>;
  const T scale = call.scale[c];
  if (scale != 0) return call.means[n * call.planes.channels + c] / static_cast<double>(scale) - static_cast<double>(map.reference);
  double sum = 0;
  for (std::int64_t p = lane; p < call.planes.pixels; p += cuda::warp_size) {
    sum += static_cast<double>(convert<T>(call.input[call.places(n, c, p)])) - static_cast<double>(map.reference);
  }
  return cuda::warp_reduce(sum) / static_cast<double>(call.planes.pixels);
}

/// One warp a channel of a sample: adds the partial sums and makes the rule of the input's gradient,
///   dx = (entering - mean(entering) - normalized * mean(entering * normalized)) * rstd * scale
/// and the channel's parts of the gradients of scale and post_scale and of the sum of dx. Deterministic.
template <class Stored, class Winner>
__global__ void close_instances(ChannelParts<3>* parts /* (N, C) */, GradientRules<ComputeType<Stored>> rules,
                                const InstanceSums* partials /* (N, chunks, C) */, InstanceGradientCall<Stored, Winner> call,
                                std::int64_t chunks) {
  using T = ComputeType<Stored>;
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const std::int64_t channels = call.planes.channels;
  const double pixels = static_cast<double>(call.planes.pixels);
  for (std::int64_t slice = cuda::first_item() / cuda::warp_size; slice < call.planes.samples * channels;
       slice += cuda::item_step() / cuda::warp_size) {
    const std::int64_t n = slice / channels, c = slice % channels;
    const InstanceMap<T> map = call.map(n, c);
    const double center = mean_difference(call, map, n, c, lane);
    InstanceSums total;
    for (std::int64_t chunk = lane; chunk < chunks; chunk += cuda::warp_size) total = total + partials[(n * chunks + chunk) * channels + c];
    total = cuda::warp_reduce(total);
    if (lane != 0) continue;
    // Elsewhere than at the winners the gradient is 0 times the factors, which matters where one is not finite.
    const double zero = 0 * static_cast<double>(map.post_scale), rstd = call.rstds[slice];
    const double gradient = total.gradient + zero, product = total.product + zero;
    const double scale = static_cast<double>(call.scale[c]), slope = scale * rstd, shift = static_cast<double>(map.shift);
    const double by_normalized = -slope * ((slope * product + shift * gradient) / pixels);
    const double by_difference = slope * by_normalized, offset = shift * by_normalized - slope * (gradient / pixels);
    rules.set(slice, map.reference, by_difference, offset);
    // The norm undoes the scale but for eps. The sum of dx is 0 where all is finite.
    parts[slice] = {{call.eps * rstd * rstd * rstd * (product - center * gradient), total.post_scale + 0 * rstd,
                     0 * (static_cast<double>(map.reference) + slope + by_difference + offset)}};
  }
}

}  // namespace frit::ops
