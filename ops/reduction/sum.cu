// Sums and means over any axes.

#include "frit/ops/cuda/column_sums.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/channel_centre.cuh"

namespace frit::ops {
namespace {

/// Sums of columns of several tensors, for one launch, and another for those whose rows come in chunks. Small enough for an argument.
template <class T, int width>
struct ColumnSumsTable {
  static constexpr int capacity = 32;
  DividedColumnSums<T, width> terms[capacity];
  ColumnSplit splits[capacity];
  double* partial[capacity];
  unsigned first_block[capacity], first_finish[capacity];
  unsigned blocks = 0, finishing = 0;
  int count = 0;

  bool full() const { return count == capacity; }
  void add(const DividedColumnSums<T, width>& sums, const ColumnSplit& split, double* chunks) {
    terms[count] = sums;
    splits[count] = split;
    partial[count] = chunks;
    first_block[count] = blocks;
    first_finish[count] = finishing;
    blocks += split.blocks();
    if (chunks != nullptr) finishing += finish_blocks(split.matrices * split.columns);
    ++count;
  }
  /// Of the last tensor whose blocks begin at this one or before: those without any have none.
  __device__ int tensor_of(const unsigned (&first)[capacity], unsigned block) const {
    int tensor = 0;
    for (int other = 1; other < count; ++other) tensor = first[other] <= block ? other : tensor;
    return tensor;
  }
};
template <class T, int width>
__global__ void __launch_bounds__(ColumnSplit::threads, 3) sum_columns_together(const __grid_constant__ ColumnSumsTable<T, width> table) {
  const int i = table.tensor_of(table.first_block, blockIdx.x);
  write_column_sums(table.partial[i], table.terms[i], table.splits[i], blockIdx.x - table.first_block[i]);
}
/// A tensor that comes whole begins where the next one does, which is the last to begin there.
template <class T, int width>
__global__ void __launch_bounds__(finish_columns* finish_parts)
    finish_columns_together(const __grid_constant__ ColumnSumsTable<T, width> table) {
  const int i = table.tensor_of(table.first_finish, blockIdx.x);
  const ColumnSplit& split = table.splits[i];
  finish_block_of_sums(table.partial[i], table.terms[i], static_cast<int>(split.chunks), split.matrices * split.columns,
                       blockIdx.x - table.first_finish[i]);
}

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

/// Of the calls whose vectors of columns are so wide.
template <class T, int width>
void sum_columns_at_once(std::span<const KernelContext> calls, bool divide_by_count) {
  using Table = ColumnSumsTable<T, width>;
  Table table;
  const auto launch = [&] {
    if (table.count == 0) return;
    cuda::launch(sum_columns_together<T, width>, {dim3(table.blocks), dim3(ColumnSplit::threads)}, calls[0].stream, table);
    const dim3 threads(finish_columns * finish_parts);
    if (table.finishing > 0) cuda::launch(finish_columns_together<T, width>, {dim3(table.finishing), threads}, calls[0].stream, table);
    table = {};
  };
  for (const KernelContext& call : calls) {
    const auto columns = columns_of(call);
    bool is_so_wide = false;
    dispatch_column_width<T>(*columns, [&]<int own>() { is_so_wide = own == width; });
    if (!is_so_wide) continue;
    const ColumnSplit split = split_sums(*columns, width, sizeof(T));
    const T* const x = call.inputs[0].data<T>();
    const double divisor = divide_by_count ? static_cast<double>(lines_of(call).count()) : 1;
    table.add({call.outputs[0].data<T>(), x, divisor, cuda::aligned_for_vectors(x)}, split, partial_sums(split, call.scratch));
    if (table.full()) launch();
  }
  launch();
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
  kernel.run_together = [=](std::span<const KernelContext> calls) {
    std::vector<KernelContext> of_columns;
    for (const KernelContext& call : calls) columns_of(call) ? of_columns.push_back(call) : of_lines.run(call);
    if (of_columns.empty()) return;
    dispatch_floating_and_halves(calls[0].inputs[0].dtype(), [&]<class T>() {
      sum_columns_at_once<T, cuda::vector_width<T>>(of_columns, divide_by_count);
      sum_columns_at_once<T, 1>(of_columns, divide_by_count);
    });
  };
  kernel.run = [together = kernel.run_together](const KernelContext& call) { together({&call, 1}); };
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
