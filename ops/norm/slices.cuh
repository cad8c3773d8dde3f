#pragma once

#include "frit/core/cuda/divisor.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/elementwise/pointwise.cuh"
#include "frit/ops/norm/sums.cuh"

namespace frit::ops {

// How the CUDA kernels of the norms traverse slices, a tile of a few vectors at a time. Which thread has which elements depends on shapes
// alone: a misaligned tensor gives the bits of an aligned one.

/// A NormGeometry on the device, with vectors of `width` elements for elements.
struct DeviceGeometry {
  std::int64_t slices, slice_stride, runs, run_length, gap;  ///< gap: from the end of a run to the next one
  std::int64_t channels;
  WeightAxis weight_axis;
  cuda::Divisor runs_of;

  DeviceGeometry(const NormGeometry& g, int width)
      : slices(g.slices),
        slice_stride(g.slice_stride / width),
        runs(g.runs),
        run_length(g.run_length / width),
        gap((g.run_stride - g.run_length) / width),
        channels(g.weight_axis == WeightAxis::element ? g.channels / width : g.channels),
        weight_axis(g.weight_axis),
        runs_of(std::max<std::int64_t>(run_length, 1)) {}

  __device__ std::int64_t slice_vectors() const { return runs * run_length; }
  __device__ std::int64_t run(std::int64_t index) const {
    if (runs == 1) return 0;
    if (slice_vectors() <= INT32_MAX) return runs_of.quotient(static_cast<std::uint32_t>(index));
    return static_cast<std::int64_t>(runs_of.quotient(static_cast<std::uint64_t>(index)));
  }
  /// Of a vector of a slice, from the slice's first.
  __device__ std::int64_t offset(std::int64_t index) const { return index + run(index) * gap; }
  /// The first channel of a slice.
  __device__ std::int64_t channel(std::int64_t slice) const {
    if (channels == 0 || weight_axis == WeightAxis::slice) return slice;
    return slice * runs * (weight_axis == WeightAxis::run ? 1 : run_length) % channels;
  }
};

/// Calls body.template operator()<width>() for the widest vectors that runs of elements of type T are made of.
template <class T, class Body>
void dispatch_width(const NormGeometry& g, const Body& body) {
  constexpr int width = cuda::vector_width<T>;
  if (g.run_length % width == 0 && g.run_stride % width == 0 && g.slice_stride % width == 0) return body.template operator()<width>();
  body.template operator()<1>();
}

/// The vectors index, index + step, ... below `end` of a slice.
struct SliceIterator {
  std::int64_t index, end;
  int step;

  /// Part p of `parts` of the slice, or nothing.
  __device__ SliceIterator(const DeviceGeometry& g, const cuda::Team& team, std::int64_t p, std::int64_t parts, bool active)
      : step(team.size) {
    const std::int64_t count = g.slice_vectors(), length = (count + parts - 1) / parts;
    index = p * length + team.rank();
    end = active ? min(count, (p + 1) * length) : 0;
  }

  __device__ bool inside() const { return index < end; }
  __device__ void advance() { index += step; }
};

/// Whether tensors may be accessed in whole vectors.
struct Alignment {
  bool data, weights;

  Alignment(int width, std::initializer_list<const void*> data_, std::initializer_list<const void*> weights_)
      : data(width > 1 && std::all_of(data_.begin(), data_.end(), cuda::aligned_for_vectors)),
        weights(width > 1 && std::all_of(weights_.begin(), weights_.end(), cuda::aligned_for_vectors)) {}
};

template <int width, class T>
__device__ cuda::Vector<T, width> load_vector(const T* memory, bool aligned) {
  if (aligned) return *reinterpret_cast<const cuda::Vector<T, width>*>(memory);
  cuda::Vector<T, width> result;
#pragma unroll
  for (int k = 0; k < width; ++k) result[k] = memory[k];
  return result;
}

template <class T, int width>
__device__ void store_vector(T* memory, const cuda::Vector<T, width>& values, bool aligned) {
  if (aligned) {
    cuda::store_vector(memory, values);
  } else {
#pragma unroll
    for (int k = 0; k < width; ++k) memory[k] = values[k];
  }
}

/// What a thread holds at a time: so many loads are under way together.
template <class T, int width>
struct Tile {
  static constexpr int vectors = (sizeof(T) == 8 ? 8 : 16) / width;

  cuda::Vector<T, width> values[vectors];

  /// Takes the vectors that come next; returns how many there were.
  __device__ int load(const T* slice, const DeviceGeometry& g, SliceIterator& it, bool aligned) {
    int count = 0;
#pragma unroll
    for (int v = 0; v < vectors; ++v, it.advance()) {
      if (!it.inside()) continue;
      values[v] = load_vector<width>(slice + g.offset(it.index) * width, aligned);
      ++count;
    }
    return count;
  }
  __device__ Computed<T> operator()(int v, int k) const { return convert<Computed<T>>(values[v][k]); }
  /// A team of `size` threads has a slice of so many vectors in its tiles all at once.
  __device__ static bool holds(std::int64_t slice_vectors, int size) { return slice_vectors <= static_cast<std::int64_t>(vectors) * size; }
};

/// Which weights belong to a slice's vectors, if there are any: one for all, one a run or one an element.
struct SliceWeights {
  bool per_run, per_element;
  std::int64_t first;  ///< in vectors where there is one an element

  __device__ SliceWeights(const DeviceGeometry& g, std::int64_t slice, bool present)
      : per_run(present && g.weight_axis == WeightAxis::run && g.runs > 1),
        per_element(present && g.weight_axis == WeightAxis::element),
        first(present ? g.channel(slice) : 0) {}
};

/// The same tensor as rows in the order of memory, each with one weight and in one slice; where weights belong to elements, the slices.
inline NormGeometry rows_of(const NormGeometry& g) {
  if (g.weight_axis == WeightAxis::element) return g;
  return {.slices = g.slices * g.runs,
          .runs = 1,
          .run_length = g.run_length,
          .slice_stride = g.run_length,
          .run_stride = g.run_length,
          .channels = g.channels,
          .weight_axis = WeightAxis::run};
}

/// Which slice a row is in.
struct SliceOfRow {
  std::int64_t rows, slices;  ///< neighbouring rows of a slice

  explicit SliceOfRow(const NormGeometry& g) : rows(g.weight_axis == WeightAxis::run ? g.runs : 1), slices(g.slices) {}
  __device__ std::int64_t operator()(std::int64_t row) const { return row / rows % slices; }
};

}  // namespace frit::ops
