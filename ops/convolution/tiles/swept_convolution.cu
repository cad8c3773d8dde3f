// Convolutions that sweep over columns of the image, see swept_tiles.cuh.

#include <algorithm>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/launch.cuh"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/convolution_stages.h"
#include "frit/ops/convolution/mirrored_convolution.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/convolution/tiles/swept_rows.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"

namespace frit::ops {
namespace {

constexpr int most_swept_channels = 64;

/// Output positions along (depth, height, width) and channels of a block.
struct BlockSizes {
  ImageAxes positions;
  std::int64_t out_channels;

  template <class Column>
  static constexpr BlockSizes of() {
    return {{Column::deep, 1, Column::across}, Column::out_channels};
  }
};

/// A call as a convolution of its image: a data gradient is one whose taps are mirrored.
struct Sweep : ImageCall {
  bool flat;  ///< the kernel leaves the depth alone
  BlockSizes block;

  explicit Sweep(const ConvolutionCall& call)
      : ImageCall(call), flat(g.kernel[0] == 1), block(flat ? BlockSizes::of<SweepColumn<true>>() : BlockSizes::of<SweepColumn<false>>()) {}

  std::int64_t columns(std::size_t axis) const { return (output[axis] + block.positions[axis] - 1) / block.positions[axis]; }
  std::int64_t rows() const { return g.batch * columns(0) * columns(2) * output[1]; }
  std::int64_t channel_parts() const { return (out_channels + block.out_channels - 1) / block.out_channels; }
  /// Of each channel part.
  std::int64_t blocks() const {
    return std::clamp<std::int64_t>(cuda::properties(weight.device().index).multiprocessors / channel_parts(), 1, rows());
  }
  /// That the moments of a sample come in: one of each warp that has some of its positions.
  std::int64_t moment_parts() const {
    return ((blocks() + g.batch - 1) / g.batch + 1) * (flat ? SweepColumn<true>::moment_warps : SweepColumn<false>::moment_warps);
  }
  /// The part of a device's time in which products are made that are asked for: not outside of the image, nor of rows that two blocks
  /// need, nor while other blocks work.
  double efficiency() const {
    const std::int64_t share = (rows() + blocks() - 1) / blocks() + 2;
    const std::int64_t multiprocessors = cuda::properties(weight.device().index).multiprocessors;
    return static_cast<double>(g.batch * product(output) * channel_parts()) /
           static_cast<double>(product(block.positions) * share * multiprocessors);
  }
  /// How many times as long other kernels take where the efficiency is 1: cuDNN's, or a product after im2col.
  double gain() const {
    if (flat) return 2;
    return pixel_bytes() == warpgroup::chunk_bytes ? 4 : in_channels <= 32 ? 2 : 1.4;
  }
  SweptTiles tiles() const {
    SweptTiles t = {};
    for (std::size_t i = 0; i < 3; ++i) {
      t.input[i] = static_cast<int>(input[i]), t.output[i] = static_cast<int>(output[i]);
      t.padding[i] = static_cast<int>(padding(i));
    }
    t.in_channels = static_cast<int>(in_channels), t.out_channels = static_cast<int>(out_channels);
    t.pitch = static_cast<int>(pitch);
    t.columns_across = static_cast<int>(columns(2)), t.columns_deep = static_cast<int>(columns(0));
    t.columns = static_cast<int>(g.batch) * t.columns_across * t.columns_deep;
    t.mirrored = !forward;
    const WeightSteps steps(weight);
    t.out_channel_step = forward ? steps.row : steps.channel, t.channel_step = forward ? steps.channel : steps.row;
    t.tap_step = steps.tap;
    return t;
  }
};

/// Calls body(kernel, stages) for the launches of a call: as many channels at a time as the weight leaves room for. The last one's program
/// has the epilogue.
template <class Stored, class Body>
void for_each_launch(const ConvolutionCall& call, const Body& body) {
  const Sweep of_call(call);
  const auto with = [&]<class Shape>() {
    SweptTiles tiles = of_call.tiles();
    for (; tiles.first_channel < tiles.in_channels; tiles.first_channel += Shape::channels) {
      const bool adds = tiles.first_channel > 0, last = tiles.first_channel + Shape::channels >= tiles.in_channels;
      ConvolutionCall part = call;
      if (adds) part.operands.bias = {};
      const ConvolutionStages following(part, adds, last);
      const auto parts = static_cast<unsigned>(of_call.channel_parts());
      const PartialMoments moments = last ? call.moments : PartialMoments();
      const bool finds = moments.parts > 0;
      const std::size_t shared_bytes = Shape::shared_bytes + (finds ? Shape::moment_bytes : 0);
      const cuda::LaunchShape launch{dim3(static_cast<unsigned>(of_call.blocks()) * parts), dim3(Shape::threads), shared_bytes};
      const std::string type = concat("SweptConvolution<SweepShape<", name_in_programs(of_call.weight.dtype()), ", ", Shape::chunks, ", ",
                                      of_call.flat ? "true" : "false", finds ? ">, WarpMoments>" : ">>");
      body(CentreKernel("frit/ops/convolution/tiles/swept_rows.cuh", type,
                        SweptCall{tiles, of_call.weight.raw(), static_cast<int>(parts), moments}, launch, /*asks_for_each_sample=*/false),
           following.stages());
    }
  };
  const std::int64_t chunks = of_call.pixel_bytes() / warpgroup::chunk_bytes;
  const auto of = [&]<bool flat>() {
    if (chunks > 4 && !flat) return with.template operator()<SweepShape<Stored, 8, false>>();
    if (chunks > 2) return with.template operator()<SweepShape<Stored, 4, flat>>();
    if (chunks > 1) return with.template operator()<SweepShape<Stored, 2, flat>>();
    with.template operator()<SweepShape<Stored, 1, flat>>();
  };
  of_call.flat ? of.template operator()<true>() : of.template operator()<false>();
}

/// Calls body(kernel, stages, image, result) for them.
template <class Body>
void dispatch_launches(const ConvolutionCall& call, const Body& body) {
  const ImageCall of(call);
  dispatch_f32_and_halves(of.weight.dtype(), [&]<class Stored>() {
    for_each_launch<Stored>(call, [&](const CentreKernel& kernel, const Stages& stages) { body(kernel, stages, of.image, of.result); });
  });
}

/// Whether there is a kernel for the call, on its device.
bool takes(const ConvolutionCall& call) {
  const auto& [input, weight, output, bias, others] = call.operands;
  const bool alike = input.dtype() == weight.dtype() && output.dtype() == weight.dtype();
  if (!on_tensor_cores(weight.dtype()) || !alike || !has_mirror(call)) return false;
  const Sweep sweep(call);
  constexpr ImageAxes deep = {3, 3, 3}, flat = {1, 3, 3}, one = {1, 1, 1};
  const bool kernel = sweep.g.kernel == deep || sweep.g.kernel == flat;
  constexpr std::int64_t held = 8;  // output channels of a thread
  const bool channels = sweep.pixel_bytes() % warpgroup::chunk_bytes == 0 && sweep.in_channels <= most_swept_channels &&
                        sweep.out_channels % held == 0 && sweep.out_channels <= most_swept_channels;
  bool lies = has_channel_vectors(input) && has_channel_vectors(output);
  for (const Tensor* const tensor : {&weight, &bias}) {
    lies = lies && (!tensor->defined() || cuda::aligned_for_vectors(tensor->raw()));
  }
  const bool some = sweep.in_channels > 0 && sweep.out_channels > 0 && sweep.g.batch * product(sweep.output) * product(sweep.input) > 0;
  const bool fits = some && sweep.rows() < INT32_MAX && sweep.g.batch * sweep.input[0] < INT32_MAX && product(sweep.input) < INT32_MAX;
  return kernel && sweep.g.dilation == one && channels && lies && fits && compiles_warpgroup_products(weight.device());
}

/// Whether it should be the fastest.
bool pays(const ConvolutionCall& call) {
  const Sweep sweep(call);
  const std::int64_t most_pairs = is_half(sweep.weight.dtype()) ? 64 * 64 : 64 * 32;
  if (sweep.in_channels * sweep.out_channels > most_pairs || sweep.efficiency() * sweep.gain() < 1) return false;
  // Where most of what moves is the output; not gradients of a single vector, for which cuDNN takes a fifth of the time. What
  // tap_convolution does is at memory's speed.
  const bool few = sweep.pixel_bytes() <= 64 && (sweep.forward || sweep.pixel_bytes() > 16);
  if (sweep.flat) return few && sweep.in_channels <= sweep.out_channels && !tap_convolution(call);
  // From a single vector, tap_convolution takes less time to few channels.
  return !(sweep.forward && sweep.in_channels <= 4 && sweep.out_channels <= 16);
}

}  // namespace

std::optional<OwnKernel> swept_kernel(const ConvolutionCall& call) {
  if (!takes(call)) return {};
  const auto run = [&call](std::span<std::byte>, CUstream_st* stream) {
    dispatch_launches(call, [&](const CentreKernel& kernel, const Stages& stages, const Tensor& image, const Tensor& result) {
      run_centre(kernel, stages, image, result, stream);
    });
  };
  return OwnKernel{"swept over columns",
                   0,
                   run,
                   ConvolutionStages::finishes(call),
                   [&call] { dispatch_launches(call, prepare_centre); },
                   /*takes_parts=*/true,
                   Sweep(call).moment_parts()};
}

std::optional<OwnKernel> swept_convolution(const ConvolutionCall& call) {
  std::optional<OwnKernel> kernel = swept_kernel(call);
  return kernel && pays(call) ? kernel : std::nullopt;
}

}  // namespace frit::ops
