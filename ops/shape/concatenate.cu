// Tensors one after another along an axis, many in one launch.

#include <algorithm>

#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/shape/concatenate.h"

namespace frit::ops {
namespace {

/// What rows of the result hold one after another: of each part a row of its own. Sizes are in vectors.
struct JoinedParts {
  static constexpr int capacity = 128;

  const void* memory[capacity];
  int first[capacity + 1];  ///< in what the launch writes of a row
  int count = 0;

  void add(const void* part, std::int64_t size) {
    memory[count] = part;
    first[count + 1] = first[count] + static_cast<int>(size);
    ++count;
  }
  FRIT_HOST_DEVICE int size() const { return first[count]; }
  __device__ int part_of(int column) const {
    int part = 0;
    for (int step = capacity / 2; step > 0; step /= 2) {
      if (part + step < count && first[part + step] <= column) part += step;
    }
    return part;
  }
};

/// How a launch shares the rows out: a thread has one vector of each `step`-th row of a block.
struct RowSplit {
  static constexpr int threads = cuda::default_threads, thread_rows = 8;

  std::int64_t rows;
  int lanes, step, column_blocks;

  RowSplit(std::int64_t rows_, int columns)
      : rows(rows_), lanes(std::min(columns, threads)), step(threads / lanes), column_blocks((columns + lanes - 1) / lanes) {}

  cuda::LaunchShape shape() const {
    const std::int64_t block_rows = std::int64_t{thread_rows} * step;
    return {dim3(static_cast<unsigned>((rows + block_rows - 1) / block_rows * column_blocks)), dim3(threads)};
  }
};

/// Reads each part once, and writes whole stretches of rows.
template <class Word>
__global__ void __launch_bounds__(RowSplit::threads)
    join_parts(Word* output, const __grid_constant__ JoinedParts parts, std::int64_t row_size, RowSplit split) {
  constexpr int at_once = 4;
  const int strip = static_cast<int>(threadIdx.x) / split.lanes, lane = static_cast<int>(threadIdx.x) % split.lanes;
  const int column = static_cast<int>(blockIdx.x % static_cast<unsigned>(split.column_blocks)) * split.lanes + lane;
  if (strip >= split.step || column >= parts.size()) return;
  const int part = parts.part_of(column);
  const std::int64_t part_size = parts.first[part + 1] - parts.first[part];
  const std::int64_t block = blockIdx.x / static_cast<unsigned>(split.column_blocks);
  const std::int64_t first = block * RowSplit::thread_rows * split.step + strip;
  const std::int64_t end = min(split.rows, (block + 1) * RowSplit::thread_rows * split.step);
  const Word* const from = static_cast<const Word*>(parts.memory[part]) + (column - parts.first[part]);
  for (std::int64_t row = first; row < end; row += at_once * split.step) {
    Word words[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (row + i * split.step < end) words[i] = from[(row + i * split.step) * part_size];
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (row + i * split.step < end) output[(row + i * split.step) * row_size + column] = words[i];
    }
  }
}

/// Rows of the inputs, in the order of memory: what lies before the axis, and the bytes of what lies after it.
struct Rows {
  std::int64_t count = 1, bytes;

  Rows(const Tensor& tensor, int axis) : bytes(static_cast<std::int64_t>(size_of(tensor.dtype()))) {
    const bool channels_last = !tensor.is_contiguous();
    const auto place = [&](int a) { return channels_last && a == 1 ? tensor.rank() : a; };  // in the order of memory
    for (int other = 0; other < tensor.rank(); ++other) {
      if (other != axis) (place(other) < place(axis) ? count : bytes) *= tensor.dim(other);
    }
  }
};

/// Whether all lie alike, without gaps.
bool lie_alike(const KernelContext& call) {
  const Layout layout = call.outputs[0].is_contiguous() ? Layout::contiguous : Layout::channels_last;
  const auto lies_so = [&](const Tensor& tensor) { return tensor.is_contiguous(layout); };
  return lies_so(call.outputs[0]) && std::ranges::all_of(call.inputs, lies_so);
}

template <class Word>
void join(const KernelContext& call, int axis, const Rows& rows) {
  const auto size_of_row = [&](const Tensor& tensor) { return tensor.dim(axis) * rows.bytes / static_cast<std::int64_t>(sizeof(Word)); };
  const std::int64_t row_size = size_of_row(call.outputs[0]);
  auto* output = static_cast<Word*>(call.outputs[0].raw());
  JoinedParts parts{};
  const auto launch = [&] {
    if (parts.size() > 0) {
      const RowSplit split(rows.count, parts.size());
      cuda::launch(join_parts<Word>, split.shape(), call.stream, output, parts, row_size, split);
    }
    output += parts.size();
    parts = {};
  };
  for (const Tensor& input : call.inputs) {
    if (input.elements() > 0) parts.add(input.raw(), size_of_row(input));
    if (parts.count == JoinedParts::capacity) launch();
  }
  launch();
}

/// Vectors as wide as all rows and places allow.
void run(const KernelContext& call) {
  const Tensor& output = call.outputs[0];
  const int axis = concatenation_axis(call.attributes, output.rank());
  if (output.elements() == 0) return;
  const Rows rows(output, axis);
  if (!lie_alike(call) || output.dim(axis) * rows.bytes > INT32_MAX) return concatenate_in_turn(call);
  std::uintptr_t places = reinterpret_cast<std::uintptr_t>(output.raw());
  for (const Tensor& input : call.inputs) {
    if (input.elements() > 0)
      places |= reinterpret_cast<std::uintptr_t>(input.raw()) | static_cast<std::uintptr_t>(input.dim(axis) * rows.bytes);
  }
  if (places % 16 == 0) return join<uint4>(call, axis, rows);
  if (places % 8 == 0) return join<uint2>(call, axis, rows);
  if (places % 4 == 0) return join<std::uint32_t>(call, axis, rows);
  places % 2 == 0 ? join<std::uint16_t>(call, axis, rows) : join<std::uint8_t>(call, axis, rows);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(concatenate) {
  registry.add_cuda("concatenate", {.run = run, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
}
