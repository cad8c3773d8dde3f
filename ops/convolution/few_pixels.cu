// Convolutions of size 1 over few pixels: which calls.

#include <numeric>

#include "frit/core/cuda/launch.cuh"
#include "frit/ops/convolution/convolution_stages.h"
#include "frit/ops/convolution/few_pixels.cuh"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"
#include "frit/ops/libraries/cuda/nvrtc.h"

namespace frit::ops {
namespace {

using Any = FewPixels<float, 1, 1, false>;  // for what all have

/// For an image of so many pixels.
CentreKernel kernel_of(const ImageCall& call, std::int64_t pixels) {
  const PixelProduct numbers{call.weight.raw(), static_cast<int>(pixels), static_cast<int>(product(call.g.input)),
                             static_cast<int>(call.out_channels), static_cast<int>(call.in_channels)};
  // Neighbours in memory: of the depth, but where results are, a few.
  const auto neighbours = [](std::int64_t count, std::int64_t most) { return static_cast<int>(std::gcd(count, most)); };
  const int vector = neighbours(call.in_channels, call.forward ? 16 / call.element_bytes : 2), columns = neighbours(call.out_channels, 4);
  const std::int64_t warps = (pixels + Any::rows - 1) / Any::rows * (call.out_channels / columns);
  constexpr std::int64_t block_warps = Any::threads / Any::lanes;
  const cuda::LaunchShape launch{dim3(static_cast<unsigned>((warps + block_warps - 1) / block_warps)), dim3(Any::threads)};
  return CentreKernel(
      "frit/ops/convolution/few_pixels.cuh",
      concat("FewPixels<", name_in_programs(call.weight.dtype()), ", ", vector, ", ", columns, ", ", call.forward ? "false" : "true", '>'),
      numbers, launch, /*asks_for_each_sample=*/false);
}

/// Each warp reads its factors by itself, from the caches: by estimate, below this in less time than cuDNN's tiles take, which few pixels
/// do not fill.
bool are_few(const ImageCall& call, std::int64_t pixels) {
  constexpr std::int64_t most_pixels = 256, most_bytes = 24 << 20;
  const std::int64_t products = pixels * call.out_channels * call.in_channels;
  return pixels <= most_pixels && products <= most_bytes / call.element_bytes * Any::rows / 2;
}

}  // namespace

std::optional<OwnKernel> few_pixel_product(const ConvolutionCall& call) {
  const ConvolutionGeometry& g = call.geometry;
  const auto& [input, weight, output, bias, others] = call.operands;
  const DType dtype = weight.dtype();
  const bool dtypes = dtype != DType::f64 && input.dtype() == dtype && output.dtype() == dtype;
  if (call.kind == cudnn::ConvolutionKind::weight_gradient || !dtypes || !is_pointwise(g)) return {};
  const ImageCall image_call(call);
  const std::int64_t pixels = g.batch * product(g.input);
  if (pixels == 0 || !are_few(image_call, pixels) || !lies_in_channels(input) || !lies_in_channels(output)) return {};
  if (!nvrtc::is_available(weight.device().index) || !ConvolutionStages::finishes(call)) return {};
  const auto run = [&call, image_call, pixels](std::span<std::byte>, CUstream_st* stream) {
    run_centre(kernel_of(image_call, pixels), ConvolutionStages(call).stages(), image_call.image, image_call.result, stream);
  };
  const auto prepare = [&call, image_call, pixels] {
    prepare_centre(kernel_of(image_call, pixels), ConvolutionStages(call).stages(), image_call.image, image_call.result);
  };
  return OwnKernel{"few pixels", 0, run, /*finishes=*/true, prepare};
}

}  // namespace frit::ops
