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

/// Over the pixels of an image, of each sample or of all, which are columns.
std::optional<CentreKernel> pixel_sums(const KernelContext& call, const TensorType& image, const Dims& axes, bool divide_by_count) {
  std::optional<CentreKernel> centre;
  Dims pixels;
  for (int axis = 2; axis < image.shape.rank(); ++axis) pixels.push_back(axis);
  const bool keeps_samples = axes == pixels;
  pixels.insert(0, 0);
  if ((!keeps_samples && axes != pixels) || !is_floating(image.dtype) || !call.outputs[0].is_contiguous()) return centre;
  constexpr std::int64_t least_rows = 16;
  const auto g = columns_of(Lines(image.shape, dense_strides(image.shape, Layout::channels_last), axes), least_rows);
  if (!g || g->columns != image.shape[1] || g->rows > INT32_MAX) return centre;
  dispatch_floating_and_halves(image.dtype, [&]<class T>() {
    constexpr int width = cuda::vector_width<T>;
    if (g->columns % width != 0) return;
    const ColumnSplit split = split_sums(*g, width, sizeof(T));
    const cuda::Divisor sample_rows(element_count(image.shape) / image.shape[0] / image.shape[1]);
    const DividedColumnSums<T, width> terms{call.outputs[0].data<T>(), nullptr, static_cast<double>(divide_by_count ? g->rows : 1), true};
    double* const partial = partial_sums(split, call.scratch);
    centre.emplace("frit/ops/cuda/column_terms.cuh", concat("ColumnSumKernel<", name_in_programs(image.dtype), ", ", width, '>'),
                   ColumnSumKernel<T, width>{partial, terms, sample_rows, split}, split.shape(), /*asks_for_each_sample=*/keeps_samples);
    centre->resident_blocks = image.dtype == DType::f64 ? 0 : 3;  // as the split expects
    if (split.chunks > 1) centre->finish = [=](cudaStream_t stream) { finish_sums(partial, terms, split, stream); };
  });
  return centre;
}

std::optional<CentreKernel> centre(const KernelContext& call, const Stages& stages, bool divide_by_count) {
  const TensorType image = staged_type(call, stages);
  const Dims axes = reduction_axes(call, image.shape.rank());
  if (axes != Dims{1}) return pixel_sums(call, image, axes, divide_by_count);
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
