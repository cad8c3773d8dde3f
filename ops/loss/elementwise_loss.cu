// Losses of a prediction and a target, element by element, with their mean or sum, and the gradients.

#include "frit/core/cuda/reduce.cuh"
#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/elementwise.cuh"
#include "frit/ops/cuda/reduce.cuh"
#include "frit/ops/cuda/reduce_states.cuh"
#include "frit/ops/loss/loss_functors.h"
#include "frit/ops/loss/loss_reduction.h"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

constexpr int runs_at_once = 4;
constexpr std::int64_t most_blocks = 132 * 8;

/// Threads that take `runs_at_once` runs of `width` neighbouring elements at a time share out a tensor's elements, all blocks alike.
template <class... Stored>
cuda::LaunchShape shape_for(std::int64_t elements) {
  constexpr std::int64_t block_elements = cuda::default_threads * runs_at_once * elementwise::width_for<Stored...>;
  const std::int64_t blocks = std::max<std::int64_t>(1, (elements + block_elements - 1) / block_elements);
  const std::int64_t turns = (blocks + most_blocks - 1) / most_blocks;
  return {dim3(static_cast<unsigned>((blocks + turns - 1) / turns)), dim3(cuda::default_threads)};
}

/// Whether all that is not null may be read and written in vectors.
template <class... Pointers>
bool all_aligned(Pointers... pointers) {
  return (cuda::aligned_for_vectors(pointers) && ...);
}

template <class T>
struct Merge {
  __device__ Sum<T> operator()(Sum<T> a, Sum<T> b) const { return Sum<T>::merge(a, b); }
};

/// Calls body(first, left, vectors, prediction's elements, target's) for the thread's runs of `width` neighbouring elements, of which
/// `left` or all exist. If `vectors`, several runs are on their way before the first body is called.
template <int width, class Prediction, class Target, class Body>
__device__ void for_each_run(const Prediction* prediction, const Target* target, std::int64_t count, bool vectors, const Body& body) {
  const std::int64_t own = cuda::first_item() * width, apart = cuda::item_step() * width, whole = vectors ? count / width * width : 0;
  for (std::int64_t first = own; first < whole; first += apart * runs_at_once) {
    cuda::Vector<Prediction, width> p[runs_at_once];
    cuda::Vector<Target, width> t[runs_at_once];
#pragma unroll
    for (int u = 0; u < runs_at_once; ++u) {
      const std::int64_t run = first + u * apart < whole ? first + u * apart : first;
      p[u] = *reinterpret_cast<const cuda::Vector<Prediction, width>*>(prediction + run);
      t[u] = *reinterpret_cast<const cuda::Vector<Target, width>*>(target + run);
    }
#pragma unroll
    for (int u = 0; u < runs_at_once; ++u) {
      if (first + u * apart < whole) body(first + u * apart, std::int64_t{width}, true, p[u], t[u]);
    }
  }
  for (std::int64_t first = whole + own; first < count; first += apart) {
    const std::int64_t left = count - first;
    body(first, left, false, elementwise::load<width>(prediction + first, left, false),
         elementwise::load<width>(target + first, left, false));
  }
}

/// Reads prediction and target and writes, unless they are null, their losses and gradients, which may lie on the inputs. Each element is
/// read and written once, in 16-byte accesses if `vectors`. A block's sum goes to `block_sums` unless that is null. Deterministic.
template <class Loss, class Prediction, class Target, class T>
__global__ void __launch_bounds__(cuda::default_threads)
    loss_values(Target* values, Prediction* unit_gradient, Sum<T>* block_sums, const Prediction* prediction, const Target* target,
                std::int64_t count, T gradient_share, bool vectors) {
  constexpr int width = elementwise::width_for<Prediction, Target>;
  __shared__ Sum<T> shared[cuda::warp_size];
  Sum<T> sum = Sum<T>::identity();
  for_each_run<width>(prediction, target, count, vectors,
                      [&](std::int64_t first, std::int64_t left, bool vector, const auto& p, const auto& t) {
                        T losses[width];
#pragma unroll
                        for (int v = 0; v < width; ++v) losses[v] = v < left ? Loss::value(convert<T>(p[v]), convert<T>(t[v])) : T{0};
                        if (values != nullptr) elementwise::store(values + first, converted<Target, width>(losses), left, vector);
                        if (unit_gradient != nullptr) {
                          cuda::Vector<Prediction, width> results;
#pragma unroll
                          for (int v = 0; v < width; ++v) {
                            results[v] = convert<Prediction>(Loss::by_prediction(convert<T>(p[v]), convert<T>(t[v])) * gradient_share);
                          }
                          elementwise::store(unit_gradient + first, results, left, vector);
                        }
                        sum = Sum<T>::merge(sum, Sum<T>::of(tree_sum(losses)));
                      });
  if (block_sums == nullptr) return;
  sum = cuda::block_reduce(sum, shared, Merge<T>{}, Sum<T>::identity());
  if (threadIdx.x == 0) block_sums[blockIdx.x] = sum;
}

/// One block. Deterministic.
template <class Stored, class T>
__global__ void __launch_bounds__(1024) divide_sum(Stored* loss, const Sum<T>* block_sums, int blocks, T divisor) {
  __shared__ Sum<T> shared[cuda::warp_size];
  Sum<T> sum = Sum<T>::identity();
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += static_cast<int>(blockDim.x)) sum = Sum<T>::merge(sum, block_sums[i]);
  sum = cuda::block_reduce(sum, shared, Merge<T>{}, Sum<T>::identity());
  if (threadIdx.x == 0) *loss = convert<Stored>(sum.value() / divisor);
}

/// For the blocks' sums of any dtype.
std::size_t scratch(const InferContext&) { return most_blocks * sizeof(Sum<double>); }

/// Calls `body` for the storage types of prediction and target.
template <class Body>
void dispatch_types(const Tensor& prediction, const Tensor& target, const Body& body) {
  dispatch_floating_and_halves(prediction.dtype(), [&]<class Prediction>() {
    if constexpr (is_half_type<Prediction>) {
      if (target.dtype() == DType::f32) return body.template operator()<Prediction, float>();
    }
    body.template operator()<Prediction, Prediction>();
  });
}

template <class Loss>
void kernel(const KernelContext& call) {
  const Reduction reduction = reduction_of(call.attributes);
  const Tensor &prediction = call.inputs[0], &target = call.inputs[1];
  const std::int64_t elements = prediction.elements();
  const bool reduced = reduction != Reduction::none;
  if (elements == 0 && !reduced) return;
  dispatch_types(prediction, target, [&]<class Prediction, class Target>() {
    using T = Computed<Target>;
    static_assert(sizeof(Sum<T>) <= sizeof(Sum<double>));
    const Prediction* const p = prediction.data<Prediction>();
    const Target* const t = target.data<Target>();
    Target* const loss = data_or_null<Target>(call.outputs[0]);
    Prediction* const unit_gradient = data_or_null<Prediction>(call.outputs[1]);
    Target* const values = reduced ? nullptr : loss;
    auto* const block_sums = reduced && loss != nullptr ? reinterpret_cast<Sum<T>*>(call.scratch.data()) : nullptr;
    const T divisor = reduction == Reduction::mean ? static_cast<T>(elements) : T{1};  // the mean over nothing is NaN
    const cuda::LaunchShape shape = shape_for<Prediction, Target>(elements);
    cuda::launch(loss_values<Loss, Prediction, Target, T>, shape, call.stream, values, unit_gradient, block_sums, p, t, elements,
                 1 / divisor, all_aligned(p, t, values, unit_gradient));
    if (block_sums == nullptr) return;
    cuda::launch(divide_sum<Target, T>, {dim3(1), dim3(1024)}, call.stream, loss, block_sums, static_cast<int>(shape.grid.x), divisor);
  });
}

template <class Loss>
void add_loss(Registry& registry, const std::string& name) {
  registry.add_cuda(name, {.run = kernel<Loss>,
                           .halves = true,
                           .scratch = scratch,
                           .any_layout_inputs = {0, 1},
                           .any_layout_outputs = {0, 1},
                           .one_layout = true});
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(elementwise_loss) {
  add_loss<SquaredError>(registry, "mean_squared_error");
  add_loss<AbsoluteError>(registry, "l1_loss");
  add_loss<LogisticCrossEntropy>(registry, "binary_cross_entropy_with_logits");
}
