// Tensors one after another along an axis, many in one launch.

#include <algorithm>

#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/shape/concatenate.h"

namespace frit::ops {
namespace {

/// What a launch writes of each of the result's rows, of each part a row of its own. Sizes are in vectors.
struct JoinedParts {
  static constexpr int capacity = 128;

  const void* memory[capacity];
  std::int64_t step[capacity];  ///< from a part's row to the next
  int begin[capacity];          ///< in the result's row
  int first[capacity + 1];      ///< of all that the launch writes of a row
  int count = 0;

  void add(const JoinedRows::Part& part, std::int64_t vector) {
    memory[count] = part.data;
    step[count] = part.step / vector;
    begin[count] = static_cast<int>(part.begin / vector);
    first[count + 1] = first[count] + static_cast<int>(part.length / vector);
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
    join_parts(Word* output, const __grid_constant__ JoinedParts parts, std::int64_t row_step, RowSplit split) {
  constexpr int at_once = 4;
  const int strip = static_cast<int>(threadIdx.x) / split.lanes, lane = static_cast<int>(threadIdx.x) % split.lanes;
  const int column = static_cast<int>(blockIdx.x % static_cast<unsigned>(split.column_blocks)) * split.lanes + lane;
  if (strip >= split.step || column >= parts.size()) return;
  const int part = parts.part_of(column);
  const int place = column - parts.first[part];
  const std::int64_t part_step = parts.step[part];
  const std::int64_t block = blockIdx.x / static_cast<unsigned>(split.column_blocks);
  const std::int64_t first = block * RowSplit::thread_rows * split.step + strip;
  const std::int64_t end = min(split.rows, (block + 1) * RowSplit::thread_rows * split.step);
  const Word* const from = static_cast<const Word*>(parts.memory[part]) + place;
  Word* const to = output + parts.begin[part] + place;
  for (std::int64_t row = first; row < end; row += at_once * split.step) {
    Word words[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (row + i * split.step < end) words[i] = from[(row + i * split.step) * part_step];
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (row + i * split.step < end) to[(row + i * split.step) * row_step] = words[i];
    }
  }
}

template <class Word>
void join(const KernelContext& call, const JoinedRows& rows) {
  constexpr std::int64_t vector = sizeof(Word);
  JoinedParts parts{};
  const auto launch = [&] {
    if (parts.size() == 0) return;
    const RowSplit split(rows.count, parts.size());
    cuda::launch(join_parts<Word>, split.shape(), call.stream, static_cast<Word*>(call.outputs[0].raw()), parts, rows.step / vector, split);
    parts = {};
  };
  for (const JoinedRows::Part& part : rows.parts) {
    parts.add(part, vector);
    if (parts.count == JoinedParts::capacity) launch();
  }
  launch();
}

/// Vectors as wide as all rows and places allow.
void run(const KernelContext& call) {
  const std::optional<JoinedRows> rows = JoinedRows::of(call);
  if (!rows || rows->length > INT32_MAX) return concatenate_in_turn(call);
  std::uintptr_t places = reinterpret_cast<std::uintptr_t>(call.outputs[0].raw()) | static_cast<std::uintptr_t>(rows->step);
  for (const JoinedRows::Part& part : rows->parts) {
    places |= reinterpret_cast<std::uintptr_t>(part.data) | static_cast<std::uintptr_t>(part.step | part.begin | part.length);
  }
  if (places % 16 == 0) return join<uint4>(call, *rows);
  if (places % 8 == 0) return join<uint2>(call, *rows);
  if (places % 4 == 0) return join<std::uint32_t>(call, *rows);
  places % 2 == 0 ? join<std::uint16_t>(call, *rows) : join<std::uint8_t>(call, *rows);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(concatenate) {
  registry.add_cuda("concatenate", {.run = run,
                                    .strided = true,
                                    .takes_parts = [](const KernelContext&) { return true; },
                                    .halves = true,
                                    .any_layout_inputs = {0},
                                    .any_layout_outputs = {0}});
}
