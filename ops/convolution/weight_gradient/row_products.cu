// Weight gradients of convolutions with 3 x 3 taps as products of matrices by warpgroups, row by row of the image, for many channels.

#include <algorithm>

#include "frit/core/cuda/device.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/convolution/weight_gradient/row_products.cuh"
#include "frit/ops/cuda/sum_partials.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"

namespace frit::ops {
namespace {

/// Whether this takes less time than cuDNN 9, estimated for an H200: fitted to 16 layers of 32 to 512 channels and 3.7 to 618 GFLOP, for
/// each of which it finds the faster of the two. Short rows are left out, whose tiles bring as many rows as they multiply.
bool pays(const RowTiles& w, const ConvolutionGeometry& g) {
  constexpr int least_columns = 16, least_share_tiles = 3;
  constexpr double least_used = 0.45, lost_tiles = 5;
  constexpr double start = 10, library_start = 15;                                       // microseconds
  constexpr double rate = 330e6, flat_rate = 155e6, deep_rate = 180e6, few_rate = 60e6;  // operations a microsecond
  if (w.columns < least_columns || w.share_tiles < least_share_tiles || w.used_part() < least_used) return false;
  const double operations = 2. * static_cast<double>(g.batch * product(g.output)) * w.items();
  const double time = start + operations / (rate * w.used_part()) * (1 + lost_tiles / w.share_tiles);
  const bool few = std::min(w.in_channels, w.out_channels) < RowTiles::channels;
  return time < library_start + operations / (w.depth_taps > 1 ? deep_rate : few ? few_rate : flat_rate);
}

std::optional<RowTiles> tiles_of(const ConvolutionCall& call) {
  const auto& [input, weight, output, bias, others] = call.operands;
  const bool fits = call.kind == cudnn::ConvolutionKind::weight_gradient && weight.dtype() == DType::f32 && on_tensor_cores(DType::f32) &&
                    lies_in_channels(input) && lies_in_channels(output) && warpgroup::available(weight.device().index);
  if (!fits) return std::nullopt;
  const auto tiles = RowTiles::of(call.geometry, cuda::properties(weight.device().index));
  return tiles && pays(*tiles, call.geometry) ? tiles : std::nullopt;
}

}  // namespace

std::optional<OwnKernel> row_product(const ConvolutionCall& call) {
  const auto found = tiles_of(call);
  if (!found) return std::nullopt;
  const auto run = [&call, tiles = *found](std::span<std::byte> scratch, CUstream_st* stream) {
    const auto& [input, weight, output, bias, others] = call.operands;
    const cuda::LaunchShape shape{dim3(static_cast<unsigned>(tiles.shares * tiles.kinds())), dim3(RowTiles::threads),
                                  static_cast<std::size_t>(tiles.shared_bytes)};
    auto* const partials = reinterpret_cast<float*>(scratch.data());
    cuda::launch(multiply_rows, shape, stream, partials, output.data<float>(), input.data<float>(), tiles);
    sum_partials(weight.data<float>(), partials, tiles.shares, tiles.items(),
                 RowPlace{tiles.taps(), tiles.in_channels, !weight.is_contiguous()}, stream);
  };
  return OwnKernel{"rows of taps", found->scratch_bytes(), run};
}

}  // namespace frit::ops
