#pragma once

#include <algorithm>

#include "frit/core/cuda/launch.cuh"
#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/reduce.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/reductions.cuh"

namespace frit::ops {

// Kernels with stages for reductions over the channels of images in channels-last layout: the host's side.

/// How such a kernel shares the pixels of an image out; none where its threads do not hold them.
inline std::optional<std::pair<ChannelRows, cuda::LaunchShape>> channel_rows(const Shape& image) {
  if (image.rank() < 4 || image[1] % batch_size != 0 || element_count(image) == 0) return std::nullopt;
  const int workers = ChannelRows::workers(image[1]);
  const std::int64_t pixels = element_count(image) / image[1];
  if (workers > ChannelRows::threads || pixels > INT32_MAX) return std::nullopt;
  return std::pair{ChannelRows{pixels, cuda::Divisor(pixels / image[0])}, cuda::loop_shape(pixels * workers, ChannelRows::threads)};
}

/// The same for kernels whose threads have several pixels at once.
inline std::optional<std::pair<ChannelRows, cuda::LaunchShape>> rows_of_few(const Shape& image) {
  auto plan = channel_rows(image);
  if (!plan) return plan;
  const std::int64_t at_once = ChannelRows::at_once(image[1]), few = (plan->first.pixels + at_once - 1) / at_once;
  plan->second = cuda::loop_shape(few * ChannelRows::workers(image[1]), ChannelRows::threads);
  return plan;
}

/// For the arguments of a kernel: they are the same for any number.
inline constexpr int any_channels = batch_size;

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
    const auto plan = rows_of_few(image.shape);
    if (!plan) return;
    centre.emplace("frit/ops/reduction/reductions.cuh",
                   concat("ChannelReduction<", type, name_in_programs(image.dtype), ">, ", image.shape[1], '>'),
                   ChannelReduction<std::remove_const_t<decltype(reduction)>, any_channels>{plan->first, reduction}, plan->second,
                   /*asks_for_each_sample=*/false);
  });
  return centre;
}

/// Of an operator with attributes A whose results are extrema, or alone what Reduction<Order, T> finds with them. Any may be undefined.
template <template <class, class> class Reduction, class Order, class A>
Kernel extremum_kernel() {
  const auto with_reduction = [](const KernelContext& call, const auto& body) {
    const Tensor& input = call.inputs[0];
    dispatch_all(input.dtype(), [&]<class T>() {
      T* const value = call.outputs.size() > 1 ? data_or_null<T>(call.outputs[0]) : nullptr;
      body(Reduction<Order, T>{{input.data<T>()}, value, data_or_null<std::int64_t>(call.outputs.back())},
           Lines(input, reduction_axes<A>(call, input.rank())));
    });
  };
  return line_kernel(with_reduction, [](const InferContext& call) {
    return LinePlan::scratch_bytes(call.shape(0), reduction_axes<A>(call), sizeof(typename Reduction<Order, double>::State));
  });
}

/// The same with stages. `type`: the reduction's.
template <template <class, class> class Reduction, class Order, class A>
Kernel staged_extremum_kernel(const char* type) {
  const auto centre = [type](const KernelContext& call, const Stages& stages) {
    const Dims axes = reduction_axes<A>(call, staged_type(call, stages).shape.rank());
    if (!call.outputs[1].defined()) {
      return channel_reduction(call, stages, axes, concat("ExtremeValue<", Order::name, ", "), [&]<class T>() {
        return ExtremeValue<Order, T>{{nullptr}, call.outputs[0].data<T>()};
      });
    }
    return channel_reduction(call, stages, axes, concat(type, '<', Order::name, ", "), [&]<class T>() {
      return Reduction<Order, T>{{nullptr}, data_or_null<T>(call.outputs[0]), call.outputs[1].data<std::int64_t>()};
    });
  };
  return with_stages(values_compiled(extremum_kernel<Reduction, Order, A>(), centre), centre);
}

}  // namespace frit::ops
