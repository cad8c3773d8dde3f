#pragma once

#include "frit/ops/chain/instances/group_norm_scale_max_pool_clamp.cuh"
#include "frit/ops/chain/schedules/streamed_gradient.cuh"
#include "frit/ops/cuda/parameter.cuh"

namespace frit::ops {

/// What the kernels read.
template <class Stored, class Index>
struct PoolGradientCall {
  using T = Computed<Stored>;

  Planes planes;
  std::int64_t windows, groups, group_channels;
  const Stored* gradient;
  GroupParameters<Stored> parameters;
  Clamp<T> clamp;
  const Index* argmax;
  const double *means, *rstds;
  const Stored* argmax_input;

  __device__ GroupMap<T> map(std::int64_t plane) const {
    const std::int64_t slice = plane / group_channels;
    return parameters.map(plane % planes.channels, means[slice], rstds[slice]);
  }
  /// What a window whose maximum is x adds to its channel's sums, and the gradient that x gets.
  __device__ ChannelSums<T> at_argmax(const GroupMap<T>& map, T x, T window_gradient, T& x_gradient) const {
    const T normalized = map.normalized(x), passed = clamp.gradient(window_gradient, normalized * map.scale);
    const T entering = passed * map.scale;
    x_gradient = entering * map.slope;
    return {entering, entering * map.centered(x), passed * normalized};
  }
  /// The sums of a whole channel of a sample, given those over its maxima: 0 elsewhere matters where it meets an infinity or NaN.
  __device__ static ChannelSums<double> whole(const GroupMap<T>& map, const ChannelSums<double>& argmax_sums) {
    const double zero = 0 * static_cast<double>(map.scale);
    return argmax_sums + ChannelSums<double>{zero, zero, 0 * static_cast<double>(map.slope + map.shift)};
  }
};

/// How the windows are dealt out for the sums: a block has a chunk of them in so many channels, or with many samples all, and looks at a
/// tile of them at a time.
struct WindowSplit {
  static constexpr int threads = 512, channels = 32, tile = 128, least_chunk = 2 * tile;

  std::int64_t chunks, chunk_windows, tiles;
  bool finalizes;  ///< a block has all windows of whole groups, and so finalizes their gradients

  WindowSplit(const Planes& planes, std::int64_t windows, std::int64_t group_channels, const cuda::DeviceProperties& device)
      : chunks(most_chunks(windows)), tiles((planes.channels + channels - 1) / channels) {
    finalizes = channels % group_channels == 0 && planes.samples * tiles >= device.multiprocessors;
    if (finalizes) chunks = 1;
    chunk_windows = chunks == 1 ? windows : least_chunk;
  }

  static std::int64_t most_chunks(std::int64_t windows) { return std::max<std::int64_t>(1, (windows + least_chunk - 1) / least_chunk); }
};

/// What the maxima get in addition, a value a window.
template <class T, class Index>
struct ArgmaxGradients {
  T* more;        // (N, C, windows); channels-last: (N, windows, C)
  Index* argmax;  // channels-last: likewise, a copy; else null
};

/// Makes a group's rules of the input's gradient,
///   dx = (g - mean(g) - xhat * mean(g * xhat)) * rstd, xhat = (x - mean) * rstd, g = weight * the gradient of the norm's result
/// and its channels' parts of the gradients of weight, bias and scale, and of the sum of dx, which lacks its sum of x - reference.
template <class T>
struct FinalizeGroupGradients {
  ChannelParts<4>* parts;  // (N, C)
  GradientRules<T> rules;

  /// By a warp, for a group of a sample: sums_of(c) are those of channel c over all windows.
  template <class Call, class SumsOf>
  __device__ void operator()(const Call& call, std::int64_t slice, int lane, const SumsOf& sums_of) const {
    const std::int64_t first = slice * call.group_channels, end = first + call.group_channels;
    const double pixels = static_cast<double>(call.planes.pixels), count = static_cast<double>(call.group_channels) * pixels;
    const double rstd = call.rstds[slice];
    ChannelSums<double> total;
    for (std::int64_t plane = first + lane; plane < end; plane += cuda::warp_size) {
      const std::int64_t c = plane % call.planes.channels;
      const ChannelSums<double> sums = call.whole(call.map(plane), sums_of(c));
      parts[plane] = {{sums.product * rstd, sums.gradient, sums.factor, 0}};
      const auto weight = static_cast<double>(call.parameters.weight[c]);
      total = total + ChannelSums<double>{weight * sums.gradient, weight * sums.product, 0};
    }
    total = cuda::warp_reduce(total);
    for (std::int64_t plane = first + lane; plane < end; plane += cuda::warp_size) {
      // Elsewhere than at the maxima the gradient is 0 times the factors, which matters where one is not finite.
      const GroupMap<T> map = call.map(plane);
      const double slope = static_cast<double>(map.slope), elsewhere = 0 * slope * static_cast<double>(map.scale);
      const double by_difference = -rstd * rstd * rstd * (total.product / count);
      const double offset = elsewhere * rstd - rstd * (total.gradient / count) - static_cast<double>(map.rest) * by_difference;
      rules.set(plane, map.reference, by_difference, offset);
      parts[plane].values[3] = pixels * offset + slope * parts[plane].values[1];
    }
  }
};

/// One block a chunk of windows of some channels; the warps share the channels out in turn, a lane has every 32nd window. Reads the small
/// tensors and writes what the maxima get in addition; if it `turns` that to channels-last, by way of shared memory. Deterministic.
template <class Stored, class Index, bool turns>
__global__ void __launch_bounds__(WindowSplit::threads, 2)
    sum_over_argmax(ChannelSums<double>* partials /* (N, chunks, C) */, ArgmaxGradients<Computed<Stored>, Index> results,
                    FinalizeGroupGradients<Computed<Stored>> finalize, PoolGradientCall<Stored, Index> call, WindowSplit split) {
  using T = Computed<Stored>;
  constexpr int warps = WindowSplit::threads / cuda::warp_size, own = WindowSplit::channels / warps, tile = WindowSplit::tile;
  constexpr int at_once = tile / cuda::warp_size;
  __shared__ GroupMap<T> maps[WindowSplit::channels];
  __shared__ T more[turns ? WindowSplit::channels : 1][tile + 1];  // padded, so that columns have banks of their own
  __shared__ Index numbers[turns ? WindowSplit::channels : 1][tile + 4];
  __shared__ ChannelSums<double> totals[WindowSplit::channels];
  const int t = static_cast<int>(threadIdx.x), warp = t / cuda::warp_size, lane = t % cuda::warp_size;
  const std::int64_t all_channels = call.planes.channels, first_channel = static_cast<std::int64_t>(blockIdx.y) * WindowSplit::channels;
  const int channels = static_cast<int>(min(static_cast<std::int64_t>(WindowSplit::channels), all_channels - first_channel));
  const std::int64_t begin = blockIdx.x * split.chunk_windows, end = min(call.windows, begin + split.chunk_windows);
  for (std::int64_t n = blockIdx.z; n < call.planes.samples; n += gridDim.z) {
    const std::int64_t first_plane = n * all_channels + first_channel;
    T gradient[own][at_once], x[own][at_once];
    Index index[own][at_once];
    const auto left_from = [&](std::int64_t first) { return static_cast<int>(min(end - first, static_cast<std::int64_t>(tile))) - lane; };
    const auto place_of = [&](int k, std::int64_t first) { return (first_plane + warp + k * warps) * call.windows + first + lane; };
    const auto load = [&](std::int64_t first) {
      const int left = left_from(first);
#pragma unroll
      for (int k = 0; k < own; ++k) {
        const bool exists = warp + k * warps < channels;
        const Stored *const gradients = call.gradient + place_of(k, first), *const argmax_input = call.argmax_input + place_of(k, first);
        const Index* const argmax = call.argmax + place_of(k, first);
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          const bool there = exists && u * cuda::warp_size < left;
          gradient[k][u] = there ? convert<T>(gradients[u * cuda::warp_size]) : T(0);
          x[k][u] = there ? convert<T>(argmax_input[u * cuda::warp_size]) : T(0);
          if constexpr (turns) index[k][u] = there ? argmax[u * cuda::warp_size] : Index(0);
        }
      }
    };
    load(begin);
    if (t < channels) maps[t] = call.map(first_plane + t);
    __syncthreads();
    ChannelSums<T> sums[own];
    for (std::int64_t first = begin; first < end; first += tile) {
      const int left = left_from(first);
#pragma unroll
      for (int k = 0; k < own; ++k) {
        const int c = warp + k * warps;
        if (c >= channels) continue;
        const GroupMap<T> map = maps[c];
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          T x_gradient;
          const ChannelSums<T> added = call.at_argmax(map, x[k][u], gradient[k][u], x_gradient);
          const bool there = u * cuda::warp_size < left;
          if (there) sums[k] = sums[k] + added;
          if constexpr (turns) {
            more[c][lane + u * cuda::warp_size] = x_gradient;
            numbers[c][lane + u * cuda::warp_size] = index[k][u];
          } else {
            if (there) results.more[place_of(k, first) + u * cuda::warp_size] = x_gradient;
          }
        }
      }
      if (first + tile < end) load(first + tile);
      if constexpr (turns) {
        constexpr int width = sizeof(T) == sizeof(double) ? 2 : 4, lanes = WindowSplit::channels / width;  // of a thread, of a window
        constexpr int rows = WindowSplit::threads / lanes;
        const int c = t % lanes * width;
        __syncthreads();
#pragma unroll
        for (int u = 0; u < tile / rows; ++u) {
          const int i = t / lanes + u * rows;
          if (first + i >= end || c >= channels) continue;
          cuda::Vector<T, width> own_more;
          cuda::Vector<Index, width> own_numbers;
#pragma unroll
          for (int j = 0; j < width; ++j) own_more[j] = more[c + j][i], own_numbers[j] = numbers[c + j][i];
          const std::int64_t to = (n * call.windows + first + i) * all_channels + first_channel + c;
          cuda::store_vector(results.more + to, own_more);
          cuda::store_vector(results.argmax + to, own_numbers);
        }
        __syncthreads();
      }
    }
#pragma unroll
    for (int k = 0; k < own; ++k) {
      const ChannelSums<double> total = cuda::warp_reduce(sums[k].template to<double>());
      const int c = warp + k * warps;
      if (lane != 0 || c >= channels) continue;
      if (split.finalizes) {
        totals[c] = total;
      } else {
        partials[(n * split.chunks + blockIdx.x) * all_channels + first_channel + c] = total;
      }
    }
    __syncthreads();
    if (!split.finalizes) continue;
    const auto group_channels = static_cast<int>(call.group_channels);
    for (int c = warp * group_channels; c < channels; c += warps * group_channels) {
      finalize(call, (first_plane + c) / group_channels, lane, [&](std::int64_t channel) { return totals[channel - first_channel]; });
    }
  }
}

/// One warp a group of a sample: adds up the chunks' sums and finalizes its gradients. Deterministic.
template <class Stored, class Index>
__global__ void finalize_groups(FinalizeGroupGradients<Computed<Stored>> finalize, const ChannelSums<double>* partials /* (N, chunks, C) */,
                                PoolGradientCall<Stored, Index> call, std::int64_t chunks) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  for (std::int64_t slice = cuda::first_item() / cuda::warp_size; slice < call.planes.samples * call.groups;
       slice += cuda::item_step() / cuda::warp_size) {
    const ChannelSums<double>* const sample = partials + slice / call.groups * chunks * call.planes.channels;
    finalize(call, slice, lane, [&](std::int64_t c) {
      ChannelSums<double> sums;
#pragma unroll 4
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sums = sums + sample[chunk * call.planes.channels + c];
      return sums;
    });
  }
}

/// What a backward operator of the chain was given; the inputs from `first` on are weight, bias, scale, argmax, mean, rstd and
/// argmax_input.
template <class Stored, class Index>
PoolGradientCall<Stored, Index> pool_gradient_call(const KernelContext& call, const Planes& planes, const GroupNormPoolGeometry& geometry,
                                                   const ClampAttributes& clamp, std::size_t first) {
  const auto input = [&](std::size_t i) -> const Tensor& { return call.inputs[first + i]; };
  return {.planes = planes,
          .windows = geometry.windows(),
          .groups = geometry.groups,
          .group_channels = geometry.group_channels(),
          .gradient = call.inputs[0].data<Stored>(),
          .parameters = GroupParameters<Stored>(call, first),
          .clamp = Clamp<Computed<Stored>>(clamp),
          .argmax = input(3).template data<Index>(),
          .means = input(4).template data<double>(),
          .rstds = input(5).template data<double>(),
          .argmax_input = input(6).template data<Stored>()};
}

/// The rules and the channels' parts, from the small tensors alone. Where the argmax is copied, which is bytes, channels come in vectors.
template <class Stored, class Index>
void launch_window_sums(const FinalizeGroupGradients<Computed<Stored>>& finalize, const ArgmaxGradients<Computed<Stored>, Index>& at_argmax,
                        ChannelSums<double>* partials, const PoolGradientCall<Stored, Index>& call, int device, cudaStream_t stream) {
  const WindowSplit split(call.planes, call.windows, call.group_channels, cuda::properties(device));
  const dim3 grid(static_cast<unsigned>(split.chunks), static_cast<unsigned>(split.tiles), sample_blocks(call.planes));
  auto* kernel = &sum_over_argmax<Stored, Index, false>;
  if constexpr (std::is_same_v<Index, std::uint8_t>) {
    if (at_argmax.argmax != nullptr) kernel = &sum_over_argmax<Stored, Index, true>;
  }
  cuda::launch(kernel, {grid, dim3(WindowSplit::threads)}, stream, partials, at_argmax, finalize, call, split);
  if (split.finalizes) return;
  cuda::launch(finalize_groups<Stored, Index>, cuda::loop_shape(call.planes.samples * call.groups * cuda::warp_size), stream, finalize,
               partials, call, split.chunks);
}

}  // namespace frit::ops
