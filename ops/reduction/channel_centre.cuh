#pragma once

#include <algorithm>

#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/reduce.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"
#include "frit/ops/reduction/channel_rows.cuh"

namespace frit::ops {

// Kernels with stages for reductions over the channels of images in channels-last layout: the host's side.

/// How the kernel for a source's vectors shares the pixels of such an image out; none where its threads do not hold them.
template <class Source>
std::optional<std::pair<ChannelRows, cuda::LaunchShape>> channel_rows(const Shape& image) {
  if (image.rank() < 4) return std::nullopt;
  const LinePlan plan(Lines(image, dense_strides(image, Layout::channels_last), {1}), Source::width, Runs<Source>::count);
  const std::int64_t pixels = plan.results(), channels = image[1];
  const int workers = plan.team().last;
  if (!plan.in_runs() || channels > workers * Runs<Source>::count * batch_size || pixels == 0 || pixels > INT32_MAX) return std::nullopt;
  return std::pair{ChannelRows{pixels, static_cast<int>(channels), workers, cuda::Divisor(pixels / image[0])}, plan.all_segments()};
}

/// Calls body.template operator()<batches>() for as many as a thread has of a pixel.
template <class Source, class Body>
void dispatch_batches(const ChannelRows& rows, const Body& body) {
  constexpr int fewer = std::min(batches_at_once / 2, Runs<Source>::count);
  rows.channels <= rows.workers* fewer* batch_size ? body.template operator()<fewer>() : body.template operator()<Runs<Source>::count>();
}

/// The kernel of a call that reduces floating images over `axes`, if these are the channels. make.template operator()<T>() is the
/// reduction; `type` is what its type's name begins with, up to T.
template <class Make>
std::optional<CentreKernel> channel_reduction(const KernelContext& call, const Stages& stages, const Dims& axes, const std::string& type,
                                              const Make& make) {
  const TensorType image = staged_type(call, stages);
  std::optional<CentreKernel> centre;
  const auto lies_in_order = [](const Tensor& output) { return !output.defined() || output.is_contiguous(); };
  if (axes != Dims{1} || !is_floating(image.dtype) || !std::all_of(call.outputs.begin(), call.outputs.end(), lies_in_order)) return centre;
  dispatch_floating_and_halves(image.dtype, [&]<class T>() {
    const auto reduction = make.template operator()<T>();
    using Reduction = std::remove_const_t<decltype(reduction)>;
    using Source = decltype(Reduction::source);
    const auto plan = channel_rows<Source>(image.shape);
    if (!plan) return;
    const auto& [rows, shape] = *plan;
    dispatch_batches<Source>(rows, [&]<int batches>() {
      centre.emplace("frit/ops/reduction/reductions.cuh",
                     concat("ChannelReduction<", type, name_in_programs(image.dtype), ">, ", batches, '>'),
                     ChannelReduction<Reduction, batches>{rows, reduction}, shape, /*asks_for_each_sample=*/false);
    });
  });
  return centre;
}

}  // namespace frit::ops
