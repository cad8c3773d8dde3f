// Images of other sizes, and their gradient.

#include "frit/core/cuda/divisor.cuh"
#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/reduce.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/shape/resize_axis.h"

namespace frit::ops {
namespace {

/// Images with nothing but axes that change between samples and channels: (samples, depth, height, width, channels).
struct ResizedImages {
  ResizeAxes axes;
  std::int64_t samples;
  int channels;

  /// Planes of contiguous images are samples of one channel, axes that stay samples or channels.
  ResizedImages(const ResizeAttributes& attributes, std::int64_t all_samples, std::int64_t all_channels)
      : axes(attributes), samples(all_samples), channels(static_cast<int>(all_channels)) {
    FRIT_CHECK(all_channels <= INT32_MAX);
    for (int i = 0; i < 2 && axes.width.stays() && std::int64_t{axes.width.to} * channels <= INT32_MAX; ++i) {
      channels *= axes.width.to;
      axes.width = axes.height;
      axes.height = axes.depth;
      axes.depth = {};
    }
    for (ResizeAxis* axis : {&axes.depth, &axes.height}) {
      if (!axis->stays()) break;
      samples *= axis->to;
      *axis = {};
    }
  }
};

/// Takes the last axis off a row-major index.
__device__ std::int64_t split_off(std::int64_t& index, const cuda::Divisor& size, bool small) {
  if (small) {
    const auto whole = static_cast<std::uint32_t>(index), quotient = size.quotient(whole);
    index = quotient;
    return size.remainder(whole, quotient);
  }
  const auto whole = static_cast<std::uint64_t>(index), quotient = size.quotient(whole);
  index = static_cast<std::int64_t>(quotient);
  return static_cast<std::int64_t>(size.remainder(whole, quotient));
}

/// What neighbouring elements of a row of the result, (width, channels), read of a row of the input: pieces of them are channels of one
/// place.
template <ResizeMode mode, int width, int piece, class C>
struct ResizeColumns {
  using Taps = ResizeTaps<mode, C>;
  static constexpr int pieces = width / piece, taps = Taps::count();

  int elements[pieces][taps];  ///< less one for each place that lies between
  C weights[pieces][taps];

  __device__ ResizeColumns(const ResizeAxis& axis, int place, int channel, int channels) {
    Taps here(axis, place), next = here;
    if (pieces > 1) next = Taps(axis, place + 1);
    int passed = 0, left = channels - channel;
#pragma unroll
    for (int i = 0; i < pieces; ++i, left -= piece) {
      if (i > 0 && left == 0) {
        here = next;
        left = channels;
        ++passed;
        if (channels < width) next = Taps(axis, place + passed + 1);
      }
#pragma unroll
      for (int t = 0; t < taps; ++t) {
        elements[i][t] = here.element(t) - passed;
        weights[i][t] = here.weight(t);
      }
    }
  }

  /// Adds what they are made of, from where their first channel begins in a row. Elements of weight 0 do not count, whatever they are.
  template <class T>
  __device__ void add(cuda::Vector<C, width>& sums, C of_row, const T* row, int channels) const {
#pragma unroll
    for (int i = 0; i < pieces; ++i) {
#pragma unroll
      for (int t = 0; t < taps; ++t) {
        const C weight = of_row * weights[i][t];
        const auto words = cuda::VectorWords<T, piece>::load(row + i * piece + std::int64_t{elements[i][t]} * channels, true);
#pragma unroll
        for (int k = 0; k < piece; ++k) {
          C& sum = sums[i * piece + k];
          sum = weight != 0 ? sum + weight * convert<C>(words[k]) : sum;
        }
      }
    }
  }
};

/// How rows of a result are shared out among threads: (samples, depth, groups of rows, vectors of a row).
struct ResizeGroups {
  cuda::Divisor depth, groups, lanes, channels;  ///< lanes: the vectors, made up to whole warps
  int group_rows;
  int row_vectors;
  bool small;  ///< all that is divided is below 2^31
};

/// A thread takes `width` neighbouring elements of a row, and of up to 32 rows one below the other; it keeps what a row of the input gives
/// along the width while rows of the result are made of it. A warp has the same rows, each of whose lanes finds what one of them reads.
/// Reads through the caches, writes each vector once. Deterministic.
template <ResizeMode mode, int width, int piece, class T>
__global__ void __launch_bounds__(cuda::default_threads, mode == ResizeMode::cubic ? 1 : 3)
    resize_rows(T* output, const T* __restrict__ input, const __grid_constant__ ResizeAxes axes, const __grid_constant__ ResizeGroups plan,
                std::int64_t count) {
  using C = Computed<T>;
  using Taps = ResizeTaps<mode, C>;
  constexpr int taps = Taps::count();
  const auto lane = static_cast<int>(threadIdx.x % cuda::warp_size), channels = plan.channels.value<int>();
  const std::int64_t given_row = std::int64_t{axes.width.from} * channels, row = std::int64_t{plan.row_vectors} * width;
  for (std::int64_t item = cuda::first_item(); item < count; item += cuda::item_step()) {
    std::int64_t sample = item;
    const std::int64_t vector = split_off(sample, plan.lanes, plan.small);
    const int first_row = static_cast<int>(split_off(sample, plan.groups, plan.small)) * plan.group_rows;
    const int depth = static_cast<int>(split_off(sample, plan.depth, plan.small));
    const Taps slices(axes.depth, depth), own_row(axes.height, first_row + lane);
    std::int64_t place = vector * width;
    const auto channel = static_cast<int>(split_off(place, plan.channels, plan.small));
    const ResizeColumns<mode, width, piece, C> columns(axes.width, static_cast<int>(place), channel, channels);
    const T* const image = input + sample * axes.depth.from * axes.height.from * given_row + channel;
    T* to = output + ((sample * axes.depth.to + depth) * axes.height.to + first_row) * row + vector * width;
    cuda::Vector<C, width> lines[taps];
    int held[taps];
#pragma unroll
    for (int j = 0; j < taps; ++j) held[j] = -1;
    const int rows = min(plan.group_rows, axes.height.to - first_row);
#pragma unroll 1
    for (int h = 0; h < rows; ++h, to += row) {
      cuda::Vector<C, width> sums = {};
#pragma unroll
      for (int j = 0; j < taps; ++j) {
        const int element = __shfl_sync(~0u, own_row.element(j), h);
        const C weight = __shfl_sync(~0u, own_row.weight(j), h);
        if (weight == 0 || vector >= plan.row_vectors) continue;
        if (j + 1 < taps && held[j] != element && held[(j + 1) % taps] == element) {
          lines[j] = lines[(j + 1) % taps];
        } else if (held[j] != element) {
          lines[j] = {};
#pragma unroll 1
          for (int d = 0; d < taps; ++d) {
            const C of_slice = slices.weight(d);
            if (of_slice == 0) continue;
            const std::int64_t line = std::int64_t{slices.element(d)} * axes.height.from + element;
            columns.add(lines[j], of_slice, image + line * given_row, channels);
          }
        }
        held[j] = element;
#pragma unroll
        for (int k = 0; k < width; ++k) sums[k] += weight * lines[j][k];
      }
      if (vector >= plan.row_vectors) continue;
      cuda::store_elements(to, converted<T, width>(sums), true);
    }
  }
}

/// How places of a gradient are shared out: (samples, depth, height, width, vectors of channels).
struct ResizedPlaces {
  cuda::Divisor depth, height, width, lanes;
  int vectors;  ///< of a place: a thread takes every lanes-th one
  bool small;
};

/// A thread takes some vectors of channels at one place, which adds up those of the gradient that were made of it. Elements of weight 0 do
/// not count, whatever they are. Reads an element as often as it counts, mostly from the caches; writes each once. Deterministic.
template <ResizeMode mode, int width, class T>
__global__ void __launch_bounds__(cuda::default_threads)
    resize_gradient(T* output, const T* __restrict__ gradient, const __grid_constant__ ResizeAxes axes,
                    const __grid_constant__ ResizedPlaces places, std::int64_t count) {
  using C = Computed<T>;
  using Readers = ResizeReaders<mode, C>;
  const std::int64_t channels = std::int64_t{places.vectors} * width;
  for (std::int64_t item = cuda::first_item(); item < count; item += cuda::item_step()) {
    std::int64_t sample = item;
    const auto lane = static_cast<int>(split_off(sample, places.lanes, places.small));
    const std::int64_t place = sample;
    const Readers columns(axes.width, static_cast<int>(split_off(sample, places.width, places.small)));
    const Readers rows(axes.height, static_cast<int>(split_off(sample, places.height, places.small)));
    const Readers slices(axes.depth, static_cast<int>(split_off(sample, places.depth, places.small)));
#pragma unroll 1
    for (int vector = lane; vector < places.vectors; vector += places.lanes.value<int>()) {
      const std::int64_t channel = std::int64_t{vector} * width;
      cuda::Vector<C, width> sums = {};
      for (int d = 0; d < slices.count(); ++d) {
        if (slices.weight(d) == 0) continue;
        const std::int64_t slice = sample * axes.depth.to + slices.element(d);
        for (int h = 0; h < rows.count(); ++h) {
          const C of_row = slices.weight(d) * rows.weight(h);
          if (of_row == 0) continue;
          const std::int64_t row = (slice * axes.height.to + rows.element(h)) * axes.width.to;
          const auto add = [&](int w, C of_column) {
            const C weight = of_row * of_column;
            const auto words = cuda::VectorWords<T, width>::load(gradient + (row + columns.element(w)) * channels + channel, true);
#pragma unroll
            for (int k = 0; k < width; ++k) sums[k] = weight != 0 ? sums[k] + weight * convert<C>(words[k]) : sums[k];
          };
#pragma unroll 4
          for (int w = 0; w < min(columns.count(), Readers::kept); ++w) add(w, columns.kept_weight(w));
#pragma unroll 1
          for (int w = Readers::kept; w < columns.count(); ++w) add(w, columns.weight(w));
        }
      }
      cuda::store_elements(output + place * channels + channel, converted<T, width>(sums), true);
    }
  }
}

bool lie_channels_last(const KernelContext& call) {
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  if (input.is_contiguous() && output.is_contiguous()) return false;
  FRIT_CHECK(input.is_contiguous(Layout::channels_last) && output.is_contiguous(Layout::channels_last));
  return true;
}

ResizedImages images_of(const KernelContext& call) {
  const auto& attributes = call.as<ResizeAttributes>();
  const std::int64_t n = call.inputs[0].dim(0), channels = call.inputs[0].dim(1);
  return lie_channels_last(call) ? ResizedImages(attributes, n, channels) : ResizedImages(attributes, n * channels, 1);
}

/// Neighbouring elements that a thread writes at once and reads one by one: as many as registers hold.
template <class T>
inline constexpr int row_width = std::min(4, cuda::vector_width<T>);

/// Whether elements are read and written in vectors, where memory is aligned.
struct ResizeWidths {
  bool reads_vectors, writes_vectors;

  ResizeWidths(const ResizedImages& images, const std::string& mode, bool backward, DType dtype) {
    const auto size = static_cast<std::int64_t>(size_of(dtype)), row = std::int64_t{images.axes.width.to} * images.channels;
    reads_vectors = images.channels * size % 16 == 0;
    // Of cubic ones registers would hold too many.
    const bool fits = mode != "cubic" && row % std::min<std::int64_t>(4, 16 / size) == 0;
    writes_vectors = reads_vectors || (!backward && fits);
  }
};

/// Threads that keep a GPU busy, however much each has to do.
std::int64_t enough_threads(const KernelContext& call) {
  return std::int64_t{4096} * cuda::properties(call.outputs[0].device().index).multiprocessors;
}

template <ResizeMode mode, int width, int piece, class T>
void launch_rows(const KernelContext& call, const ResizedImages& images) {
  const ResizeAxes& axes = images.axes;
  const std::int64_t row = std::int64_t{axes.width.to} * images.channels, vectors = row / width;
  const std::int64_t lanes = (vectors + cuda::warp_size - 1) / cuda::warp_size * cuda::warp_size;
  const std::int64_t planes = images.samples * axes.depth.to, most = planes * axes.height.to * lanes / enough_threads(call);
  const std::int64_t group_rows = std::clamp<std::int64_t>(most, 1, cuda::warp_size);
  const std::int64_t groups = (axes.height.to + group_rows - 1) / group_rows, count = planes * groups * lanes;
  FRIT_CHECK(vectors <= INT32_MAX);
  const ResizeGroups plan{cuda::Divisor(axes.depth.to),
                          cuda::Divisor(groups),
                          cuda::Divisor(lanes),
                          cuda::Divisor(images.channels),
                          static_cast<int>(group_rows),
                          static_cast<int>(vectors),
                          std::max(count, lanes * width) <= INT32_MAX};
  cuda::launch(resize_rows<mode, width, piece, T>, cuda::loop_shape(count), call.stream, call.outputs[0].data<T>(),
               call.inputs[0].data<T>(), axes, plan, count);
}

template <ResizeMode mode, int width, class T>
void launch_gradient(const KernelContext& call, const ResizedImages& images) {
  const ResizeAxes& axes = images.axes;
  const int vectors = images.channels / width;
  const std::int64_t all_places = images.samples * axes.depth.from * axes.height.from * axes.width.from;
  const std::int64_t turns = std::clamp<std::int64_t>(2 * all_places * vectors / enough_threads(call), 1, vectors);
  const std::int64_t lanes = (vectors + turns - 1) / turns, count = all_places * lanes;
  const ResizedPlaces places{cuda::Divisor(axes.depth.from),
                             cuda::Divisor(axes.height.from),
                             cuda::Divisor(axes.width.from),
                             cuda::Divisor(lanes),
                             vectors,
                             count <= INT32_MAX};
  cuda::launch(resize_gradient<mode, width, T>, cuda::loop_shape(count), call.stream, call.outputs[0].data<T>(), call.inputs[0].data<T>(),
               axes, places, count);
}

template <bool backward>
void run(const KernelContext& call) {
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  if (output.elements() == 0) return;
  const ResizedImages images = images_of(call);
  const ResizeWidths widths(images, call.as<ResizeAttributes>().mode, backward, input.dtype());
  const bool writes = widths.writes_vectors && cuda::aligned_for_vectors(output.raw());
  const bool reads = widths.reads_vectors && writes && cuda::aligned_for_vectors(input.raw());
  dispatch_floating_and_halves(input.dtype(), [&]<class T>() {
    constexpr int vector = cuda::vector_width<T>;
    dispatch_mode(call.as<ResizeAttributes>().mode, [&]<ResizeMode mode>() {
      if constexpr (backward) {
        reads ? launch_gradient<mode, vector, T>(call, images) : launch_gradient<mode, 1, T>(call, images);
      } else if (reads) {
        launch_rows<mode, vector, vector, T>(call, images);
      } else if (writes) {
        launch_rows<mode, mode == ResizeMode::cubic ? 1 : row_width<T>, 1, T>(call, images);
      } else {
        launch_rows<mode, 1, 1, T>(call, images);
      }
    });
  });
}

template <bool backward>
std::string describe(const KernelContext& call) {
  const ResizeWidths widths(images_of(call), call.as<ResizeAttributes>().mode, backward, call.inputs[0].dtype());
  if (widths.reads_vectors) return "read and written in vectors";
  return widths.writes_vectors ? "written in vectors" : "one by one, as nothing fills vectors";
}

template <bool backward>
Kernel kernel() {
  return {.run = run<backward>,
          .halves = true,
          .any_layout_inputs = {0},
          .any_layout_outputs = {0},
          .one_layout = true,
          .prefers_channels_last = true,
          .describe = describe<backward>};
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(resize) {
  registry.add_cuda("resize", kernel<false>());
  registry.add_cuda("resize_backward", kernel<true>());
}
