// The weight of a transposed convolution as a sub-pixel convolution, on CUDA devices.

#include "frit/ops/convolution/lowerings/subpixel.cuh"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

struct KernelPlaces {
  int in_channels, out_channels, channels;
  int taps;  ///< in all
  subpixel::Axes kernel, stride, axis_taps;

  KernelPlaces(std::int64_t weight_in, std::int64_t weight_out, const Dims& weight_kernel, const SubpixelWeightAttributes& a)
      : in_channels(static_cast<int>(weight_in)),
        out_channels(static_cast<int>(weight_out)),
        channels(static_cast<int>(a.channels)),
        taps(static_cast<int>(product(subpixel_taps(weight_kernel, a.stride)))),
        kernel(weight_kernel, 1),
        stride(a.stride, 1),
        axis_taps(subpixel_taps(weight_kernel, a.stride), 1) {}
};

/// A thread an element of the matrix: reads the weight, or the bias, or nothing, and writes once. Deterministic.
template <class T, class From>
__global__ void gather_matrix(T* matrix /* (block * K, taps * channels) */, const From* weight /* (C, K, kernel) */,
                              const T* bias /* (K) or null */, const float* wide_bias /* likewise */,
                              const __grid_constant__ KernelPlaces k, std::int64_t count) {
  const std::int64_t columns = static_cast<std::int64_t>(k.taps) * k.channels;
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const std::int64_t row = i / columns, column = i % columns, out = row % k.out_channels, in = column % k.channels;
    std::int64_t place = row / k.out_channels, tap = column / k.channels;
    std::int64_t element = 0, step = 1;
    bool inside = in < k.in_channels;
    if (tap == 0 && in == k.in_channels) {
      matrix[i] = bias != nullptr ? bias[out] : convert<T>(wide_bias != nullptr ? wide_bias[out] : 0.0f);
      continue;
    }
    for (int axis = 2; axis >= 0; --axis) {
      const std::int64_t index = tap % k.axis_taps[axis] * k.stride[axis] + place % k.stride[axis];
      inside = inside && index < k.kernel[axis];
      element += index * step;
      step *= k.kernel[axis];
      tap /= k.axis_taps[axis];
      place /= k.stride[axis];
    }
    matrix[i] = inside ? convert<T>(weight[(in * k.out_channels + out) * step + element]) : T(0.0f);
  }
}

/// A thread an element of the weight's gradient, read from its one place in the matrix, and after these a thread an element of the bias's,
/// a sum over the places in a block. Deterministic.
template <class T, class From>
__global__ void scatter_matrix(T* weight /* or null */, T* bias /* or null */, const From* matrix, const __grid_constant__ KernelPlaces k,
                               std::int64_t weights) {
  const std::int64_t columns = static_cast<std::int64_t>(k.taps) * k.channels;
  const int block = k.stride[0] * k.stride[1] * k.stride[2];
  for (std::int64_t i = cuda::first_item(); i < weights + k.out_channels; i += cuda::item_step()) {
    if (i >= weights) {
      if (bias == nullptr) continue;
      const std::int64_t out = i - weights;
      Computed<T> sum = 0;
      if (k.in_channels < k.channels) {
        for (int place = 0; place < block; ++place)
          sum += convert<Computed<T>>(matrix[(static_cast<std::int64_t>(place) * k.out_channels + out) * columns + k.in_channels]);
      }
      bias[out] = convert<T>(sum);
    } else if (weight != nullptr) {
      std::int64_t rest = i, place = 0, tap = 0, place_step = 1, tap_step = 1;
      for (int axis = 2; axis >= 0; --axis) {
        const std::int64_t index = rest % k.kernel[axis];
        place += index % k.stride[axis] * place_step;
        tap += index / k.stride[axis] * tap_step;
        rest /= k.kernel[axis];
        place_step *= k.stride[axis];
        tap_step *= k.axis_taps[axis];
      }
      const std::int64_t out = rest % k.out_channels, in = rest / k.out_channels;
      weight[i] = convert<T>(matrix[(place * k.out_channels + out) * columns + tap * k.channels + in]);
    }
  }
}

void run(const KernelContext& call) {
  const Tensor &weight = call.inputs[0], &output = call.outputs[0];
  if (output.elements() == 0) return;
  const KernelPlaces k(weight.dim(0), weight.dim(1), image_of(weight.shape()), call.as<SubpixelWeightAttributes>());
  dispatch_floating_and_halves(output.dtype(), [&]<class T>() {
    const Tensor bias = call.has(1) ? call.inputs[1] : Tensor();
    const bool wide = bias.defined() && bias.dtype() != output.dtype();
    dispatch_stored_as<T>(weight.dtype(), [&]<class From>() {
      cuda::launch(gather_matrix<T, From>, cuda::loop_shape(output.elements()), call.stream, output.data<T>(), weight.data<From>(),
                   bias.defined() && !wide ? bias.data<T>() : nullptr, wide ? bias.data<float>() : nullptr, k, output.elements());
    });
  });
}

void run_backward(const KernelContext& call) {
  const auto& a = call.as<SubpixelWeightBackwardAttributes>();
  const Tensor &matrix = call.inputs[0], &weight = call.outputs[0], &bias = call.outputs[1];
  const std::int64_t out_channels = matrix.dim(0) / product(a.stride);
  const std::int64_t weights = a.in_channels * out_channels * product(a.kernel);
  if (out_channels == 0) return;
  const DType dtype = a.dtype.value_or(matrix.dtype());
  dispatch_floating_and_halves(dtype, [&]<class T>() {
    dispatch_stored_as<T>(matrix.dtype(), [&]<class From>() {
      cuda::launch(scatter_matrix<T, From>, cuda::loop_shape(weights + out_channels), call.stream, data_or_null<T>(weight),
                   data_or_null<T>(bias), matrix.data<From>(), KernelPlaces(a.in_channels, out_channels, a.kernel, a), weights);
    });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(subpixel_weight) {
  registry.add_cuda("subpixel_weight", {.run = run, .halves = true});
  registry.add_cuda("subpixel_weight_backward", {.run = run_backward, .halves = true});
}
