// Convolution, its data gradient and its weight gradient by their definitions. As on the CPU, what lies outside of an image is a zero that
// is multiplied like a number.

#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/reduce.cuh"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/elementwise/pointwise.cuh"

namespace frit::ops {
namespace {

/// A long sum in three levels, so that a float keeps its digits.
template <class T>
class LongSum {
 public:
  __device__ void add(T value) {
    part_ += value;
    if (++count_ < 64) return;
    total_ += part_;
    part_ = 0;
    count_ = 0;
  }
  __device__ T value() const { return total_ + part_; }

 private:
  T total_ = 0, part_ = 0;
  int count_ = 0;
};

/// The elements (N, C, D, H, W) of an image tensor and where they lie.
struct Image {
  std::int64_t channels;
  ImageAxes size, strides;
  std::int64_t batch_stride, channel_stride;
  bool channels_last;

  Image(const Tensor& tensor, const ImageAxes& image_size)
      : channels(tensor.shape()[1]), size(image_size), channels_last(!tensor.is_contiguous()) {
    batch_stride = channels * product(size);
    channel_stride = channels_last ? 1 : product(size);
    const std::int64_t step = channels_last ? channels : 1;
    strides = {size[1] * size[2] * step, size[2] * step, step};
  }

  __device__ std::int64_t offset(std::int64_t sample, std::int64_t channel) const {
    return sample * batch_stride + channel * channel_stride;
  }
  __device__ bool contains(std::int64_t position, int axis) const { return position >= 0 && position < size[axis]; }
};

struct Place {
  std::int64_t sample, channel, position[3];
};

__device__ std::int64_t take_remainder(std::int64_t& rest, std::int64_t size) {
  const std::int64_t quotient = rest / size, remainder = rest - quotient * size;
  rest = quotient;
  return remainder;
}

/// Element i in the order of the image's memory.
__device__ Place place_of(const Image& image, std::int64_t i) {
  Place place;
  if (image.channels_last) place.channel = take_remainder(i, image.channels);
  for (int axis = 2; axis >= 0; --axis) place.position[axis] = take_remainder(i, image.size[axis]);
  if (!image.channels_last) place.channel = take_remainder(i, image.channels);
  place.sample = i;
  return place;
}

/// Where tap t of the kernel at an output's position reads, or which output's position it takes a place of the input to.
struct Forward {
  __device__ static bool source(const ConvolutionGeometry& g, int axis, std::int64_t position, std::int64_t t, std::int64_t& at) {
    at = position * g.stride[axis] - g.padding[axis] + t * g.dilation[axis];
    return true;
  }
};
struct Backward {
  /// False if the stride skips it.
  __device__ static bool source(const ConvolutionGeometry& g, int axis, std::int64_t position, std::int64_t t, std::int64_t& at) {
    const std::int64_t distance = position + g.padding[axis] - t * g.dilation[axis];
    at = distance / g.stride[axis];
    return at * g.stride[axis] == distance;
  }
};

/// The sum over one channel of the source, whose first element `source` is, of its products with one channel of the weight.
template <class Direction, class Stored>
__device__ void add_channel(LongSum<Computed<Stored>>& sum, const ConvolutionGeometry& g, const Image& image, const Place& place,
                            const Stored* source, const Stored* weight, std::int64_t tap_step) {
  using T = Computed<Stored>;
  std::int64_t d, h, w;
  for (std::int64_t a = 0; a < g.kernel[0]; ++a) {
    if (!Direction::source(g, 0, place.position[0], a, d)) continue;
    for (std::int64_t b = 0; b < g.kernel[1]; ++b) {
      if (!Direction::source(g, 1, place.position[1], b, h)) continue;
      const Stored* const taps = weight + (a * g.kernel[1] + b) * g.kernel[2] * tap_step;
      const Stored* const row = source + d * image.strides[0] + h * image.strides[1];
      const bool row_inside = image.contains(d, 0) && image.contains(h, 1);
      for (std::int64_t c = 0; c < g.kernel[2]; ++c) {
        if (!Direction::source(g, 2, place.position[2], c, w)) continue;
        const T value = row_inside && image.contains(w, 2) ? convert<T>(row[w * image.strides[2]]) : T(0);
        sum.add(value * convert<T>(taps[c * tap_step]));
      }
    }
  }
}

/// One thread an element of the result, in the order of its memory: the output from the input, or the input from the output. Every
/// thread reads all channels of its group at its patch, and the group's weights. Deterministic.
template <bool backward, class Stored>
__global__ void image_kernel(Stored* result, const Stored* source, const Stored* weight, const Stored* bias,
                             const __grid_constant__ ConvolutionGeometry g, const __grid_constant__ Image to,
                             const __grid_constant__ Image from, WeightSteps steps, std::int64_t count) {
  using T = Computed<Stored>;
  const std::int64_t rows = backward ? g.in_channels : g.out_channels, depth = backward ? g.out_channels : g.in_channels;
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const Place place = place_of(to, i);
    const std::int64_t group = place.channel / rows, row = place.channel - group * rows;
    LongSum<T> sum;
    for (std::int64_t k = 0; k < depth; ++k) {
      // (K, C / groups, taps), where K is the output's channels
      const std::int64_t taps =
          backward ? (group * depth + k) * steps.row + row * steps.channel : place.channel * steps.row + k * steps.channel;
      add_channel<std::conditional_t<backward, Backward, Forward>>(
          sum, g, from, place, source + from.offset(place.sample, group * depth + k), weight + taps, steps.tap);
    }
    result[i] = convert<Stored>(sum.value() + (bias ? convert<T>(bias[place.channel]) : T(0)));
  }
}

/// One block an element of the weight (K, C / groups, taps): its threads share the output's positions. Each reads one channel of input and
/// output. Deterministic.
template <class Stored>
__global__ void weight_kernel(Stored* weight, const Stored* output, const Stored* input, const __grid_constant__ ConvolutionGeometry g,
                              const __grid_constant__ Image out, const __grid_constant__ Image in, WeightSteps steps, std::int64_t count) {
  using T = Computed<Stored>;
  __shared__ T shared[cuda::warp_size];
  const std::int64_t positions = g.batch * out.size[0] * out.size[1] * out.size[2];
  for (std::int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    std::int64_t rest = i, tap[3];
    for (int axis = 2; axis >= 0; --axis) tap[axis] = take_remainder(rest, g.kernel[axis]);
    const std::int64_t channel = take_remainder(rest, g.in_channels), row = rest;
    const std::int64_t in_channel = row / g.out_channels * g.in_channels + channel;
    LongSum<T> sum;
    for (std::int64_t j = threadIdx.x; j < positions; j += blockDim.x) {
      std::int64_t sample = j, to = 0, from = 0;
      bool inside = true;
      for (int axis = 2; axis >= 0; --axis) {
        const std::int64_t position = take_remainder(sample, out.size[axis]);
        std::int64_t at;
        Forward::source(g, axis, position, tap[axis], at);
        inside = inside && in.contains(at, axis);
        to += position * out.strides[axis];
        from += at * in.strides[axis];
      }
      const T value = inside ? convert<T>(input[in.offset(sample, in_channel) + from]) : T(0);
      sum.add(value * convert<T>(output[out.offset(sample, row) + to]));
    }
    const T total = cuda::block_reduce(sum.value(), shared);
    const std::int64_t number = (tap[0] * g.kernel[1] + tap[1]) * g.kernel[2] + tap[2];
    if (threadIdx.x == 0) weight[row * steps.row + channel * steps.channel + number * steps.tap] = convert<Stored>(total);
  }
}

template <class T>
void run_direct(cudnn::ConvolutionKind kind, const ConvolutionGeometry& g, const cudnn::ConvolutionOperands& operands,
                cudaStream_t stream) {
  const Image in(operands.input, g.input), out(operands.output, g.output);
  T *const input = operands.input.data<T>(), *const weight = operands.weight.data<T>(), *const output = operands.output.data<T>();
  const T* const bias = operands.bias.defined() ? operands.bias.data<T>() : nullptr;
  const WeightSteps steps(operands.weight);
  const std::int64_t count = operands.result(kind).elements();
  switch (kind) {
    case cudnn::ConvolutionKind::forward:
      return cuda::launch(image_kernel<false, T>, cuda::loop_shape(count), stream, output, input, weight, bias, g, out, in, steps, count);
    case cudnn::ConvolutionKind::data_gradient:
      return cuda::launch(image_kernel<true, T>, cuda::loop_shape(count), stream, input, output, weight, bias, g, in, out, steps, count);
    case cudnn::ConvolutionKind::weight_gradient: {
      const cuda::LaunchShape shape = cuda::loop_shape(count * cuda::default_threads);
      return cuda::launch(weight_kernel<T>, shape, stream, weight, output, input, g, out, in, steps, count);
    }
  }
}

}  // namespace

void direct_convolution(cudnn::ConvolutionKind kind, const ConvolutionGeometry& g, const cudnn::ConvolutionOperands& operands,
                        CUstream_st* stream) {
  dispatch_floating_and_halves(operands.weight.dtype(), [&]<class T>() { run_direct<T>(kind, g, operands, stream); });
}

}  // namespace frit::ops
