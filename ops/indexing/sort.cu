// Sorting along an axis: short lines in a block's registers, long ones all together.

#include <bit>
#include <cub/block/block_radix_sort.cuh>

#include "frit/core/cuda/launch.cuh"
#include "frit/ops/cuda/key_sort.cuh"
#include "frit/ops/indexing/sort.h"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

/// What is sorted and where it goes, whatever its dtype.
struct SortCall {
  SortedLines lines;
  const void* input;  // (outer, size, inner)
  DType dtype;
  int element_bytes;
  bool descending;
  void* values;           // (outer, count, inner), or null
  std::int64_t* indices;  // likewise

  explicit SortCall(const KernelContext& call)
      : lines(call.inputs[0].shape(), call.as<SortAttributes>()),
        input(call.inputs[0].raw()),
        dtype(call.inputs[0].dtype()),
        element_bytes(static_cast<int>(size_of(dtype))),
        descending(call.as<SortAttributes>().descending),
        values(call.outputs[0].defined() ? call.outputs[0].raw() : nullptr),
        indices(data_or_null<std::int64_t>(call.outputs[1])) {}

  __device__ std::int64_t offset(std::int64_t line, std::int64_t position, std::int64_t length) const {
    return (line / lines.inner * length + position) * lines.inner + line % lines.inner;
  }

  __device__ std::uint64_t key(std::int64_t line, std::int64_t position) const {
    const std::int64_t i = offset(line, position, lines.size);
    switch (dtype) {
      case DType::f64: return sort_key(static_cast<const double*>(input)[i], descending);
      case DType::f32: return sort_key(static_cast<const float*>(input)[i], descending);
      case DType::f16: return sort_key(static_cast<const Half*>(input)[i], descending);
      case DType::bf16: return sort_key(static_cast<const BFloat16*>(input)[i], descending);
      case DType::i64: return sort_key(static_cast<const std::int64_t*>(input)[i], descending);
      case DType::i32: return sort_key(static_cast<const std::int32_t*>(input)[i], descending);
      case DType::u8: return sort_key(static_cast<const std::uint8_t*>(input)[i], descending);
    }
    return 0;
  }

  template <class Bits>
  __device__ void copy(std::int64_t to, std::int64_t from) const {
    static_cast<Bits*>(values)[to] = static_cast<const Bits*>(input)[from];
  }

  /// The element at `position` of the line is its `rank`-th.
  __device__ void write(std::int64_t line, std::int64_t rank, std::int64_t position) const {
    const std::int64_t to = offset(line, rank, lines.count), from = offset(line, position, lines.size);
    if (indices != nullptr) indices[to] = position;
    if (values == nullptr) return;
    switch (element_bytes) {
      case 8: return copy<std::uint64_t>(to, from);
      case 4: return copy<std::uint32_t>(to, from);
      case 2: return copy<std::uint16_t>(to, from);
      default: return copy<std::uint8_t>(to, from);
    }
  }
};

/// A block a line, which its registers hold. Reads the line once and what is kept of it again. Deterministic.
template <class Key, int threads, int items>
__global__ void __launch_bounds__(threads) sort_short_lines(SortCall call) {
  using Sort = cub::BlockRadixSort<Key, threads, items, std::int32_t>;
  __shared__ typename Sort::TempStorage storage;
  for (std::int64_t line = blockIdx.x; line < call.lines.lines(); line += gridDim.x) {
    Key keys[items];
    std::int32_t places[items];
#pragma unroll
    for (int i = 0; i < items; ++i) {
      places[i] = static_cast<std::int32_t>(threadIdx.x) * items + i;
      // What is beyond the line comes after equal keys of its own.
      keys[i] = places[i] < call.lines.size ? static_cast<Key>(call.key(line, places[i])) : ~Key{0};
    }
    Sort(storage).SortBlockedToStriped(keys, places);
#pragma unroll
    for (int i = 0; i < items; ++i) {
      const int rank = i * threads + static_cast<int>(threadIdx.x);
      if (rank < call.lines.count) call.write(line, rank, places[i]);
    }
    __syncthreads();
  }
}

/// Elements by line; one thread each. Keys of 32 bits have the line above them.
__global__ void find_keys(std::uint64_t* keys, std::int64_t* places, SortCall call, bool with_line, std::int64_t count) {
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const std::int64_t line = i / call.lines.size;
    keys[i] = call.key(line, i % call.lines.size) | (with_line ? static_cast<std::uint64_t>(line) << 32 : 0);
    places[i] = i;
  }
}

__global__ void find_lines(std::uint64_t* keys, const std::int64_t* places, std::int64_t size, std::int64_t count) {
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) keys[i] = static_cast<std::uint64_t>(places[i] / size);
}

__global__ void write_sorted(SortCall call, const std::int64_t* places, std::int64_t count) {
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const std::int64_t line = i / call.lines.count, rank = i % call.lines.count;
    call.write(line, rank, places[line * call.lines.size + rank] - line * call.lines.size);
  }
}

/// All elements by their keys, and those by their lines.
void sort_long_lines(const KernelContext& context, const SortCall& call) {
  const std::int64_t lines = call.lines.lines(), elements = lines * call.lines.size, kept = lines * call.lines.count;
  const bool with_line = call.element_bytes < 8;
  const int line_bits = std::bit_width(static_cast<std::uint64_t>(lines - 1));
  KeySort sort(context.scratch, elements);
  cuda::launch(find_keys, cuda::loop_shape(elements), context.stream, sort.keys(), sort.places(), call, with_line, elements);
  sort.sort(context.stream, with_line ? 32 + line_bits : 64);
  if (!with_line && lines > 1) {
    cuda::launch(find_lines, cuda::loop_shape(elements), context.stream, sort.keys(), sort.places(), call.lines.size, elements);
    sort.sort(context.stream, line_bits);
  }
  cuda::launch(write_sorted, cuda::loop_shape(kept), context.stream, call, sort.places(), kept);
}

constexpr int few_threads = 64, few_items = 4, many_threads = 256, many_items = 16;
constexpr std::int64_t longest_in_registers = many_threads * many_items;

template <class Key>
void launch_short(cudaStream_t stream, const SortCall& call) {
  constexpr std::int64_t most_blocks = 1 << 16;
  const dim3 blocks(static_cast<unsigned>(std::min(call.lines.lines(), most_blocks)));
  if (call.lines.size <= few_threads * few_items) {
    return cuda::launch(sort_short_lines<Key, few_threads, few_items>, {blocks, dim3(few_threads)}, stream, call);
  }
  cuda::launch(sort_short_lines<Key, many_threads, many_items>, {blocks, dim3(many_threads)}, stream, call);
}

void run(const KernelContext& context) {
  const SortCall call(context);
  if (call.lines.lines() * call.lines.count == 0) return;
  if (call.lines.size > longest_in_registers) return sort_long_lines(context, call);
  call.element_bytes == 8 ? launch_short<std::uint64_t>(context.stream, call) : launch_short<std::uint32_t>(context.stream, call);
}

std::size_t scratch(const InferContext& call) {
  const SortedLines lines(call.shape(0), call.as<SortAttributes>());
  return lines.size > longest_in_registers ? KeySort::bytes(lines.lines() * lines.size) : 0;
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(sort) { registry.add_cuda("sort", {.run = run, .halves = true, .scratch = scratch}); }
