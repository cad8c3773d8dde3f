// The weight of a convolution whose input has taps as channels, on CUDA devices.

#include "frit/ops/convolution/lowerings/im2col_weight.h"
#include "frit/ops/convolution/lowerings/subpixel.cuh"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

struct WeightSizes {
  int in_channels, channels, im2col_channels, all_taps;
  subpixel::Axes taps, kernel, rest;  ///< rest: the kernel of the weight after im2col
  subpixel::Steps steps;              ///< of the input, which lies in any way
  bool channels_last;                 ///< the output

  WeightSizes(const Tensor& weight, const Tensor& im2col_weight, const Tensor& input, const Tensor& output, const Im2colWeightAttributes& a)
      : in_channels(static_cast<int>(weight.dim(1))),
        channels(static_cast<int>(a.channels)),
        im2col_channels(static_cast<int>(a.im2col_channels)),
        all_taps(static_cast<int>(product(a.taps))),
        taps(a.taps, 1),
        kernel(image_of(weight.shape()), 1),
        rest(image_of(im2col_weight.shape()), 1),
        steps(input),
        channels_last(!output.is_contiguous()) {}
};

struct WeightPlace {
  std::int64_t row;
  int channel, element[3];

  /// Element i in the order of the output's memory.
  __device__ WeightPlace(std::int64_t i, int channels, const subpixel::Axes& sizes, bool channels_last) {
    const auto take = [&](int size) {
      const auto index = static_cast<int>(i % size);
      i /= size;
      return index;
    };
    if (channels_last) channel = take(channels);
    for (int axis = 2; axis >= 0; --axis) element[axis] = take(sizes[axis]);
    if (!channels_last) channel = take(channels);
    row = i;
  }
};

/// A thread an element of the weight after im2col (K, im2col_channels, rest). Deterministic.
template <class T, class From>
__global__ void gather_weight(T* columns, const From* weight, const __grid_constant__ WeightSizes s, std::int64_t count) {
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const WeightPlace place(i, s.im2col_channels, s.rest, s.channels_last);
    const int channel = place.channel % s.channels;
    int tap = place.channel / s.channels;
    const bool inside = channel < s.in_channels && tap < s.all_taps;
    std::int64_t offset = place.row * s.steps.sample + channel * s.steps.channel;
    for (int axis = 2; axis >= 0; --axis) {
      // Either the axis has taps, and the place on it is 0, or there is one tap.
      offset += (s.taps[axis] - 1 - tap % s.taps[axis] + place.element[axis]) * s.steps.image[axis];
      tap /= s.taps[axis];
    }
    columns[i] = inside ? convert<T>(weight[offset]) : convert<T>(0.0f);
  }
}

/// A thread an element of the weight (K, C, kernel): each has one place in that after im2col. Deterministic.
template <class T, class From>
__global__ void scatter_weight(T* weight, const From* columns, const __grid_constant__ WeightSizes s, std::int64_t count) {
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const WeightPlace place(i, s.in_channels, s.kernel, s.channels_last);
    std::int64_t offset = place.row * s.steps.sample;
    int tap = 0;
    for (int axis = 0; axis < 3; ++axis) {
      const bool stays = s.taps[axis] == 1;
      tap = tap * s.taps[axis] + (stays ? 0 : s.taps[axis] - 1 - place.element[axis]);
      if (stays) offset += place.element[axis] * s.steps.image[axis];
    }
    weight[i] = convert<T>(columns[offset + (tap * s.channels + place.channel) * s.steps.channel]);
  }
}

void run(const KernelContext& call) {
  const Tensor &weight = call.inputs[0], &columns = call.outputs[0];
  if (columns.elements() == 0) return;
  const WeightSizes sizes(weight, columns, weight, columns, call.as<Im2colWeightAttributes>());
  dispatch_floating_and_halves(columns.dtype(), [&]<class T>() {
    dispatch_stored_as<T>(weight.dtype(), [&]<class From>() {
      cuda::launch(gather_weight<T, From>, cuda::loop_shape(columns.elements()), call.stream, columns.data<T>(), weight.data<From>(), sizes,
                   columns.elements());
    });
  });
}

void run_backward(const KernelContext& call) {
  const Tensor &columns = call.inputs[0], &weight = call.outputs[0];
  if (weight.elements() == 0) return;
  const WeightSizes sizes(weight, columns, columns, weight, call.as<Im2colWeightBackwardAttributes>());
  dispatch_floating_and_halves(weight.dtype(), [&]<class T>() {
    dispatch_stored_as<T>(columns.dtype(), [&]<class From>() {
      cuda::launch(scatter_weight<T, From>, cuda::loop_shape(weight.elements()), call.stream, weight.data<T>(), columns.data<From>(), sizes,
                   weight.elements());
    });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(im2col_weight) {
  registry.add_cuda("im2col_weight", {.run = run, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
  registry.add_cuda("im2col_weight_backward",
                    {.run = run_backward, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
}
