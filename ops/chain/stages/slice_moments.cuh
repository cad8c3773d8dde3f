#pragma once

#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/planes.cuh"

namespace frit::ops {

// The statistics of a chain: mean and variance of slices, each a sample's group of channels. A thread sums a few elements in their own type
// around the first of them; from there on the sums are doubles around the slice's first element, where adding them loses nothing.

/// Sums of elements less the first of their slice.
struct ShiftedSums {
  double sum = 0, squares = 0;

  __device__ friend ShiftedSums operator+(const ShiftedSums& a, const ShiftedSums& b) { return {a.sum + b.sum, a.squares + b.squares}; }
};

/// The sums of one thread, over few elements.
template <class T>
class ThreadSums {
 public:
  ThreadSums() = default;
  __device__ explicit ThreadSums(T pivot) : pivot_(pivot) {}

  __device__ T pivot() const { return pivot_; }
  __device__ void add(T x) {
    const T difference = x - pivot_;
    sum_ += difference;
    squares_ += difference * difference;
  }
  /// Adds those of a lane with the same pivot.
  __device__ void add_lane(int mask) {
    sum_ += cuda::shuffle_xor(sum_, mask);
    squares_ += cuda::shuffle_xor(squares_, mask);
  }
  __device__ ShiftedSums shifted(std::int64_t count, T slice_pivot) const {
    const double shift = static_cast<double>(pivot_) - static_cast<double>(slice_pivot), n = static_cast<double>(count);
    const double sum = static_cast<double>(sum_);
    return {sum + n * shift, static_cast<double>(squares_) + shift * (2 * sum + n * shift)};
  }

 private:
  T pivot_ = 0, sum_ = 0, squares_ = 0;
};

struct DeviceMoments {
  double mean, variance;

  /// `share` is 1 over the number of elements, or 0 if there are none.
  __device__ DeviceMoments(const ShiftedSums& sums, double pivot, double share) {
    const double difference = sums.sum * share;
    mean = pivot + difference;
    variance = sums.squares * share - difference * difference;
    variance = variance < 0 ? 0 : variance;
  }
};
inline double share_of_each(std::int64_t count) { return count == 0 ? 0 : 1 / static_cast<double>(count); }

/// Slices of channels, and how their elements are dealt out: an item of work is a chunk of the pixels of `lanes` channels.
struct SliceSplit {
  Planes planes;
  Places places;
  std::int64_t groups, group_channels, chunk_pixels, chunks;
  int lanes;

  SliceSplit(const Planes& planes_, const Places& places_, std::int64_t groups_)
      : planes(planes_),
        places(places_),
        groups(groups_),
        group_channels(planes.channels / groups),
        lanes(places.channels_last() ? lanes_for(planes.channels) : 1) {
    chunk_pixels = thread_elements * cuda::default_threads / lanes;
    chunks = most_chunks(planes.pixels, lanes);
  }

  /// Bytes of partial sums for so many samples in any layout.
  static std::size_t scratch(const Planes& planes, std::int64_t samples) {
    return static_cast<std::size_t>(samples * planes.channels * most_chunks(planes.pixels, lanes_for(planes.channels))) *
           sizeof(ShiftedSums);
  }

  std::int64_t tiles() const { return (planes.channels + lanes - 1) / lanes; }

 private:
  static constexpr std::int64_t thread_elements = 64;
  static std::int64_t most_chunks(std::int64_t pixels, int lanes) {
    const std::int64_t size = thread_elements * cuda::default_threads / lanes;
    return (pixels + size - 1) / size;
  }
};

/// The parts of a chain's scratch memory: the partial sums, and a map for each channel of each sample.
struct MapScratch {
  std::size_t partials, maps;

  MapScratch(const Planes& planes, std::size_t map_bytes)
      : partials(aligned(SliceSplit::scratch(planes, planes.samples))),
        maps(aligned(static_cast<std::size_t>(planes.samples * planes.channels) * map_bytes)) {}
  std::size_t total() const { return partials + maps; }

 private:
  static std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
};

/// One block an item; a row of its threads is `lanes` channels of a pixel. Reads the input once and writes 16 bytes a chunk and channel.
/// Deterministic.
template <class Stored>
__global__ void sum_chunks(ShiftedSums* partials /* (N, chunks, C) */, const Stored* input, SliceSplit split, std::int64_t tiles,
                           std::int64_t items) {
  using T = Computed<Stored>;
  __shared__ ShiftedSums shared[cuda::default_threads];
  const Planes planes = split.planes;
  const int lane = static_cast<int>(threadIdx.x) % split.lanes, row = static_cast<int>(threadIdx.x) / split.lanes;
  const int rows = cuda::default_threads / split.lanes;
  const std::int64_t step = split.places.pixel;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t chunk = item % split.chunks, tile = item / split.chunks % tiles, n = item / split.chunks / tiles;
    const std::int64_t c = tile * split.lanes + lane, first = chunk * split.chunk_pixels + row;
    const std::int64_t end = min(planes.pixels, (chunk + 1) * split.chunk_pixels);
    ShiftedSums sums;
    if (c < planes.channels && first < end) {
      const Stored* const x = input + split.places(n, c, 0);
      ThreadSums<T> thread_sums(convert<T>(x[first * step]));
#pragma unroll 8
      for (std::int64_t p = first; p < end; p += rows) thread_sums.add(convert<T>(x[p * step]));
      const Stored pivot = input[split.places(n, c / split.group_channels * split.group_channels, 0)];
      sums = thread_sums.shifted((end - first + rows - 1) / rows, convert<T>(pivot));
    }
    sums = sum_rows(sums, split.lanes, shared);
    if (row == 0 && c < planes.channels) partials[(n * split.chunks + chunk) * planes.channels + c] = sums;
    __syncthreads();
  }
}

/// A warp's sum over a slice in double, for one whose squares overflow in float or that holds an infinity or NaN.
template <class Stored>
__device__ ShiftedSums sum_slice_in_double(const Stored* x, const SliceSplit& split, double pivot, int lane) {
  ShiftedSums sums;
  for (std::int64_t i = lane; i < split.group_channels * split.planes.pixels; i += cuda::warp_size) {
    const Stored element = x[i / split.planes.pixels * split.places.channel + i % split.planes.pixels * split.places.pixel];
    const double difference = static_cast<double>(convert<Computed<Stored>>(element)) - pivot;
    sums = sums + ShiftedSums{difference, difference * difference};
  }
  return cuda::warp_reduce(sums);
}

/// One warp a slice: adds its partial sums and hands the moments to finalize(slice, moments), in one thread. Deterministic.
template <class Stored, class Finalize>
__global__ void finalize_slices(const ShiftedSums* partials /* (N, chunks, C) */, const Stored* input, SliceSplit split, Finalize finalize,
                                double share) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const std::int64_t slices = split.planes.samples * split.groups;
  for (std::int64_t slice = cuda::first_item() / cuda::warp_size; slice < slices; slice += cuda::item_step() / cuda::warp_size) {
    const std::int64_t n = slice / split.groups, first_channel = slice % split.groups * split.group_channels;
    const std::int64_t count = split.group_channels * split.planes.pixels;
    const Stored* const x = input + split.places(n, first_channel, 0);
    const double pivot = count == 0 ? 0.0 : static_cast<double>(convert<Computed<Stored>>(*x));
    ShiftedSums sums;
    for (std::int64_t i = lane; i < split.chunks * split.group_channels; i += cuda::warp_size) {
      const std::int64_t chunk = i / split.group_channels, c = first_channel + i % split.group_channels;
      sums = sums + partials[(n * split.chunks + chunk) * split.planes.channels + c];
    }
    sums = cuda::warp_reduce(sums);
    if (!isfinite(sums.squares)) sums = sum_slice_in_double(x, split, pivot, lane);
    if (lane == 0) finalize(slice, DeviceMoments(sums, pivot, share));
  }
}

/// Calls finalize(slice, moments) on the device for every slice.
template <class Stored, class Finalize>
void find_moments(const Stored* input, const SliceSplit& split, ShiftedSums* partials, const Finalize& finalize, cudaStream_t stream) {
  const std::int64_t slices = split.planes.samples * split.groups;
  if (slices == 0) return;
  const std::int64_t tiles = split.tiles(), items = split.planes.samples * tiles * split.chunks;
  if (items > 0) {
    cuda::launch(sum_chunks<Stored>, cuda::loop_shape(items * cuda::default_threads), stream, partials, input, split, tiles, items);
  }
  cuda::launch(finalize_slices<Stored, Finalize>, cuda::loop_shape(slices * cuda::warp_size), stream, partials, input, split, finalize,
               share_of_each(split.group_channels * split.planes.pixels));
}

}  // namespace frit::ops
