// The norm of all elements of many tensors, and the scale that clips it. Squares and sums are float64, whose range holds the square of any
// float32; one such product an element is less than memory takes to bring it.

#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/reduce.cuh"
#include "frit/ops/cuda/reduce_states.cuh"
#include "frit/ops/cuda/tensor_table.cuh"
#include "frit/ops/elementwise/pointwise.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/operator/scratch_parts.h"
#include "frit/ops/optimizer/gradient_scale.h"

namespace frit::ops {
namespace {

constexpr std::int64_t block_chunk = 8192;   // elements that a block takes
constexpr std::int64_t warp_chunk = 256;     // that a warp takes where few elements make the whole norm
constexpr std::int64_t few_chunks = 6 * 32;  // of a warp each: a block takes them in six turns

template <class T>
struct Squares : TensorSource<T> {
  template <int n>
  __device__ double term(const cuda::VectorWords<T, n>& raw, int i) const {
    const auto element = convert<double>(raw[i]);
    return element * element;
  }
};

struct Neighbours {
  template <int count>
  __device__ void offsets(std::int64_t (&result)[count], std::int64_t first, std::int64_t step) const {
#pragma unroll
    for (int i = 0; i < count; ++i) result[i] = first + i * step;
  }
};

/// Tensors of one dtype, or of float32 and halves.
struct NormTable : TensorTable<1> {
  DType dtypes[capacity];

  using TensorTable::TensorTable;
  void add(const Tensor& tensor) {
    dtypes[tensors] = tensor.dtype();
    TensorTable::add(tensor.elements(), {tensor.raw()});
  }
  /// body(a tensor's elements), which are of type T, or halves where that is float.
  template <class T, class Body>
  __device__ void with(int tensor, const Body& body) const {
    const void* const elements = memory[0][tensor];
    if constexpr (std::is_same_v<T, float>) {
      if (dtypes[tensor] == DType::f16) return body(static_cast<const Half*>(elements));
      if (dtypes[tensor] == DType::bf16) return body(static_cast<const BFloat16*>(elements));
    }
    body(static_cast<const T*>(elements));
  }
};

/// A block a chunk of a tensor, which it reads once. Deterministic.
template <class T>
__global__ void __launch_bounds__(LinePlan::threads) sum_squares(double* sums, const __grid_constant__ NormTable table) {  // (chunks)
  __shared__ Sum<double> shared[LinePlan::threads];
  const auto chunk = table.chunk(blockIdx.x);
  const Line line{0, 0, chunk.begin, chunk.end, static_cast<int>(threadIdx.x), LinePlan::threads};
  Sum<double> own[1] = {Sum<double>::identity()};
  table.with<T>(chunk.tensor,
                [&]<class Stored>(const Stored* elements) { read_lines(own, SumOf<Squares<Stored>>{{{elements}}}, line, Neighbours{}); });
  const auto sum = merge_team(own[0], {1, LinePlan::threads}, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum.value();
}

/// One block, a warp a chunk, which it reads at once: the norm of few elements in one launch. Deterministic.
template <class T>
__global__ void __launch_bounds__(1024) norm_of_few(T* norm, const __grid_constant__ NormTable table) {
  constexpr int lane_elements = warp_chunk / cuda::warp_size;
  __shared__ double shared[cuda::warp_size];
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  double sum = 0;
  for (std::int64_t number = threadIdx.x / cuda::warp_size; number < table.chunks; number += blockDim.x / cuda::warp_size) {
    const auto chunk = table.chunk(number);
    const std::int64_t first = chunk.begin + lane, left = chunk.end - first;
    table.with<T>(chunk.tensor, [&]<class Stored>(const Stored* of_tensor) {
      const Stored* const x = of_tensor + first;
      Stored elements[lane_elements];
#pragma unroll
      for (int i = 0; i < lane_elements; ++i) elements[i] = i * cuda::warp_size < left ? x[i * cuda::warp_size] : Stored{};
#pragma unroll
      for (int i = 0; i < lane_elements; ++i) {
        const auto term = convert<double>(elements[i]);
        sum += term * term;
      }
    });
  }
  sum = cuda::block_reduce(sum, shared);
  if (threadIdx.x == 0) *norm = convert<T>(std::sqrt(sum));
}

template <class T>
struct NormOfSums : SumOf<TensorSource<double>> {
  T* norm;

  __device__ void finish(const State& state, const Line&) const { *norm = convert<T>(std::sqrt(state.value())); }
};

/// The scratch memory: a sum for each chunk, and their reduction's states.
std::size_t norm_scratch(const InferContext& call) {
  std::int64_t chunks = 0;
  for (const TensorType& type : call.inputs) chunks += (type.elements() + block_chunk - 1) / block_chunk;
  return aligned(chunks, sizeof(double)) + LinePlan::scratch_bytes({chunks}, {0}, sizeof(Sum<double>));
}

/// False, with nothing done, if the tensors are too many or too large for one block.
template <class T>
bool run_few(const KernelContext& call) {
  NormTable table(warp_chunk);
  for (const Tensor& tensor : call.inputs) {
    if (table.full()) return false;
    table.add(tensor);
    if (table.chunks > few_chunks) return false;
  }
  cuda::launch(norm_of_few<T>, {dim3(1), dim3(1024)}, call.stream, call.outputs[0].data<T>(), table);
  return true;
}

void norm_kernel(const KernelContext& call) {
  dispatch_floating_and_halves(call.outputs[0].dtype(), [&]<class T>() {
    if (run_few<T>(call)) return;
    auto* const sums = reinterpret_cast<double*>(call.scratch.data());
    std::int64_t chunks = 0;
    NormTable table(block_chunk);
    const auto launch = [&] {
      if (table.chunks > 0) {
        const cuda::LaunchShape shape{dim3(static_cast<unsigned>(table.chunks)), dim3(LinePlan::threads)};
        cuda::launch(sum_squares<T>, shape, call.stream, sums + chunks, table);
      }
      chunks += table.chunks;
      table = NormTable(block_chunk);
    };
    for (const Tensor& tensor : call.inputs) {
      table.add(tensor);
      if (table.full()) launch();
    }
    launch();
    reduce_lines(call.stream, NormOfSums<T>{{{sums}}, call.outputs[0].data<T>()}, Lines({chunks}, {1}, {0}),
                 call.scratch.subspan(aligned(chunks, sizeof(double))));
  });
}

void clip_kernel(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const ClipScale<T> scale{static_cast<T>(call.as<ClipAttributes>().max_norm)};
    map_elements<T, T>(call.stream, call.outputs[0], call.inputs, scale);
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(global_norm) {
  registry.add_cuda("global_norm", {.run = norm_kernel, .halves = true, .scratch = norm_scratch});
  registry.add_cuda("clip_scale", {.run = clip_kernel});
}
