// Sums and means over any axes.

#include "frit/ops/cuda/column_sums.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/channel_centre.cuh"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/reductions.cuh"

namespace frit::ops {
namespace {

/// Of an image in either layout.
std::size_t scratch(const InferContext& call) {
  static_assert(sizeof(Sum<float>) == sizeof(Sum<double>) && sizeof(Sum<double>) == sizeof(Sum<std::uint64_t>));
  const Shape& shape = call.shape(0);
  std::size_t bytes = LinePlan::scratch_bytes(shape, reduction_axes(call), sizeof(Sum<double>));
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    if (layout == Layout::channels_last && shape.rank() < 3) continue;
    const auto columns = columns_of(Lines(shape, dense_strides(shape, layout), reduction_axes(call)));
    if (columns) bytes = std::max(bytes, column_sums_scratch(*columns));
  }
  return bytes;
}

Lines lines_of(const KernelContext& call) { return {call.inputs[0], reduction_axes(call, call.inputs[0].rank())}; }

/// If its lines are summed as columns.
std::optional<Columns> columns_of(const KernelContext& call) {
  return is_floating(call.inputs[0].dtype()) ? columns_of(lines_of(call)) : std::nullopt;
}

void sum_columns(const KernelContext& call, const Columns& columns, bool divide_by_count) {
  const std::int64_t divisor = divide_by_count ? lines_of(call).count() : 1;
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    sum_columns_of(call.outputs[0].data<T>(), call.inputs[0].data<T>(), columns, divisor, call.scratch, call.stream);
  });
}

Kernel kernel(bool divide_by_count) {
  const auto with_reduction = [=](const KernelContext& call, const auto& body) {
    const Lines lines = lines_of(call);
    dispatch_all(call.inputs[0].dtype(), [&]<class T>() {
      using Result = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
      body(DividedSum<T, Result>(call.inputs[0].data<T>(), call.outputs[0].data<Result>(), divide_by_count ? lines.count() : 1), lines);
    });
  };
  const Kernel of_lines = line_kernel(with_reduction, scratch);
  Kernel kernel = of_lines;
  kernel.run = [=](const KernelContext& call) {
    const auto columns = columns_of(call);
    columns ? sum_columns(call, *columns, divide_by_count) : of_lines.run(call);
  };
  kernel.describe = [=](const KernelContext& call) { return columns_of(call) ? "sums of columns" : of_lines.describe(call); };
  return kernel;
}

std::optional<CentreKernel> centre(const KernelContext& call, const Stages& stages, bool divide_by_count) {
  const TensorType image = staged_type(call, stages);
  const Dims axes = reduction_axes(call, image.shape.rank());
  return channel_reduction(call, stages, axes, "DividedSum<", [&]<class T>() {
    return DividedSum<T>(nullptr, call.outputs[0].data<T>(), divide_by_count ? image.shape[1] : 1);
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(sum) {
  for (const bool divide_by_count : {false, true}) {
    const auto rule = [=](const KernelContext& call, const Stages& stages) { return centre(call, stages, divide_by_count); };
    registry.add_cuda(divide_by_count ? "mean" : "sum", with_stages(kernel(divide_by_count), rule));
  }
}
