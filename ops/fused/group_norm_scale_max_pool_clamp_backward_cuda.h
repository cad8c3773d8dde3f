#pragma once

#include "frit/ops/fused/group_norm_scale_max_pool_clamp_cuda.h"
#include "frit/ops/fused/streamed_gradient_cuda.h"

namespace frit::ops {

/// What one channel of one sample, or a part of it, adds to the gradients.
template <class T>
struct ChannelSums {
  T gradient = 0, product = 0;  ///< of the gradient of the norm's result; of it times (x - mean)
  T scale = 0;

  template <class To>
  __device__ ChannelSums<To> to() const {
    return {static_cast<To>(gradient), static_cast<To>(product), static_cast<To>(scale)};
  }
  __device__ friend ChannelSums operator+(const ChannelSums& a, const ChannelSums& b) {
    return {a.gradient + b.gradient, a.product + b.product, a.scale + b.scale};
  }
};

/// What the kernels read.
template <class Stored, class Winner>
struct PoolGradientCall {
  using T = ComputeType<Stored>;

  Planes planes;
  std::int64_t windows, groups, group_channels;
  const Stored* gradient;
  GroupParameters<Stored> parameters;
  Clamp<T> clamp;
  const Winner* winners;
  const double *means, *rstds;
  const Stored* selected;

  __device__ GroupMap<T> map(std::int64_t plane) const {
    const std::int64_t slice = plane / group_channels;
    return parameters.map(plane % planes.channels, means[slice], rstds[slice]);
  }
  /// What a window whose maximum is x adds to its channel's sums, and the gradient that x gets.
  __device__ ChannelSums<T> at_winner(const GroupMap<T>& map, T x, T window_gradient, T& x_gradient) const {
    const T normalized = map.normalized(x), passed = clamp.gradient(window_gradient, normalized * map.scale);
    const T entering = passed * map.scale;
    x_gradient = entering * map.slope;
    return {entering, entering * map.centered(x), passed * normalized};
  }
  /// The sums of a whole channel of a sample, given those over its winners: 0 elsewhere matters where it meets an infinity or NaN.
  __device__ static ChannelSums<double> whole(const GroupMap<T>& map, const ChannelSums<double>& winners_sums) {
    const double zero = 0 * static_cast<double>(map.scale);
    return winners_sums + ChannelSums<double>{zero, zero, 0 * static_cast<double>(map.slope + map.shift)};
  }
};

/// How the windows are dealt out for the sums: a block has a chunk of them in so many channels, and looks at a tile of them at a time.
struct WindowSplit {
  static constexpr int channels = 32, tile = 64, chunk = 4 * tile;
  std::int64_t chunks, tiles;

  explicit WindowSplit(const Planes& planes, std::int64_t windows)
      : chunks((windows + chunk - 1) / chunk), tiles((planes.channels + channels - 1) / channels) {}
};

/// What the winners get besides, a value a window.
template <class T, class Winner>
struct WinnerGradients {
  T* more;          // (N, C, windows); channels-last: (N, windows, C)
  Winner* winners;  // channels-last: likewise, a copy; else null
};

/// One block a chunk of windows of some channels; a warp has every eighth channel, a lane every 32nd window. Reads the small tensors and
/// writes what the winners get besides, turned to channels-last by way of shared memory. Deterministic.
template <class Stored, class Winner>
__global__ void __launch_bounds__(cuda::default_threads)
    sum_over_winners(ChannelSums<double>* partials /* (N, chunks, C) */, WinnerGradients<ComputeType<Stored>, Winner> results,
                     PoolGradientCall<Stored, Winner> call, std::int64_t chunks) {
  using T = ComputeType<Stored>;
  constexpr int warps = cuda::default_threads / cuda::warp_size, own = WindowSplit::channels / warps;
  constexpr int at_once = WindowSplit::tile / cuda::warp_size;
  __shared__ GroupMap<T> maps[WindowSplit::channels];
  __shared__ T more[WindowSplit::channels][WindowSplit::tile + 1];  // padded, so that columns have banks of their own
  __shared__ Winner numbers[WindowSplit::channels][WindowSplit::tile + 4];
  const int t = static_cast<int>(threadIdx.x), warp = t / cuda::warp_size, lane = t % cuda::warp_size;
  const std::int64_t first_channel = static_cast<std::int64_t>(blockIdx.y) * WindowSplit::channels, channels = call.planes.channels;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * WindowSplit::chunk;
  const std::int64_t end = min(call.windows, begin + WindowSplit::chunk);
  for (std::int64_t n = blockIdx.z; n < call.planes.samples; n += gridDim.z) {
    const std::int64_t first_plane = n * channels + first_channel;
    __syncthreads();
    if (t < WindowSplit::channels && first_channel + t < channels) maps[t] = call.map(first_plane + t);
    __syncthreads();
    ChannelSums<T> sums[own];
    for (std::int64_t first = begin; first < end; first += WindowSplit::tile) {
      T gradient[own][at_once], x[own][at_once];
      Winner winner[own][at_once];
      const auto in_range = [&](int k, int u) {
        return first_channel + warp + k * warps < channels && first + lane + u * cuda::warp_size < end;
      };
      const auto place = [&](int k, int u) { return (first_plane + warp + k * warps) * call.windows + first + lane + u * cuda::warp_size; };
#pragma unroll
      for (int k = 0; k < own; ++k) {
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          const bool there = in_range(k, u);
          gradient[k][u] = there ? convert<T>(call.gradient[place(k, u)]) : T(0);
          x[k][u] = there ? convert<T>(call.selected[place(k, u)]) : T(0);
          winner[k][u] = there && results.winners != nullptr ? call.winners[place(k, u)] : Winner(0);
        }
      }
#pragma unroll
      for (int k = 0; k < own; ++k) {
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          if (!in_range(k, u)) continue;
          T x_gradient;
          sums[k] = sums[k] + call.at_winner(maps[warp + k * warps], x[k][u], gradient[k][u], x_gradient);
          if (results.winners != nullptr) {
            more[warp + k * warps][lane + u * cuda::warp_size] = x_gradient;
            numbers[warp + k * warps][lane + u * cuda::warp_size] = winner[k][u];
          } else {
            results.more[place(k, u)] = x_gradient;
          }
        }
      }
      if (results.winners == nullptr) continue;
      __syncthreads();
      for (int i = warp; i < WindowSplit::tile && first + i < end; i += warps) {
        if (first_channel + lane >= channels) continue;
        const std::int64_t to = (n * call.windows + first + i) * channels + first_channel + lane;
        results.more[to] = more[lane][i];
        results.winners[to] = numbers[lane][i];
      }
      __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < own; ++k) {
      const ChannelSums<double> total = cuda::warp_reduce(sums[k].template to<double>());
      const std::int64_t c = first_channel + warp + k * warps;
      if (lane == 0 && c < channels) partials[(n * chunks + blockIdx.x) * channels + c] = total;
    }
  }
}

/// One warp a group of a sample: makes the channels' rules of the input's gradient,
///   dx = (g - mean(g) - xhat * mean(g * xhat)) * rstd, xhat = (x - mean) * rstd, g = weight * the gradient of the norm's result
/// and the channels' parts of the gradients of weight, bias and scale, and of the sum of dx, which lacks its sum of x - reference.
/// Deterministic.
template <class Stored, class Winner>
__global__ void close_groups(ChannelParts<4>* parts /* (N, C) */, GradientRules<ComputeType<Stored>> rules,
                             const ChannelSums<double>* partials /* (N, chunks, C) */, PoolGradientCall<Stored, Winner> call,
                             std::int64_t chunks) {
  using T = ComputeType<Stored>;
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const std::int64_t channels = call.planes.channels;
  const double pixels = static_cast<double>(call.planes.pixels), count = static_cast<double>(call.group_channels) * pixels;
  for (std::int64_t slice = cuda::first_item() / cuda::warp_size; slice < call.planes.samples * call.groups;
       slice += cuda::item_step() / cuda::warp_size) {
    const std::int64_t first = slice * call.group_channels, end = first + call.group_channels, n = slice / call.groups;
    const double rstd = call.rstds[slice];
    ChannelSums<double> total;
    for (std::int64_t plane = first + lane; plane < end; plane += cuda::warp_size) {
      const std::int64_t c = plane % channels;
      ChannelSums<double> sums;
#pragma unroll 4
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sums = sums + partials[(n * chunks + chunk) * channels + c];
      sums = call.whole(call.map(plane), sums);
      parts[plane] = {{sums.product * rstd, sums.gradient, sums.scale, 0}};
      const auto weight = static_cast<double>(call.parameters.weight[c]);
      total = total + ChannelSums<double>{weight * sums.gradient, weight * sums.product, 0};
    }
    total = cuda::warp_reduce(total);
    for (std::int64_t plane = first + lane; plane < end; plane += cuda::warp_size) {
      // Elsewhere than at the winners the gradient is 0 times the factors, which matters where one is not finite.
      const GroupMap<T> map = call.map(plane);
      const double slope = static_cast<double>(map.slope), elsewhere = 0 * slope * static_cast<double>(map.scale);
      const double by_difference = -rstd * rstd * rstd * (total.product / count);
      const double offset = elsewhere * rstd - rstd * (total.gradient / count) - static_cast<double>(map.rest) * by_difference;
      rules.set(plane, map.reference, by_difference, offset);
      parts[plane].values[3] = pixels * offset + slope * parts[plane].values[1];
    }
  }
}

/// What a backward operator of the chain was given; the inputs from `first` on are weight, bias, scale, winner, mean, rstd and selected.
template <class Stored, class Winner>
PoolGradientCall<Stored, Winner> pool_gradient_call(const KernelContext& call, const Planes& planes, const GroupNormPoolGeometry& geometry,
                                                    const ClampAttributes& clamp, std::size_t first) {
  const auto input = [&](std::size_t i) -> const Tensor& { return call.inputs[first + i]; };
  return {.planes = planes,
          .windows = geometry.windows(),
          .groups = geometry.groups,
          .group_channels = geometry.group_channels(),
          .gradient = call.inputs[0].data<Stored>(),
          .parameters = {Parameter<Stored>(input(0)), Parameter<Stored>(input(1)), Parameter<Stored>(input(2))},
          .clamp = Clamp<ComputeType<Stored>>(clamp),
          .winners = input(3).template data<Winner>(),
          .means = input(4).template data<double>(),
          .rstds = input(5).template data<double>(),
          .selected = input(6).template data<Stored>()};
}

/// The rules and the channels' parts, from the small tensors alone.
template <class Stored, class Winner>
void launch_window_sums(ChannelParts<4>* parts, const GradientRules<ComputeType<Stored>>& rules,
                        const WinnerGradients<ComputeType<Stored>, Winner>& at_winner, ChannelSums<double>* partials,
                        const PoolGradientCall<Stored, Winner>& call, cudaStream_t stream) {
  const WindowSplit split(call.planes, call.windows);
  const dim3 grid(static_cast<unsigned>(split.chunks), static_cast<unsigned>(split.tiles), sample_blocks(call.planes));
  cuda::launch(sum_over_winners<Stored, Winner>, {grid, dim3(cuda::default_threads)}, stream, partials, at_winner, call, split.chunks);
  cuda::launch(close_groups<Stored, Winner>, cuda::loop_shape(call.planes.samples * call.groups * cuda::warp_size), stream, parts, rules,
               partials, call, split.chunks);
}

}  // namespace frit::ops
