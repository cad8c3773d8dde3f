// The mean of each window.

#include "frit/ops/operator/registry.h"
#include "frit/ops/pool/pool_layouts.cuh"

namespace frit::ops {
namespace {

/// How many elements a window's mean counts.
struct WindowSize {
  bool count_padding;

  template <class C, class Index>
  __device__ C operator()(const PoolPlan<Index>& pool, Index depth, Index height, Index width) const {
    return static_cast<C>(extent(pool.depth, depth) * extent(pool.height, height) * extent(pool.width, width));
  }

 private:
  template <class Index>
  __device__ std::int64_t extent(const PoolAxis<Index>& axis, Index o) const {
    const Index begin = axis.window_begin(o), padding = count_padding ? axis.padding : 0;
    return min(begin + axis.kernel, axis.image + padding) - max(begin, -padding);
  }
};

template <class T>
struct Mean {
  using C = Computed<T>;

  struct State {
    double total;

    __device__ friend State operator+(const State& a, const State& b) { return {a.total + b.total}; }
  };

  T* output;
  WindowSize size;

  __device__ static C missing() { return 0; }
  __device__ static State begin(std::int64_t) { return {0}; }

  /// Few elements are summed in their own type, the sums in double.
  template <class Index, int count>
  __device__ void take(State& state, const C (&values)[count], const Index (&)[count]) const {
    C sum = 0;
#pragma unroll
    for (int j = 0; j < count; ++j) sum += values[j];
    state.total += static_cast<double>(sum);
  }
  template <class Index, int count>
  __device__ void finish(std::int64_t i, const PoolPlan<Index>& pool, const Window<Index>& window, const State (&states)[count]) const {
    const C elements = size.operator()<C>(pool, window.depth, window.height, window.width);
    cuda::Vector<T, count> means;
#pragma unroll
    for (int k = 0; k < count; ++k) means[k] = convert<T>(static_cast<C>(states[k].total) / elements);
    cuda::store_vector(output + i, means);
  }
  bool aligned() const { return cuda::aligned_for_vectors(output); }
};

void run(const KernelContext& call, int image_rank) {
  const PoolOptions& options = call.as<PoolOptions>();
  const PoolGeometry g = pool_geometry(call.inputs[0].shape(), options, image_rank);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    reduce_all_windows<T>(call.inputs[0], g, call.stream, [&](std::int64_t offset) {
      return Mean<T>{call.outputs[0].data<T>() + offset, {options.count_include_pad}};
    });
  });
}

/// A window hands an equal share of its gradient to every element.
template <class T>
struct EqualShare {
  const T* gradient;
  WindowSize size;

  template <class Index, int count>
  __device__ void add(Computed<T> (&sums)[count], const PoolPlan<Index>& pool, Index element, Index depth, Index height, Index width,
                      Index) const {
    const auto g = *reinterpret_cast<const cuda::Vector<T, count>*>(gradient + element);
    const auto elements = size.operator()<Computed<T>>(pool, depth, height, width);
#pragma unroll
    for (int k = 0; k < count; ++k) sums[k] += convert<Computed<T>>(g[k]) / elements;
  }
  bool aligned() const { return cuda::aligned_for_vectors(gradient); }
};

void run_backward(const KernelContext& call, int image_rank) {
  const PoolOptions& options = call.as<PoolBackwardAttributes>().options;
  const PoolGeometry g = pool_geometry(call.outputs[0].shape(), options, image_rank);
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    gather_all_windows<T>(call.outputs[0], g, call.stream, [&](std::int64_t offset) {
      return EqualShare<T>{call.inputs[0].data<T>() + offset, {options.count_include_pad}};
    });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(avg_pool) {
  for (const int image_rank : {2, 3}) {
    const std::string name = concat("avg_pool", image_rank, "d");
    registry.add_cuda(name, pool_kernel([image_rank](const KernelContext& call) { run(call, image_rank); }, {0}, {0}));
    registry.add_cuda(name + "_backward",
                      pool_kernel([image_rank](const KernelContext& call) { run_backward(call, image_rank); }, {0}, {0}));
  }
}
