// Weight gradients of convolutions as products of matrices on tensor cores, window of taps by window of taps, for more channels and larger
// images than a block can hold the whole gradient of (see tap_products).

#include "frit/core/cuda/device.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/convolution/weight_gradient/window_products.cuh"
#include "frit/ops/cuda/sum_partials.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"

namespace frit::ops {
namespace {

/// Where cuDNN 9's plans were slower on an H200. In three dimensions: in TF32 at 4 -> 32 and 32 -> 32 channels 3 to 4 times, at 64 -> 64
/// 1.5, at 128 -> 64 1.25; in halves at 32 -> 32 5 times, at 64 -> 32 1.6, with a stride of 2 at 32 -> 64 1.2, at 64 -> 64 0.8. In two: in
/// TF32 at 64 -> 64 1.1 times.
bool has_channels(const ConvolutionGeometry& g, DType dtype) {
  constexpr std::int64_t most = 64 * 128, most_halves = 32 * 64, of_flat = 64;
  const std::int64_t products = g.in_channels * g.out_channels;
  if (g.groups > 1) return are_small_groups(g);
  if (g.kernel[0] > 1) return products <= (dtype == DType::f32 ? most : most_halves);
  return dtype == DType::f32 && g.stride[2] == 1 && g.in_channels == of_flat && g.out_channels == of_flat;
}

/// Of small groups: cuDNN has kernels for those of 4, 8, ... channels, in halves faster ones from 8 on, by 15 to 40 %; in TF32 it takes 1.5
/// to 3 times as long as this, as measured on an H200.
bool pays_for_groups(const ConvolutionGeometry& g, DType dtype) {
  constexpr std::int64_t few_channels = 4;
  return dtype == DType::f32 || !has_library_kernel_for_groups(g) || std::min(g.in_channels, g.out_channels) <= few_channels;
}

/// Whether most of the work is of use, and blocks have enough of it for what they gain in two dimensions. Where it gains little, at many
/// channels, few empty taps outweigh that: in halves at 32 -> 64 channels with 5 x 5 x 5 taps.
bool pays(const TapWindows& windows, const ConvolutionGeometry& g, DType dtype) {
  constexpr double least_taps = 0.5, least_of_many = 0.75, least_of_deep = 0.5, least_of_flat = 0.95;
  constexpr int flat_block_tiles = 8;
  if (g.groups > 1) return pays_for_groups(g, dtype);
  const bool many = g.in_channels * g.out_channels > (dtype == DType::f32 ? 32 * 64 : 32 * 32);
  if (windows.used_taps() < (many ? least_of_many : least_taps)) return false;
  if (g.kernel[0] > 1) return windows.used_part(g.batch) >= least_of_deep;
  return windows.used_part(g.batch) >= least_of_flat && windows.tiles >= flat_block_tiles * windows.shares;
}

std::optional<TapWindows> windows_of(const ConvolutionCall& call) {
  const auto& [input, weight, output, bias, others] = call.operands;
  const bool fits = call.kind == cudnn::ConvolutionKind::weight_gradient && on_tensor_cores(weight.dtype()) &&
                    has_channels(call.geometry, weight.dtype()) && has_channel_vectors(input) && has_channel_vectors(output);
  if (!fits) return std::nullopt;
  auto windows = TapWindows::of(call.geometry, size_of(weight.dtype()), cuda::properties(weight.device().index));
  const std::int64_t in_pitch = input.pixel_pitch(), out_pitch = output.pixel_pitch();
  if (std::max(product(call.geometry.input) * in_pitch, product(call.geometry.output) * out_pitch) > INT32_MAX) return std::nullopt;
  if (windows) windows->in_pitch = static_cast<int>(in_pitch), windows->out_pitch = static_cast<int>(out_pitch);
  return windows && pays(*windows, call.geometry, weight.dtype()) ? windows : std::nullopt;
}

template <class Stored>
auto kernel_of(const TapWindows& w) {
  return w.stride[2] == 2 ? multiply_windows<Stored, 2> : multiply_windows<Stored, 1>;
}

}  // namespace

std::optional<OwnKernel> window_product(const ConvolutionCall& call) {
  const auto found = windows_of(call);
  if (!found) return std::nullopt;
  const auto run = [&call, windows = *found](std::span<std::byte> scratch, CUstream_st* stream) {
    const auto& [input, weight, output, bias, others] = call.operands;
    const cuda::LaunchShape shape{dim3(static_cast<unsigned>(windows.shares * windows.kinds())),
                                  dim3(static_cast<unsigned>(windows.threads())), static_cast<std::size_t>(windows.shared_bytes)};
    auto* const partials = reinterpret_cast<float*>(scratch.data());
    dispatch_f32_and_halves(weight.dtype(), [&]<class Stored>() {
      cuda::launch(kernel_of<Stored>(windows), shape, stream, partials, output.data<Stored>(), input.data<Stored>(), windows);
      sum_partials(weight.data<Stored>(), partials, windows.shares * windows.splits, windows.items(),
                   WindowPlace<Stored>{windows, WeightSteps(weight)}, stream);
    });
  };
  return OwnKernel{"windows of taps", found->scratch_bytes(), run, /*finishes=*/false, /*prepare=*/{}, /*takes_parts=*/true};
}

}  // namespace frit::ops
