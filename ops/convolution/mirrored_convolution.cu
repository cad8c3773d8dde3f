// Convolutions of stride 1 in the other direction, and the weights for these.

#include <algorithm>
#include <utility>

#include "frit/core/cuda/launch.cuh"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/mirrored_convolution.h"
#include "frit/ops/cuda/dispatch.cuh"

namespace frit::ops {
namespace {

constexpr int side = 32, lines = 8;

/// One block 32 x 32 channels of a tap, which it transposes in shared memory; further taps in turn.
template <class T>
__global__ void __launch_bounds__(side* lines) mirror(T* to /* (C, K, taps) */, const T* from /* (K, C, taps) */, int out_channels,
                                                      int in_channels, std::int64_t taps, WeightSteps to_steps, WeightSteps from_steps) {
  __shared__ T tile[side][side + 1];
  const int columns = (in_channels + side - 1) / side, x = static_cast<int>(threadIdx.x) % side, y = static_cast<int>(threadIdx.x) / side;
  const int k = static_cast<int>(blockIdx.x) / columns * side, c = static_cast<int>(blockIdx.x) % columns * side;
  for (std::int64_t tap = blockIdx.y; tap < taps; tap += gridDim.y) {
    for (int i = y; i < side; i += lines) {
      if (k + i < out_channels && c + x < in_channels) {
        tile[i][x] = from[(k + i) * from_steps.row + (c + x) * from_steps.channel + tap * from_steps.tap];
      }
    }
    __syncthreads();
    for (int i = y; i < side; i += lines) {
      if (c + i < in_channels && k + x < out_channels) {
        to[(c + i) * to_steps.row + (k + x) * to_steps.channel + (taps - 1 - tap) * to_steps.tap] = tile[x][i];
      }
    }
    __syncthreads();
  }
}

}  // namespace

bool has_mirror(const ConvolutionCall& call) {
  const ConvolutionGeometry& g = call.geometry;
  bool has = call.kind != cudnn::ConvolutionKind::weight_gradient && g.groups == 1;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t reach = g.dilation[i] * (g.kernel[i] - 1);
    // A transposed convolution's output padding may be more than a stride of 1 leaves.
    has = has && g.stride[i] == 1 && g.padding[i] <= reach && g.output[i] == g.input[i] + 2 * g.padding[i] - reach;
  }
  return has;
}

ConvolutionCall mirrored(const ConvolutionCall& call, const Tensor& weight) {
  ConvolutionCall result = call;
  const bool forward = call.kind == cudnn::ConvolutionKind::forward;
  result.kind = forward ? cudnn::ConvolutionKind::data_gradient : cudnn::ConvolutionKind::forward;
  ConvolutionGeometry& g = result.geometry;
  std::swap(g.in_channels, g.out_channels);
  std::swap(g.input, g.output);
  for (std::size_t i = 0; i < 3; ++i) g.padding[i] = g.dilation[i] * (g.kernel[i] - 1) - g.padding[i];
  std::swap(result.operands.input, result.operands.output);
  result.operands.weight = weight;
  if (call.finish) {
    result.finish = [finish = call.finish](cudnn::ConvolutionOperands operands, CUstream_st* stream) {
      std::swap(operands.input, operands.output);
      finish(operands, stream);
    };
  }
  return result;
}

void mirror_weight(const Tensor& to, const Tensor& from, CUstream_st* stream) {
  constexpr std::int64_t most_rows = 65535;
  const std::int64_t out_channels = from.dim(0), in_channels = from.dim(1), taps = from.elements() / (out_channels * in_channels);
  const auto parts = [](std::int64_t channels) { return (channels + side - 1) / side; };
  const dim3 grid(static_cast<unsigned>(parts(out_channels) * parts(in_channels)), static_cast<unsigned>(std::min(taps, most_rows)));
  dispatch_floating_and_halves(from.dtype(), [&]<class T>() {
    cuda::launch(mirror<T>, {grid, dim3(side * lines)}, stream, to.data<T>(), from.data<T>(), static_cast<int>(out_channels),
                 static_cast<int>(in_channels), taps, WeightSteps(to), WeightSteps(from));
  });
}

}  // namespace frit::ops
