// The optimizers' updates of one parameter. Learning rate and step number are read where they lie, on the device.

#include <new>

#include "frit/ops/elementwise/pointwise.cuh"
#include "frit/ops/optimizer/update_functors.h"

namespace frit::ops {
namespace {

/// What an update changes: the parameter, then what the optimizer keeps of it.
template <class T, int count>
struct Variables {
  T* data[count];
};

template <class Update, class T, int width, int count, std::size_t... I>
__device__ void update_run(const Update& update, cuda::Vector<T, width> (&variables)[count], const cuda::Vector<T, width>& gradient,
                           std::index_sequence<I...>) {
#pragma unroll
  for (int v = 0; v < width; ++v) update(variables[I][v]..., gradient[v]);
}

template <class To, class From, int width>
__device__ cuda::Vector<To, width> converted(const cuda::Vector<From, width>& elements) {
  cuda::Vector<To, width> result;
#pragma unroll
  for (int v = 0; v < width; ++v) result[v] = convert<To>(elements[v]);
  return result;
}

/// A thread takes `width` neighbouring elements at a time; reads the gradient and the variables, and writes the variables. One thread of
/// each block computes the update's scalars. A negative scale of the gradient ends it at once. Deterministic.
template <class Update, int width, class Options, class T, int count>
__global__ void update_kernel(Variables<T, count> variables, const T* gradient, Options options, const double* rate,
                              const std::int64_t* step, const T* gradient_scale, std::int64_t elements, bool vector) {
  using C = Computed<T>;
  const C scale = convert<C>(*gradient_scale);
  if (scale < 0) return;
  alignas(Update) __shared__ unsigned char shared[sizeof(Update)];
  if (threadIdx.x == 0) new (shared) Update(options, *rate, *step);
  __syncthreads();
  const Update update = *reinterpret_cast<const Update*>(shared);
  for (std::int64_t first = cuda::first_item() * width; first < elements; first += cuda::item_step() * width) {
    const std::int64_t rest = elements - first;
    cuda::Vector<C, width> values[count];
#pragma unroll
    for (int k = 0; k < count; ++k) values[k] = converted<C>(elementwise::load<width>(variables.data[k] + first, rest, vector));
    auto g = converted<C>(elementwise::load<width>(gradient + first, rest, vector));
#pragma unroll
    for (int v = 0; v < width; ++v) g[v] *= scale;
    update_run(update, values, g, std::make_index_sequence<count>());
#pragma unroll
    for (int k = 0; k < count; ++k) elementwise::store(variables.data[k] + first, converted<T>(values[k]), rest, vector);
  }
}

/// Inputs: parameter, gradient, rate, step, gradient scale, and count - 1 more variables.
template <template <class> class Update, class Options, int count>
void run_cuda_update(const KernelContext& call) {
  const std::int64_t elements = call.inputs[0].elements();
  if (elements == 0) return;
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    constexpr int width = elementwise::width_for<T>;
    Variables<T, count> variables;
    bool vector = elementwise::fits_vectors(call.inputs[1], width);
    for (std::size_t k = 0; k < count; ++k) {
      const Tensor& variable = call.inputs[k == 0 ? 0 : k + 4];
      variables.data[k] = variable.data<T>();
      vector = vector && elementwise::fits_vectors(variable, width);
    }
    // As many blocks as run at once, since each computes the scalars anew.
    cuda::LaunchShape shape = cuda::loop_shape((elements + width - 1) / width);
    shape.grid.x = std::min(shape.grid.x, 8u * static_cast<unsigned>(cuda::properties(call.inputs[0].device().index).multiprocessors));
    cuda::launch(update_kernel<Update<Computed<T>>, width, Options, T, count>, shape, call.stream, variables, call.inputs[1].data<T>(),
                 call.as<Options>(), call.inputs[2].data<double>(), call.inputs[3].data<std::int64_t>(), call.inputs[4].data<T>(), elements,
                 vector);
  });
}

void run_cuda_sgd(const KernelContext& call) {
  (call.has(5) ? run_cuda_update<SgdUpdate, SgdOptions, 2> : run_cuda_update<SgdUpdate, SgdOptions, 1>)(call);
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
__global__ void clear_unless_skipped(T* variable, const T* gradient_scale, std::int64_t elements) {
  if (convert<Computed<T>>(*gradient_scale) < 0) return;
  for (std::int64_t i = cuda::first_item(); i < elements; i += cuda::item_step()) variable[i] = convert<T>(Computed<T>{0});
}

void run_cuda_clear(const KernelContext& call) {
  const std::int64_t elements = call.inputs[0].elements();
  if (elements == 0) return;
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    cuda::launch(clear_unless_skipped<T>, cuda::loop_shape(elements), call.stream, call.inputs[0].data<T>(), call.inputs[1].data<T>(),
                 elements);
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(optimizer_ops) {
  registry.add_cuda("sgd_update", {.run = run_cuda_sgd, .halves = true});
  registry.add_cuda("adam_update", {.run = run_cuda_update<AdamUpdate, AdamOptions, 3>, .halves = true});
  registry.add_cuda("advance", {.run = run_cuda_advance});
  registry.add_cuda("clear", {.run = run_cuda_clear, .halves = true});
}
