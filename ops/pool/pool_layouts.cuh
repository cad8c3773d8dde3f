#pragma once

#include "frit/ops/pool/pool.cuh"

namespace frit::ops {

// Pooling of images in either layout: the kernels for those that lie channels-last, and the choice.

/// How blocks share the windows of channels-last images out: a thread has a vector of channels of one window, or of some of its elements
/// where `strips` threads have it together.
struct ChannelSplit {
  int lanes, strips, windows;  ///< of a block: vectors of channels, threads for each, windows
  std::int64_t channel_blocks;

  ChannelSplit(std::int64_t channels, int width, std::int64_t window_elements) {
    const std::int64_t vectors = (channels + width - 1) / width;
    channel_blocks = (vectors + cuda::default_threads - 1) / cuda::default_threads;
    lanes = static_cast<int>((vectors + channel_blocks - 1) / channel_blocks);
    constexpr std::int64_t most_elements = 64;  // that a thread takes in one by one
    const int room = cuda::default_threads / lanes;
    strips = static_cast<int>(std::clamp<std::int64_t>(window_elements / most_elements, 1, room));
    windows = room / strips;
  }
};

/// An element of a window, from one to the next in their order.
template <class Index>
class WindowCursor {
 public:
  /// At element `first`, or nowhere if that is negative.
  __device__ WindowCursor(const Window<Index>& window, Index first)
      : window_(window), depth_(window.depths.begin), height_(window.heights.begin), width_(window.widths.begin) {
    if (first < 0 || window.empty()) depth_ = window.depths.end;
    if (first > 0) advance(first);
  }
  __device__ bool inside() const { return depth_ < window_.depths.end; }
  __device__ Index place(const PoolPlan<Index>& pool) const { return pool.place(depth_, height_, width_); }
  __device__ void advance(Index elements) {
    width_ += elements * window_.widths.step;
    while (width_ >= window_.widths.end && inside()) {
      width_ -= window_.widths.count() * window_.widths.step;
      height_ += window_.heights.step;
      if (height_ < window_.heights.end) continue;
      height_ = window_.heights.begin;
      depth_ += window_.depths.step;
    }
  }

 private:
  const Window<Index>& window_;
  Index depth_, height_, width_;
};

/// As reduce_windows, `width` channels of a window to a thread. Deterministic.
template <class T, int width, class Index, class Reduction>
__global__ void __launch_bounds__(cuda::default_threads)
    reduce_windows_of_channels(Reduction reduction, const T* input, PoolPlan<Index> pool, Index windows, Index channels,
                               ChannelSplit split) {
  using State = typename Reduction::State;
  constexpr int at_once = 4;
  __shared__ State shared[cuda::default_threads][width];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % split.lanes, strip = thread / split.lanes % split.strips;
  const int place_in_block = thread / (split.lanes * split.strips);
  const std::int64_t groups = (windows + split.windows - 1) / split.windows;
  for (std::int64_t item = blockIdx.x; item < groups * split.channel_blocks; item += gridDim.x) {
    const std::int64_t number = item / split.channel_blocks * split.windows + place_in_block;
    const Index channel = static_cast<Index>((item % split.channel_blocks * split.lanes + lane) * width);
    const bool active = place_in_block < split.windows && number < windows && channel < channels;
    const Window<Index> window(pool, static_cast<Index>(active ? number : 0));
    const T* const image = input + static_cast<std::int64_t>(window.plane) * pool.image_elements() * channels + (active ? channel : 0);
    WindowCursor<Index> cursor(window, active ? strip : -1);
    State states[width];
#pragma unroll
    for (int k = 0; k < width; ++k) states[k] = reduction.begin(cursor.inside() ? cursor.place(pool) : no_place);
    while (cursor.inside()) {
      cuda::Vector<T, width> vectors[at_once];
      Index places[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        places[j] = cursor.inside() ? cursor.place(pool) : Index{-1};
        if (places[j] < 0) continue;
        vectors[j] = *reinterpret_cast<const cuda::Vector<T, width>*>(image + static_cast<std::int64_t>(places[j]) * channels);
        cursor.advance(split.strips);
      }
#pragma unroll
      for (int k = 0; k < width; ++k) {
        Computed<T> values[at_once];
#pragma unroll
        for (int j = 0; j < at_once; ++j) values[j] = places[j] >= 0 ? convert<Computed<T>>(vectors[j][k]) : Reduction::missing();
        reduction.take(states[k], values, places);
      }
    }
    if (split.strips > 1) {
      __syncthreads();
#pragma unroll
      for (int k = 0; k < width; ++k) shared[thread][k] = states[k];
      __syncthreads();
      for (int other = 1; other < split.strips && strip == 0; ++other) {
#pragma unroll
        for (int k = 0; k < width; ++k) states[k] = states[k] + shared[min(thread + other * split.lanes, cuda::default_threads - 1)][k];
      }
    }
    if (active && strip == 0) reduction.finish(number * channels + channel, pool, window, states);
  }
}

/// As gather_windows, a vector of channels to a thread. Deterministic.
template <class T, int width, class Index, class Share>
__global__ void gather_windows_of_channels(T* input_gradient, Share share, PoolPlan<Index> pool, cuda::Divisor vectors,
                                           cuda::Divisor columns, cuda::Divisor rows, cuda::Divisor depths, Index count) {
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    Index sample = static_cast<Index>(i);
    const Index channel = split_off(sample, vectors) * width, channels = vectors.value<Index>() * width;
    const Index w = split_off(sample, columns), h = split_off(sample, rows), d = split_off(sample, depths);
    const PlaceRange<Index> window_depths = pool.depth.windows(d), window_rows = pool.height.windows(h), windows = pool.width.windows(w);
    const Index place = pool.place(d, h, w);
    Computed<T> sums[width] = {};
    for (Index od = window_depths.begin; od < window_depths.end; ++od) {
      for (Index oh = window_rows.begin; oh < window_rows.end; ++oh) {
        const Index row = ((sample * pool.depth.output + od) * pool.height.output + oh) * pool.width.output;
        for (Index ow = windows.begin; ow < windows.end; ++ow) share.add(sums, pool, (row + ow) * channels + channel, od, oh, ow, place);
      }
    }
    cuda::Vector<T, width> results;
#pragma unroll
    for (int k = 0; k < width; ++k) results[k] = convert<T>(sums[k]);
    cuda::store_vector(input_gradient + i * width, results);
  }
}

/// `samples` of them with `channels` channels each.
template <class Index, int width, class T, class Reduction>
void launch_channel_reduction(const Reduction& reduction, const T* input, const PoolGeometry& g, std::int64_t samples,
                              std::int64_t channels, cudaStream_t stream) {
  const ChannelSplit split(channels, width, window_elements(g));
  const std::int64_t windows = samples * g.output_elements(), blocks = (windows + split.windows - 1) / split.windows * split.channel_blocks;
  cuda::launch(reduce_windows_of_channels<T, width, Index, Reduction>, cuda::loop_shape(blocks * cuda::default_threads), stream, reduction,
               input, PoolPlan<Index>(g), static_cast<Index>(windows), static_cast<Index>(channels), split);
}

template <class Index, int width, class T, class Share>
void launch_channel_gather(T* input_gradient, const Share& share, const PoolGeometry& g, std::int64_t samples, std::int64_t channels,
                           cudaStream_t stream) {
  const std::int64_t vectors = channels / width, count = samples * g.image_elements() * vectors;
  cuda::launch(gather_windows_of_channels<T, width, Index, Share>, cuda::loop_shape(count), stream, input_gradient, share,
               PoolPlan<Index>(g), cuda::Divisor(vectors), cuda::Divisor(g.image[2]), cuda::Divisor(g.image[1]), cuda::Divisor(g.image[0]),
               static_cast<Index>(count));
}

/// A pooling operator's reduction over all windows of `input`; make(offset) gives it for outputs that begin so many elements further on.
template <class T, class Make>
void reduce_all_windows(const Tensor& input, const PoolGeometry& g, cudaStream_t stream, const Make& make) {
  const T* const x = input.data<T>();
  if (input.layout() == Layout::contiguous) {
    return for_each_launch(g, 1, [&]<class Index>(std::int64_t first, std::int64_t planes) {
      launch_reduction<Index>(make(first * g.output_elements()), x + first * g.image_elements(), g, planes, stream);
    });
  }
  const std::int64_t channels = input.dim(1);
  for_each_launch(g, channels, [&]<class Index>(std::int64_t first, std::int64_t samples) {
    const auto reduction = make(first * g.output_elements() * channels);
    const T* const images = x + first * g.image_elements() * channels;
    constexpr int width = cuda::vector_width<T>;
    const bool in_vectors = channels % width == 0 && cuda::aligned_for_vectors(x) && reduction.aligned();
    in_vectors ? launch_channel_reduction<Index, width>(reduction, images, g, samples, channels, stream)
               : launch_channel_reduction<Index, 1>(reduction, images, g, samples, channels, stream);
  });
}

/// The gradient of a pooling operator's input, from what windows hand to elements; make(offset) as above.
template <class T, class Make>
void gather_all_windows(const Tensor& input_gradient, const PoolGeometry& g, cudaStream_t stream, const Make& make) {
  T* const dx = input_gradient.data<T>();
  if (input_gradient.layout() == Layout::contiguous) {
    return for_each_launch(g, 1, [&]<class Index>(std::int64_t first, std::int64_t planes) {
      launch_gather<Index>(dx + first * g.image_elements(), make(first * g.output_elements()), g, planes, stream);
    });
  }
  const std::int64_t channels = input_gradient.dim(1);
  for_each_launch(g, channels, [&]<class Index>(std::int64_t first, std::int64_t samples) {
    const auto share = make(first * g.output_elements() * channels);
    T* const images = dx + first * g.image_elements() * channels;
    constexpr int width = cuda::vector_width<T>;
    const bool in_vectors = channels % width == 0 && cuda::aligned_for_vectors(dx) && share.aligned();
    in_vectors ? launch_channel_gather<Index, width>(images, share, g, samples, channels, stream)
               : launch_channel_gather<Index, 1>(images, share, g, samples, channels, stream);
  });
}

/// What a pooling operator's kernel says of layouts: its images lie all in one, best channels-last, where threads read vectors.
inline Kernel pool_kernel(KernelFunction run, std::vector<int> inputs, std::vector<int> outputs) {
  return {.run = std::move(run),
          .halves = true,
          .any_layout_inputs = std::move(inputs),
          .any_layout_outputs = std::move(outputs),
          .one_layout = true,
          .prefers_channels_last = true};
}

}  // namespace frit::ops
