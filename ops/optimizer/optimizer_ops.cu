// The optimizers' updates of parameters, many in one launch. Learning rate and step number are read where they lie, on the device.

#include <new>

#include "frit/core/communication/parts.h"
#include "frit/ops/cuda/tensor_table.cuh"
#include "frit/ops/elementwise/pointwise.cuh"
#include "frit/ops/optimizer/update_functors.h"

namespace frit::ops {
namespace {

template <class Update, class T, int width, int count, std::size_t... I>
__device__ void update_run(const Update& update, cuda::Vector<T, width> (&variables)[count], const cuda::Vector<T, width>& gradient,
                           std::index_sequence<I...>) {
#pragma unroll
  for (int v = 0; v < width; ++v) update(variables[I][v]..., gradient[v]);
}

template <int width, class T>
__device__ bool fits_vectors(const T* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % (width * sizeof(T)) == 0;
}

/// Elements of a chunk, which a block takes in two turns.
template <class T>
inline constexpr std::int64_t chunk_elements = std::int64_t{2} * elementwise::width_for<T>* cuda::default_threads;

/// Of each tensor the table holds the variables, then the gradient. A block takes the chunks with a stride of the grid, of which a thread
/// takes `width` neighbouring elements at a time; reads the gradient and the variables, and writes the variables. One thread of each block
/// computes the update's scalars. A negative scale of the gradient ends it at once. Deterministic.
template <class Update, class Options, class T, class Gradient, int count>
__global__ void __launch_bounds__(cuda::default_threads)
    update_kernel(const __grid_constant__ TensorTable<count + 1> table, Options options, const double* rate, const std::int64_t* step,
                  const T* gradient_scale) {
  using C = Computed<T>;
  constexpr int width = elementwise::width_for<T>;
  const C scale = convert<C>(*gradient_scale);
  if (scale < 0) return;
  alignas(Update) __shared__ unsigned char shared[sizeof(Update)];
  if (threadIdx.x == 0) new (shared) Update(options, *rate, *step);
  __syncthreads();
  const Update update = *reinterpret_cast<const Update*>(shared);
  for (std::int64_t number = blockIdx.x; number < table.chunks; number += gridDim.x) {
    const auto chunk = table.chunk(number);
    const auto* const gradient = static_cast<const Gradient*>(table.memory[count][chunk.tensor]);
    bool vector = fits_vectors<width>(gradient);
    T* variables[count];  // the parameter, then what the optimizer keeps of it
#pragma unroll
    for (int k = 0; k < count; ++k) {
      variables[k] = static_cast<T*>(table.memory[k][chunk.tensor]);
      vector = vector && fits_vectors<width>(variables[k]);
    }
    for (std::int64_t first = chunk.begin + threadIdx.x * width; first < chunk.end; first += blockDim.x * width) {
      const std::int64_t rest = chunk.end - first;
      cuda::Vector<C, width> values[count];
#pragma unroll
      for (int k = 0; k < count; ++k) values[k] = converted<C, width>(elementwise::load<width>(variables[k] + first, rest, vector));
      auto g = converted<C, width>(elementwise::load<width>(gradient + first, rest, vector));
#pragma unroll
      for (int v = 0; v < width; ++v) g[v] *= scale;
      update_run(update, values, g, std::make_index_sequence<count>());
#pragma unroll
      for (int k = 0; k < count; ++k) elementwise::store(variables[k] + first, converted<T, width>(values[k]), rest, vector);
    }
  }
}

/// Calls launch(call, table) for each stretch of the calls that fits a table and has the inputs from `shared` to `shared_end` in common, of
/// which `call` is one. The table holds the memory of the inputs `arrays`, from where placed(call, memory) moves it, which gives the number
/// of elements.
template <class T, std::size_t count, class Place, class Launch>
void for_each_table(std::span<const KernelContext> calls, const std::array<std::size_t, count>& arrays, std::size_t shared,
                    std::size_t shared_end, const Place& placed, const Launch& launch) {
  TensorTable<static_cast<int>(count)> table(chunk_elements<T>);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    std::array<void*, count> memory;
    for (std::size_t k = 0; k < count; ++k) memory[k] = calls[i].inputs[arrays[k]].raw();
    table.add(placed(calls[i], memory), memory);
    bool more = i + 1 < calls.size() && !table.full();
    for (std::size_t k = shared; more && k < shared_end; ++k) more = calls[i].inputs[k].raw() == calls[i + 1].inputs[k].raw();
    if (more) continue;
    if (table.chunks > 0) launch(calls[i], table);
    table = TensorTable<static_cast<int>(count)>(chunk_elements<T>);
  }
}

/// As many blocks as run at once, since each computes the scalars for itself.
cuda::LaunchShape shape_for(std::int64_t chunks, const KernelContext& call) {
  const std::int64_t blocks = 8 * cuda::properties(call.inputs[0].device().index).multiprocessors;
  return {dim3(static_cast<unsigned>(std::min(chunks, blocks))), dim3(cuda::default_threads)};
}

/// Inputs: parameter, gradient, rate, step, gradient scale, and count - 1 more variables.
template <template <class> class Update, class Options, int count>
void run_cuda_updates(std::span<const KernelContext> calls) {
  std::array<std::size_t, count + 1> arrays{};
  for (std::size_t k = 1; k < count; ++k) arrays[k] = k + 4;
  arrays[count] = 1;
  const auto run = [&]<class T, class Gradient>() {
    const auto placed = [](const KernelContext& call, std::array<void*, count + 1>& memory) {
      const UpdatedPart& part = call.as<UpdateAttributes<Options>>().part;
      const Parts parts(call.inputs[0].elements(), static_cast<int>(part.processes));
      memory[0] = static_cast<T*>(memory[0]) + parts.begin(static_cast<int>(part.rank));
      return call.inputs[1].elements();
    };
    for_each_table<T>(calls, arrays, 2, 5, placed, [](const KernelContext& call, const TensorTable<count + 1>& table) {
      cuda::launch(update_kernel<Update<Computed<T>>, Options, T, Gradient, count>, shape_for(table.chunks, call), call.stream, table,
                   call.as<UpdateAttributes<Options>>().options, call.inputs[2].data<double>(), call.inputs[3].data<std::int64_t>(),
                   call.inputs[4].data<T>());
    });
  };
  dispatch_floating_and_halves(calls[0].inputs[0].dtype(), [&]<class T>() {
    if constexpr (std::is_same_v<T, float>) {
      dispatch_floating_and_halves(calls[0].inputs[1].dtype(), [&]<class Gradient>() {
        if constexpr (!std::is_same_v<Gradient, double>) run.template operator()<float, Gradient>();
      });
    } else {
      run.template operator()<T, T>();
    }
  });
}

void run_cuda_sgd(std::span<const KernelContext> calls) {
  (calls[0].has(5) ? run_cuda_updates<SgdUpdate, SgdOptions, 2> : run_cuda_updates<SgdUpdate, SgdOptions, 1>)(calls);
}

/// One thread.
template <class T>
__global__ void advance_unless_skipped(std::int64_t* step, const T* gradient_scale) {
  if (!(*gradient_scale < 0)) ++*step;
}

void run_cuda_advance(const KernelContext& call) {
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    cuda::launch(advance_unless_skipped<T>, {.grid = 1, .block = 1}, call.stream, call.inputs[0].data<std::int64_t>(),
                 call.inputs[1].data<T>());
  });
}

template <class T>
__global__ void __launch_bounds__(cuda::default_threads)
    clear_unless_skipped(const __grid_constant__ TensorTable<1> table, const T* gradient_scale) {
  if (convert<Computed<T>>(*gradient_scale) < 0) return;
  for (std::int64_t number = blockIdx.x; number < table.chunks; number += gridDim.x) {
    const auto chunk = table.chunk(number);
    T* const variable = static_cast<T*>(table.memory[0][chunk.tensor]);
    for (std::int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x) variable[i] = convert<T>(Computed<T>{0});
  }
}

void run_cuda_clear(std::span<const KernelContext> calls) {
  dispatch_floating_and_halves(calls[0].inputs[0].dtype(), [&]<class T>() {
    const auto placed = [](const KernelContext& call, const std::array<void*, 1>&) { return call.inputs[0].elements(); };
    for_each_table<T>(calls, std::array<std::size_t, 1>{0}, 1, 2, placed, [](const KernelContext& call, const TensorTable<1>& table) {
      cuda::launch(clear_unless_skipped<T>, shape_for(table.chunks, call), call.stream, table, call.inputs[1].data<T>());
    });
  });
}

/// A call that stands alone takes the same way, so that its bits are the same.
Kernel kernel_of(void (*run_calls)(std::span<const KernelContext>)) {
  return {.run = [run_calls](const KernelContext& call) { run_calls({&call, 1}); }, .run_together = run_calls, .halves = true};
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(optimizer_ops) {
  registry.add_cuda("sgd_update", kernel_of(run_cuda_sgd));
  registry.add_cuda("adam_update", kernel_of(run_cuda_updates<AdamUpdate, AdamOptions, 3>));
  registry.add_cuda("advance", {.run = run_cuda_advance});
  registry.add_cuda("clear", kernel_of(run_cuda_clear));
}
