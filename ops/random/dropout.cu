// Dropout and its gradient. The mask is the CPU's, element for element.

#include "frit/ops/elementwise/pointwise.cuh"
#include "frit/ops/random/dropout_mask.h"

namespace frit::ops {
namespace {

constexpr int quad = 4;

/// A thread takes the four neighbouring elements of one Philox call at a time. Reads the input, writes the output, which may lie on the
/// input, and the mask; either may be missing. Deterministic: `counter` is not changed while the kernel runs.
template <class T>
__global__ void dropout_kernel(T* output, std::uint8_t* mask, const T* input, const std::int64_t* counter, DropoutMask dropout,
                               Drop<Computed<T>> function, std::int64_t count, bool vector) {
  dropout.counter = static_cast<std::uint64_t>(*counter);
  for (std::int64_t i = cuda::first_item(); i * quad < count; i += cuda::item_step()) {
    const std::int64_t first = i * quad, rest = count - first;
    const std::array<std::uint8_t, quad> kept = dropout.quad(static_cast<std::uint64_t>(i));
    if (mask != nullptr)
      elementwise::store(mask + first, cuda::Vector<std::uint8_t, quad>{kept[0], kept[1], kept[2], kept[3]}, rest, vector);
    if (output == nullptr) continue;
    auto elements = elementwise::load<quad>(input + first, rest, vector);
#pragma unroll
    for (int v = 0; v < quad; ++v) elements[v] = convert<T>(function(elementwise::computed(elements[v]), kept[v]));
    elementwise::store(output + first, elements, rest, vector);
  }
}

/// Where channels are innermost, a thread takes one channel of the next `pixels`, for which there is one Philox call, and neighbouring
/// threads neighbouring channels. Otherwise as above.
template <class T, int pixels, class Integer>
__global__ void dropout_of_channels(T* output, std::uint8_t* mask, const T* input, const std::int64_t* counter, DropoutMask dropout,
                                    Drop<Computed<T>> function, Integer items, Integer channels, Integer image_pixels) {
  dropout.counter = static_cast<std::uint64_t>(*counter);
  for (std::int64_t i = cuda::first_item(); i < static_cast<std::int64_t>(items); i += cuda::item_step()) {
    const Integer item = static_cast<Integer>(i), channel = item % channels, pixel = item / channels * pixels;  // of the batch
    const Integer image = pixel / image_pixels, element = (image * channels + channel) * image_pixels + pixel % image_pixels;
    const std::array<std::uint8_t, quad> kept = dropout.quad(static_cast<std::uint64_t>(element) / quad);
    const Integer first = pixel * channels + channel;
    T elements[pixels];
#pragma unroll
    for (int k = 0; k < pixels; ++k) {
      if (output != nullptr) elements[k] = input[first + k * channels];
    }
#pragma unroll
    for (int k = 0; k < pixels; ++k) {
      const std::uint8_t keeps = pixels == quad ? kept[k] : kept[element % quad];
      if (mask != nullptr) mask[first + k * channels] = keeps;
      if (output != nullptr) output[first + k * channels] = convert<T>(function(elementwise::computed(elements[k]), keeps));
    }
  }
}

/// One thread.
__global__ void advance_counter(std::int64_t* counter) { ++*counter; }

void run_cuda_dropout(const KernelContext& call) {
  const auto& attributes = call.as<DropoutAttributes>();
  const Tensor &input = call.inputs[0], &counter = call.inputs[1], &output = call.outputs[0], &mask = call.outputs[1];
  const std::int64_t count = input.elements();
  const DropoutMask dropout(static_cast<std::uint64_t>(attributes.seed), 0, attributes.probability);
  bool vector = elementwise::fits_vectors(input, quad);
  for (const Tensor& result : {output, mask}) vector = vector && (!result.defined() || elementwise::fits_vectors(result, quad));
  if (count > 0) {
    dispatch_floating_and_halves(input.dtype(), [&]<class T>() {
      const Drop<Computed<T>> function({attributes.probability});
      if (input.is_contiguous()) {
        return cuda::launch(dropout_kernel<T>, cuda::loop_shape((count + quad - 1) / quad), call.stream, data_or_null<T>(output),
                            data_or_null<std::uint8_t>(mask), input.data<T>(), counter.data<std::int64_t>(), dropout, function, count,
                            vector);
      }
      const std::int64_t channels = input.dim(1), image_pixels = count / input.dim(0) / channels;
      const auto launch = [&]<int pixels, class Integer>() {
        const std::int64_t items = count / pixels;
        cuda::launch(dropout_of_channels<T, pixels, Integer>, cuda::loop_shape(items), call.stream, data_or_null<T>(output),
                     data_or_null<std::uint8_t>(mask), input.data<T>(), counter.data<std::int64_t>(), dropout, function,
                     static_cast<Integer>(items), static_cast<Integer>(channels), static_cast<Integer>(image_pixels));
      };
      const auto launch_counted = [&]<class Integer>() {
        image_pixels % quad == 0 ? launch.template operator()<quad, Integer>() : launch.template operator()<1, Integer>();
      };
      count <= INT32_MAX ? launch_counted.template operator()<std::uint32_t>() : launch_counted.template operator()<std::uint64_t>();
    });
  }
  cuda::launch(advance_counter, {.grid = 1, .block = 1}, call.stream, counter.data<std::int64_t>());
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(dropout) {
  registry.add_cuda("dropout",
                    {.run = run_cuda_dropout, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0, 1}, .one_layout = true});
  add_cuda_functions(registry, random_functions);
}
