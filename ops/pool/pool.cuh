#pragma once

#include "frit/core/cuda/divisor.cuh"
#include "frit/core/cuda/team.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/elementwise/pointwise.cuh"
#include "frit/ops/pool/pool_geometry.h"

namespace frit::ops {

// What the CUDA kernels of pooling share: index arithmetic, kernels that reduce windows to elements, and kernels that gather what the
// windows around an element hand back to it. `Index` is 32 bits wide where all places of a launch fit.

/// Places begin, begin + step, ... below `end`.
template <class Index>
struct PlaceRange {
  Index begin, end, step;

  __device__ bool empty() const { return begin >= end; }
  __device__ Index count() const { return empty() ? 0 : (end - begin + step - 1) / step; }
};

template <class Index>
struct PoolAxis {
  using Unsigned = std::make_unsigned_t<Index>;

  Index image, output, kernel, stride, padding, dilation;
  cuda::Divisor outputs, strides;

  PoolAxis(const PoolGeometry& g, std::size_t axis)
      : image(static_cast<Index>(g.image[axis])),
        output(static_cast<Index>(g.output[axis])),
        kernel(static_cast<Index>(g.kernel[axis])),
        stride(static_cast<Index>(g.stride[axis])),
        padding(static_cast<Index>(g.padding[axis])),
        dilation(static_cast<Index>(g.dilation[axis])),
        outputs(g.output[axis]),
        strides(g.stride[axis]) {}

  __device__ Index window_begin(Index o) const { return o * stride - padding; }
  /// What a window has of the image.
  __device__ PlaceRange<Index> window(Index o) const {
    const Index first = window_begin(o);
    const Index begin = first >= 0 ? first : dilation == 1 ? 0 : first + (dilation - 1 - first) / dilation * dilation;
    return {begin, min(image, first + (kernel - 1) * dilation + 1), dilation};
  }
  /// The windows that reach a place, and with dilation perhaps some that step over it.
  __device__ PlaceRange<Index> windows(Index place) const {
    const Index last = place + padding, first = last - (kernel - 1) * dilation;
    const Index begin = first <= 0 ? 0 : quotient(first + stride - 1);
    return {begin, min(output, quotient(last) + 1), 1};
  }

 private:
  __device__ Index quotient(Index n) const { return static_cast<Index>(strides.quotient(static_cast<Unsigned>(n))); }
};

/// Takes the last axis off a row-major index.
template <class Index>
__device__ Index split_off(Index& index, const cuda::Divisor& size) {
  using Unsigned = std::make_unsigned_t<Index>;
  const auto whole = static_cast<Unsigned>(index);
  const Unsigned quotient = size.quotient(whole);
  index = static_cast<Index>(quotient);
  return static_cast<Index>(size.remainder(whole, quotient));
}

template <class Index>
struct PoolPlan {
  PoolAxis<Index> depth, height, width;

  explicit PoolPlan(const PoolGeometry& g) : depth(g, 0), height(g, 1), width(g, 2) {}

  __device__ Index image_elements() const { return depth.image * height.image * width.image; }
  __device__ Index place(Index d, Index h, Index w) const { return (d * height.image + h) * width.image + w; }
};

/// A window: which one it is of its plane, and what it has of the image.
template <class Index>
struct Window {
  Index plane, depth, height, width;
  PlaceRange<Index> depths, heights, widths;

  __device__ Window(const PoolPlan<Index>& pool, Index number) {
    width = split_off(number, pool.width.outputs);
    height = split_off(number, pool.height.outputs);
    depth = split_off(number, pool.depth.outputs);
    plane = number;
    depths = pool.depth.window(depth);
    heights = pool.height.window(height);
    widths = pool.width.window(width);
  }
  __device__ bool empty() const { return depths.empty() || heights.empty() || widths.empty(); }
};

/// Stands for the place of an element that is not there.
inline constexpr std::int32_t no_place = INT32_MAX;

/// One thread a window, which takes in the window's elements in order, a few loads at once; what they become is the Reduction's matter:
///   State begin(place) const;                        of a window whose first element has this place
///   void take(State&, values, places) const;         some elements more
///   void finish(i, pool, window, states) const;      the results i, i + 1, ... of neighbouring channels of one window
/// Reads each window once. Deterministic.
template <class T, class Index, class Reduction>
__global__ void reduce_windows(Reduction reduction, const T* input, PoolPlan<Index> pool, Index count) {
  constexpr int at_once = 4;
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const Window<Index> window(pool, static_cast<Index>(i));
    const T* const plane = input + window.plane * pool.image_elements();
    Index d = window.empty() ? window.depths.end : window.depths.begin, h = window.heights.begin, w = window.widths.begin;
    typename Reduction::State states[1] = {reduction.begin(window.empty() ? no_place : pool.place(d, h, w))};
    while (d < window.depths.end) {
      Computed<T> values[at_once];
      Index places[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        const bool inside = d < window.depths.end;
        places[j] = inside ? pool.place(d, h, w) : 0;
        values[j] = inside ? convert<Computed<T>>(plane[places[j]]) : Reduction::missing();
        w += window.widths.step;
        if (w < window.widths.end) continue;
        w = window.widths.begin;
        h += window.heights.step;
        if (h < window.heights.end) continue;
        h = window.heights.begin;
        d += window.depths.step;
      }
      reduction.take(states[0], values, places);
    }
    reduction.finish(i, pool, window, states);
  }
}

/// One team a window: for windows so large that their threads would be far apart in memory. Deterministic.
template <class T, class Index, class Reduction>
__global__ void __launch_bounds__(1024)
    reduce_large_windows(Reduction reduction, const T* input, PoolPlan<Index> pool, Index count, cuda::Team team) {
  constexpr int at_once = 8;
  __shared__ typename Reduction::State shared[cuda::warp_size];
  for (std::int64_t first = team.first_item(); first < count; first += team.item_step()) {
    const std::int64_t i = first + team.place();
    const bool active = i < count;
    const Window<Index> window(pool, static_cast<Index>(active ? i : 0));
    const T* const plane = input + window.plane * pool.image_elements();
    const Index columns = window.widths.count(), rows = window.heights.count();
    const Index elements = active ? window.depths.count() * rows * columns : 0;
    const auto place_of = [&](Index element) {
      const Index row = element / columns, w = element - row * columns, d = row / rows, h = row - d * rows;
      return pool.place(window.depths.begin + d * window.depths.step, window.heights.begin + h * window.heights.step,
                        window.widths.begin + w * window.widths.step);
    };
    Index element = team.rank();
    auto state = reduction.begin(element < elements ? place_of(element) : no_place);
    while (element < elements) {
      Computed<T> values[at_once];
      Index places[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j, element += team.size) {
        places[j] = element < elements ? place_of(element) : 0;
        values[j] = element < elements ? convert<Computed<T>>(plane[places[j]]) : Reduction::missing();
      }
      reduction.take(state, values, places);
    }
    const typename Reduction::State states[1] = {team.sum(state, shared, reduction.begin(no_place))};
    if (active && team.rank() == 0) reduction.finish(i, pool, window, states);
  }
}

/// Neighbouring elements of an image row that a thread writes.
template <class T>
inline constexpr int gathered_columns = sizeof(T) == 8 ? 2 : 4;

/// One thread a few neighbouring elements; share.add(sums, pool, window's place in memory, depth, height, width, place) adds what each of
/// the windows that reach one hands to it, in their order. Deterministic.
template <class T, class Index, class Share>
__global__ void gather_windows(T* input_gradient, Share share, PoolPlan<Index> pool, cuda::Divisor row_pieces, cuda::Divisor rows,
                               cuda::Divisor depths, Index count, bool aligned) {
  constexpr int columns = gathered_columns<T>;
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    Index plane = static_cast<Index>(i);
    const Index first = split_off(plane, row_pieces) * columns, h = split_off(plane, rows), d = split_off(plane, depths);
    const PlaceRange<Index> window_depths = pool.depth.windows(d), window_rows = pool.height.windows(h);
    const Index place = pool.place(d, h, first);
    Computed<T> sums[columns][1] = {};
    for (Index od = window_depths.begin; od < window_depths.end; ++od) {
      for (Index oh = window_rows.begin; oh < window_rows.end; ++oh) {
        const Index row = ((plane * pool.depth.output + od) * pool.height.output + oh) * pool.width.output;
#pragma unroll
        for (int j = 0; j < columns; ++j) {
          const PlaceRange<Index> windows = pool.width.windows(first + j);
          for (Index ow = windows.begin; ow < windows.end; ++ow) share.add(sums[j], pool, row + ow, od, oh, ow, place + j);
        }
      }
    }
    T* const target = input_gradient + plane * pool.image_elements() + place;
    cuda::Vector<T, columns> results;
#pragma unroll
    for (int j = 0; j < columns; ++j) results[j] = convert<T>(sums[j][0]);
    if (aligned) {
      *reinterpret_cast<cuda::Vector<T, columns>*>(target) = results;
      continue;
    }
#pragma unroll
    for (int j = 0; j < columns; ++j) {
      if (first + j < pool.width.image) target[j] = results[j];
    }
  }
}

/// Calls body.template operator()<Index>(first, count) for parts of the planes, or of the samples of `channels` planes each that lie as
/// one, that together are all.
template <class Body>
void for_each_launch(const PoolGeometry& g, std::int64_t channels, const Body& body) {
  constexpr std::int64_t limit = std::int64_t{1} << 30;  // a sum of two such numbers fits too
  const std::int64_t largest = std::max(g.image_elements(), g.output_elements()) * channels, all = g.planes / channels;
  bool small = largest <= limit;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    small = small && g.output[axis] * g.stride[axis] + g.kernel[axis] * g.dilation[axis] + g.image[axis] + g.padding[axis] <= limit;
  }
  if (!small) {
    if (all > 0) body.template operator()<std::int64_t>(0, all);
    return;
  }
  const std::int64_t at_once = limit / largest;
  for (std::int64_t first = 0; first < all; first += at_once) {
    body.template operator()<std::int32_t>(first, std::min(at_once, all - first));
  }
}

/// The elements of a window at most.
inline std::int64_t window_elements(const PoolGeometry& g) {
  std::int64_t elements = 1;
  for (std::size_t axis = 0; axis < 3; ++axis) elements *= std::min(g.kernel[axis], g.image[axis]);
  return elements;
}

/// `planes` of them, beginning at the pointers.
template <class Index, class T, class Reduction>
void launch_reduction(const Reduction& reduction, const T* input, const PoolGeometry& g, std::int64_t planes, cudaStream_t stream) {
  const std::int64_t elements = window_elements(g), count = planes * g.output_elements();
  const bool overlap = g.stride[2] < g.kernel[2] && g.output[2] > 1;  // windows side by side read much the same memory
  const PoolPlan<Index> pool(g);
  if (elements <= (overlap ? 256 : 32)) {
    cuda::launch(reduce_windows<T, Index, Reduction>, cuda::loop_shape(count), stream, reduction, input, pool, static_cast<Index>(count));
  } else {
    const cuda::TeamShape shape(count, elements, 8);
    cuda::launch(reduce_large_windows<T, Index, Reduction>, shape.launch, stream, reduction, input, pool, static_cast<Index>(count),
                 shape.team);
  }
}

template <class Index, class T, class Share>
void launch_gather(T* input_gradient, const Share& share, const PoolGeometry& g, std::int64_t planes, cudaStream_t stream) {
  constexpr std::int64_t columns = gathered_columns<T>;
  const std::int64_t row_pieces = (g.image[2] + columns - 1) / columns, count = planes * g.image[0] * g.image[1] * row_pieces;
  const bool aligned = g.image[2] % columns == 0 && reinterpret_cast<std::uintptr_t>(input_gradient) % (columns * sizeof(T)) == 0;
  cuda::launch(gather_windows<T, Index, Share>, cuda::loop_shape(count), stream, input_gradient, share, PoolPlan<Index>(g),
               cuda::Divisor(row_pieces), cuda::Divisor(g.image[1]), cuda::Divisor(g.image[0]), static_cast<Index>(count), aligned);
}

}  // namespace frit::ops
