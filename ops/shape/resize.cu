// Images of other sizes, and their gradient.

#include "frit/core/cuda/divisor.cuh"
#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/shape/resize_axis.h"

namespace frit::ops {
namespace {

/// How the vectors of channels of a result lie: (samples, depth, height, width, vectors).
struct ResizedPlaces {
  cuda::Divisor depth, height, width, vectors;
  bool small;  ///< all together are below 2^31

  /// Takes the last axis off a row-major index.
  __device__ std::int64_t split_off(std::int64_t& index, const cuda::Divisor& size) const {
    if (small) {
      const auto whole = static_cast<std::uint32_t>(index), quotient = size.quotient(whole);
      index = quotient;
      return size.remainder(whole, quotient);
    }
    const auto whole = static_cast<std::uint64_t>(index), quotient = size.quotient(whole);
    index = static_cast<std::int64_t>(quotient);
    return static_cast<std::int64_t>(size.remainder(whole, quotient));
  }
};

/// One thread a vector of `width` channels at one place of the result, which adds up what that is made of: a few elements, or in backward
/// those of the gradient that were made of it. Planes of contiguous images are samples of one channel. Elements of weight 0 do not count,
/// whatever they are. Reads an element as often as it counts, mostly from the caches; writes each once. Deterministic.
template <ResizeMode mode, bool backward, int width, class T>
__global__ void __launch_bounds__(cuda::default_threads)
    resize_images(T* output, const T* __restrict__ input, const __grid_constant__ ResizeAxes axes,
                  const __grid_constant__ ResizedPlaces places, std::int64_t count) {
  using C = Computed<T>;
  using Reads = ResizeReads<mode, backward, C>;
  const auto given = [](const ResizeAxis& axis) { return static_cast<std::int64_t>(backward ? axis.to : axis.from); };
  const std::int64_t channels = places.vectors.value<std::int64_t>() * width;
  for (std::int64_t item = cuda::first_item(); item < count; item += cuda::item_step()) {
    std::int64_t sample = item;
    const std::int64_t channel = places.split_off(sample, places.vectors) * width;
    const Reads columns(axes.width, static_cast<int>(places.split_off(sample, places.width)));
    const Reads rows(axes.height, static_cast<int>(places.split_off(sample, places.height)));
    const Reads slices(axes.depth, static_cast<int>(places.split_off(sample, places.depth)));
    cuda::Vector<C, width> sums = {};
    for (int d = 0; d < slices.count(); ++d) {
      if (slices.weight(d) == 0) continue;
      const std::int64_t slice = sample * given(axes.depth) + slices.element(d);
      for (int h = 0; h < rows.count(); ++h) {
        const C of_row = slices.weight(d) * rows.weight(h);
        if (of_row == 0) continue;
        const std::int64_t row = (slice * given(axes.height) + rows.element(h)) * given(axes.width);
        for (int w = 0; w < columns.count(); ++w) {
          const C weight = of_row * columns.weight(w);
          const auto words = cuda::VectorWords<T, width>::load(input + (row + columns.element(w)) * channels + channel, true);
#pragma unroll
          for (int k = 0; k < width; ++k) sums[k] = weight != 0 ? sums[k] + weight * convert<C>(words[k]) : sums[k];
        }
      }
    }
    cuda::Vector<T, width> results;
#pragma unroll
    for (int k = 0; k < width; ++k) results[k] = convert<T>(sums[k]);
    cuda::store_elements(output + item * width, results, true);
  }
}

bool lie_channels_last(const KernelContext& call) {
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  if (input.is_contiguous() && output.is_contiguous()) return false;
  FRIT_CHECK(input.is_contiguous(Layout::channels_last) && output.is_contiguous(Layout::channels_last));
  return true;
}

/// Whether channels are read in vectors, if the memory is aligned.
bool in_vectors(const KernelContext& call) {
  return lie_channels_last(call) && call.inputs[0].dim(1) * size_of(call.inputs[0].dtype()) % 16 == 0;
}

template <bool backward>
void run(const KernelContext& call) {
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  if (output.elements() == 0) return;
  const auto& attributes = call.as<ResizeAttributes>();
  const ResizeAxes axes(attributes);
  const auto made = [](const ResizeAxis& axis) { return cuda::Divisor(backward ? axis.from : axis.to); };
  const std::int64_t channels = lie_channels_last(call) ? output.dim(1) : 1;
  const bool vectors = in_vectors(call) && cuda::aligned_for_vectors(input.raw()) && cuda::aligned_for_vectors(output.raw());
  dispatch_floating_and_halves(input.dtype(), [&]<class T>() {
    dispatch_mode(attributes.mode, [&]<ResizeMode mode>() {
      const auto launch = [&]<int width>() {
        const std::int64_t count = output.elements() / width;
        const cuda::Divisor all_vectors(channels / width);
        const ResizedPlaces places{made(axes.depth), made(axes.height), made(axes.width), all_vectors, count <= INT32_MAX};
        cuda::launch(resize_images<mode, backward, width, T>, cuda::loop_shape(count), call.stream, output.data<T>(), input.data<T>(), axes,
                     places, count);
      };
      vectors ? launch.template operator()<cuda::vector_width<T>>() : launch.template operator()<1>();
    });
  });
}

std::string describe(const KernelContext& call) {
  if (!lie_channels_last(call)) return "planes";
  return in_vectors(call) ? "channels in vectors" : "channels one by one, which fill no vectors";
}

template <bool backward>
Kernel kernel() {
  return {.run = run<backward>,
          .halves = true,
          .any_layout_inputs = {0},
          .any_layout_outputs = {0},
          .one_layout = true,
          .prefers_channels_last = true,
          .describe = describe};
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(resize) {
  registry.add_cuda("resize", kernel<false>());
  registry.add_cuda("resize_backward", kernel<true>());
}
