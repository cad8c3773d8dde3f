// What a plan of cuDNN that leaves the bias out needs after it.

#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/elementwise.cuh"
#include "frit/ops/libraries/cuda/channel_bias.h"

namespace frit::ops {
namespace {

template <class T>
struct Sum {
  __device__ T operator()(T image, T bias) const { return image + bias; }
};

}  // namespace

void add_channel_bias(const Tensor& image, const Tensor& bias, CUstream_st* stream) {
  Shape shape = Shape::filled(image.rank(), 1);
  shape[1] = image.dim(1);
  const Tensor operands[] = {image, bias.reshape(shape)};
  dispatch_floating_and_halves(image.dtype(), [&]<class T>() { map_elements<T, T, T>(stream, image, operands, Sum<Computed<T>>{}); });
}

}  // namespace frit::ops
