#pragma once

#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/team.cuh"
#include "frit/ops/cuda/stages.cuh"
#include "frit/ops/pool/pool_geometry.h"
#include "frit/ops/pool/windows.cuh"

namespace frit::ops {

// What the CUDA kernels of pooling share, and those of contiguous images: kernels that reduce windows to elements, and kernels that gather
// what the windows around an element hand back to it.

template <class Index>
PoolAxis<Index> pool_axis(const PoolGeometry& g, std::size_t axis) {
  const auto of = [axis](const PoolGeometry::Axes& sizes) { return static_cast<Index>(sizes[axis]); };
  return {of(g.image), of(g.output), of(g.kernel), of(g.stride), of(g.padding), of(g.dilation)};
}
template <class Index>
PoolPlan<Index> pool_plan(const PoolGeometry& g) {
  return {pool_axis<Index>(g, 0), pool_axis<Index>(g, 1), pool_axis<Index>(g, 2)};
}

/// An output, unless nobody reads it.
template <class T>
struct OptionalSink : stages::StoredSink<T> {
  template <int width, class C>
  __device__ void store(const stages::Place& place, const cuda::Vector<C, width>& elements, stages::Nothing, stages::Nothing) const {
    if (this->data != nullptr) stages::StoredSink<T>::template store<width>(place, elements, {}, {});
  }
};

/// Takes in the elements at these places, but for those that are not inside; all are read before the first is looked at.
template <class Reduction, class T, class Index, int count>
__device__ void take_elements(Reduction& reduction, typename Reduction::State& state, const T* plane, const Index (&places)[count],
                              const bool (&inside)[count]) {
  T elements[count];
#pragma unroll
  for (int j = 0; j < count; ++j) elements[j] = plane[places[j]];
  Computed<T> values[count];
#pragma unroll
  for (int j = 0; j < count; ++j) values[j] = inside[j] ? convert<Computed<T>>(elements[j]) : Reduction::missing();
  reduction.take(state, values, places);
}

/// One thread a window, which takes in the window's elements in order, a few loads at once; see windows.cuh of the Reduction. Reads each
/// window once. Deterministic.
template <class T, class Index, class Reduction>
__global__ void reduce_windows(Reduction reduction, T* output, const T* input, PoolPlan<Index> pool, Index count) {
  constexpr int at_once = 4;
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const Window<Index> window(pool, static_cast<Index>(i));
    const T* const plane = input + window.plane * pool.image_elements();
    Index d = window.empty() ? window.depths.end : window.depths.begin, h = window.heights.begin, w = window.widths.begin;
    typename Reduction::State states[1] = {reduction.begin(window.empty() ? no_place : pool.place(d, h, w))};
    while (d < window.depths.end) {
      Index places[at_once];
      bool inside[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        inside[j] = d < window.depths.end;
        places[j] = inside[j] ? pool.place(d, h, w) : 0;
        w += window.widths.step;
        if (w < window.widths.end) continue;
        w = window.widths.begin;
        h += window.heights.step;
        if (h < window.heights.end) continue;
        h = window.heights.begin;
        d += window.depths.step;
      }
      take_elements(reduction, states[0], plane, places, inside);
    }
    const auto results = reduction.finish(i, pool, window, states);
    if (output != nullptr) output[i] = convert<T>(results[0]);
  }
}

/// One team a window: for windows so large that their threads would be far apart in memory. Deterministic.
template <class T, class Index, class Reduction>
__global__ void __launch_bounds__(1024)
    reduce_large_windows(Reduction reduction, T* output, const T* input, PoolPlan<Index> pool, Index count, cuda::Team team) {
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
      Index places[at_once];
      bool inside[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j, element += team.size) {
        inside[j] = element < elements;
        places[j] = inside[j] ? place_of(element) : 0;
      }
      take_elements(reduction, state, plane, places, inside);
    }
    const typename Reduction::State states[1] = {team.sum(state, shared, reduction.begin(no_place))};
    if (!active || team.rank() > 0) continue;
    const auto results = reduction.finish(i, pool, window, states);
    if (output != nullptr) output[i] = convert<T>(results[0]);
  }
}

/// Neighbouring elements of an image row that a thread writes.
template <class T>
inline constexpr int gathered_columns = sizeof(T) == 8 ? 2 : 4;

/// One thread a few neighbouring elements; see windows.cuh of the Share, which adds what each of the windows that reach one hands to it, in
/// their order. Deterministic.
template <class T, class Index, class Share>
__global__ void gather_windows(T* input_gradient, Share share, const T* gradient, PoolPlan<Index> pool, cuda::Divisor row_pieces,
                               cuda::Divisor rows, cuda::Divisor depths, Index count, bool aligned) {
  constexpr int columns = gathered_columns<T>;
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    Index plane = static_cast<Index>(i);
    const Index first = split_off(plane, row_pieces) * columns, h = split_off(plane, rows), d = split_off(plane, depths);
    const PlaceRange<Index> window_depths = pool.depth.windows(d), window_rows = pool.height.windows(h);
    const Index place = pool.place(d, h, first);
    cuda::Vector<Computed<T>, 1> sums[columns] = {};
    for (Index od = window_depths.begin; od < window_depths.end; ++od) {
      for (Index oh = window_rows.begin; oh < window_rows.end; ++oh) {
        const Index row = ((plane * pool.depth.output + od) * pool.height.output + oh) * pool.width.output;
#pragma unroll
        for (int j = 0; j < columns; ++j) {
          const PlaceRange<Index> windows = pool.width.windows(first + j);
          for (Index ow = windows.begin; ow < windows.end; ++ow) {
            const auto handed = share.template load<1>(row + ow);
            const cuda::Vector<Computed<T>, 1> of_window{convert<Computed<T>>(gradient[row + ow])};
            share.add(sums[j], of_window, handed, pool, od, oh, ow, place + j);
          }
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

/// Places of a launch whose indices are 32 bits wide; a sum of two such numbers fits too.
inline constexpr std::int64_t most_short_places = std::int64_t{1} << 30;

/// Whether such indices do for a launch of so many planes.
inline bool short_indices_do(const PoolGeometry& g, std::int64_t planes) {
  bool fit = std::max(g.image_elements(), g.output_elements()) * planes <= most_short_places;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    fit = fit && g.output[axis] * g.stride[axis] + g.kernel[axis] * g.dilation[axis] + g.image[axis] + g.padding[axis] <= most_short_places;
  }
  return fit;
}

/// Calls body.template operator()<Index>(first, count) for parts of the planes, or of the samples of `channels` planes each that lie as
/// one, that together are all.
template <class Body>
void for_each_launch(const PoolGeometry& g, std::int64_t channels, const Body& body) {
  const std::int64_t largest = std::max(g.image_elements(), g.output_elements()) * channels, all = g.planes / channels;
  if (!short_indices_do(g, channels)) {
    if (all > 0) body.template operator()<std::int64_t>(0, all);
    return;
  }
  const std::int64_t at_once = most_short_places / largest;
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

/// Whether a thread takes a window in, and not a team.
inline bool windows_are_small(const PoolGeometry& g) {
  const bool overlap = g.stride[2] < g.kernel[2] && g.output[2] > 1;  // windows side by side read much the same memory
  return window_elements(g) <= (overlap ? 256 : 32);
}

/// `planes` of them, beginning at the pointers.
template <class Index, class T, class Reduction>
void launch_reduction(const Reduction& reduction, T* output, const T* input, const PoolGeometry& g, std::int64_t planes,
                      cudaStream_t stream) {
  const std::int64_t elements = window_elements(g), count = planes * g.output_elements();
  const auto pool = pool_plan<Index>(g);
  if (windows_are_small(g)) {
    cuda::launch(reduce_windows<T, Index, Reduction>, cuda::loop_shape(count), stream, reduction, output, input, pool,
                 static_cast<Index>(count));
  } else {
    const cuda::TeamShape shape(count, elements, 8);
    cuda::launch(reduce_large_windows<T, Index, Reduction>, shape.launch, stream, reduction, output, input, pool, static_cast<Index>(count),
                 shape.team);
  }
}

template <class Index, class T, class Share>
void launch_gather(T* input_gradient, const Share& share, const T* gradient, const PoolGeometry& g, std::int64_t planes,
                   cudaStream_t stream) {
  constexpr std::int64_t columns = gathered_columns<T>;
  const std::int64_t row_pieces = (g.image[2] + columns - 1) / columns, count = planes * g.image[0] * g.image[1] * row_pieces;
  const bool aligned = g.image[2] % columns == 0 && reinterpret_cast<std::uintptr_t>(input_gradient) % (columns * sizeof(T)) == 0;
  cuda::launch(gather_windows<T, Index, Share>, cuda::loop_shape(count), stream, input_gradient, share, gradient, pool_plan<Index>(g),
               cuda::Divisor(row_pieces), cuda::Divisor(g.image[1]), cuda::Divisor(g.image[0]), static_cast<Index>(count), aligned);
}

}  // namespace frit::ops
