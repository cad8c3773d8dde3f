// The taps of a cell as channels, on CUDA devices.

#include "frit/ops/convolution/subpixel_cuda.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

struct Packing {
  subpixel::Elements output;
  subpixel::Steps input;
  subpixel::Axes shift, image;  ///< image: of pack_taps's input, or of its output for the gradient
  subpixel::Sizes taps;
  cuda::Divisor widths;           ///< of a tap
  int in_channels, tap_channels;  ///< tap_channels: with those that are 0
  bool ones;
};

/// A thread `width` channels of one tap of the output, which it writes at once; neighbours write neighbours. A cell's inputs are read again
/// for each cell that has them as a tap, from the cache. Deterministic.
template <class T, int width, class Integer>
__global__ void gather_taps(T* output, const T* input, const __grid_constant__ Packing packing, std::int64_t items) {
  for (std::int64_t item = cuda::first_item(); item < items; item += cuda::item_step()) {
    Integer rest = static_cast<Integer>(item), index[3], tap[3];
    Integer row = packing.output.find(rest, index);
    const int first = static_cast<int>(subpixel::split(row, packing.widths)) * width;
    const bool tap_zero = row == 0;
    packing.taps.split(row, tap);
    std::int64_t offset = rest * packing.input.sample + first * packing.input.channel;
    bool inside = true;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      const int place = static_cast<int>(index[axis]) + packing.shift[axis] - static_cast<int>(tap[axis]);
      inside = inside && place >= 0 && place < packing.image[axis];
      offset += place * packing.input.image[axis];
    }
    cuda::Vector<T, width> elements;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const int channel = first + j;
      elements[j] = inside && channel < packing.in_channels ? input[offset + j * packing.input.channel] : T(0.0f);
      if (packing.ones && tap_zero && channel == packing.in_channels) elements[j] = T(1.0f);
    }
    reinterpret_cast<cuda::Vector<T, width>*>(output)[item] = elements;
  }
}

/// A thread an element of the input's gradient, the sum over the cells that have it as a tap. Deterministic.
template <class T, class Integer>
__global__ void add_taps(T* output, const T* gradient, const __grid_constant__ Packing packing, subpixel::Axes taps, std::int64_t items) {
  for (std::int64_t item = cuda::first_item(); item < items; item += cuda::item_step()) {
    Integer rest = static_cast<Integer>(item), index[3];
    std::int64_t channel = packing.output.find(rest, index);
    T sum = 0;
    for (int u0 = 0; u0 < taps[0]; ++u0) {
      for (int u1 = 0; u1 < taps[1]; ++u1) {
        for (int u2 = 0; u2 < taps[2]; ++u2, channel += packing.tap_channels) {
          const int tap[3] = {u0, u1, u2};
          std::int64_t offset = rest * packing.input.sample + channel * packing.input.channel;
          bool inside = true;
#pragma unroll
          for (int axis = 0; axis < 3; ++axis) {
            const int cell = static_cast<int>(index[axis]) - packing.shift[axis] + tap[axis];
            inside = inside && cell >= 0 && cell < packing.image[axis];
            offset += cell * packing.input.image[axis];
          }
          if (inside) sum += gradient[offset];
        }
      }
    }
    output[item] = sum;
  }
}

Packing packing_of(const Tensor& output, int width, const Tensor& input, const PackTapsAttributes& a, std::int64_t in_channels) {
  return {subpixel::Elements(output, width),
          subpixel::Steps(input),
          subpixel::Axes(a.shift, 0),
          subpixel::Axes(image_of(input.shape()), 1),
          subpixel::Sizes(a.taps),
          cuda::Divisor(std::max<std::int64_t>(1, a.channels / width)),
          static_cast<int>(in_channels),
          static_cast<int>(a.channels),
          a.ones};
}

void run_pack(const KernelContext& call) {
  const auto& a = call.as<PackTapsAttributes>();
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  if (output.elements() == 0) return;
  dispatch_floating_and_halves(output.dtype(), [&]<class T>() {
    const auto launch = [&]<int width>() {
      const std::int64_t items = output.elements() / width;
      subpixel::dispatch_count(items, [&]<class Integer>() {
        cuda::launch(gather_taps<T, width, Integer>, cuda::loop_shape(items), call.stream, output.data<T>(), input.data<T>(),
                     packing_of(output, width, input, a, input.dim(1)), items);
      });
    };
    constexpr int vector = std::min(4, cuda::vector_width<T>);
    if (!output.is_contiguous() && a.channels % vector == 0 && cuda::aligned_for_vectors(output.raw())) {
      launch.template operator()<vector>();
    } else {
      launch.template operator()<1>();
    }
  });
}

void run_backward(const KernelContext& call) {
  const auto& a = call.as<PackTapsBackwardAttributes>();
  const Tensor &gradient = call.inputs[0], &output = call.outputs[0];
  const std::int64_t items = output.elements();
  if (items == 0) return;
  dispatch_floating(output.dtype(), [&]<class T>() {
    subpixel::dispatch_count(items, [&]<class Integer>() {
      cuda::launch(add_taps<T, Integer>, cuda::loop_shape(items), call.stream, output.data<T>(), gradient.data<T>(),
                   packing_of(output, 1, gradient, a.pack, a.in_channels), subpixel::Axes(a.pack.taps, 1), items);
    });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(pack_taps) {
  registry.add_cuda("pack_taps", {.run = run_pack, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
  registry.add_cuda("pack_taps_backward", {.run = run_backward, .strided = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
}
