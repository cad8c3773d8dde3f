// Losses of a prediction and a target, element by element, with their mean or sum, and the gradients.

#include "frit/ops/cuda/elementwise.h"
#include "frit/ops/cuda/reduce_states.h"
#include "frit/ops/loss/loss_functors.h"
#include "frit/ops/loss/loss_reduction.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

template <class Loss>
struct LossValue {
  template <class T>
  __device__ T operator()(T prediction, T target) const {
    return Loss::value(prediction, target);
  }
};

template <class Loss, class T>
struct LossTerm {
  const T *prediction, *target;
  __device__ T operator()(std::int64_t offset) const { return Loss::value(prediction[offset], target[offset]); }
};

std::size_t scratch(const InferContext& call) { return LinePlan::scratch_bytes({call.inputs[0].elements()}, {0}, sizeof(Sum<double>)); }

template <class Loss>
void kernel(const KernelContext& call) {
  const Reduction reduction = reduction_of(call.attributes);
  const Tensor &prediction = call.inputs[0], &target = call.inputs[1], &output = call.outputs[0];
  const std::int64_t elements = prediction.elements();
  dispatch_floating(prediction.dtype(), [&]<class T>() {
    if (reduction == Reduction::none) return map_elements<T, T, T>(call.stream, output, call.inputs, LossValue<Loss>{});
    const DividedSum<T, LossTerm<Loss, T>, T> sum({prediction.data<T>(), target.data<T>()}, output.data<T>(),
                                                  reduction == Reduction::mean ? elements : 1);  // the mean over nothing is NaN
    reduce_lines(call.stream, sum, LinePlan({elements}, {1}, {0}), call.scratch);
  });
}

/// A thread takes `width` neighbouring elements at a time: it reads those of prediction, target and, with `one_gradient` not set, gradient,
/// then writes the gradients that are not null, which may lie on the inputs. Each element is read and written once, in 16-byte accesses if
/// all pointers allow it. Deterministic.
template <class Loss, class T>
__global__ void loss_gradients(T* by_prediction, T* by_target, const T* gradient, const T* prediction, const T* target, std::int64_t count,
                               T divisor, bool one_gradient, bool vectors) {
  constexpr int width = cuda::vector_width<T>;
  using Elements = cuda::WideVector<T>;
  const T shared_scale = one_gradient ? *gradient / divisor : T{0};
  for (std::int64_t first = cuda::first_item() * width; first < count; first += cuda::item_step() * width) {
    const auto load = [&](const T* memory) {
      if (vectors && count - first >= width) return *reinterpret_cast<const Elements*>(memory + first);
      Elements elements{};
      for (int v = 0; v < width && first + v < count; ++v) elements[v] = memory[first + v];
      return elements;
    };
    const Elements p = load(prediction), t = load(target);
    Elements scale{};
    if (!one_gradient) scale = load(gradient);
    Elements p_gradient, t_gradient;
#pragma unroll
    for (int v = 0; v < width; ++v) {
      const T factor = one_gradient ? shared_scale : scale[v];
      p_gradient[v] = Loss::by_prediction(p[v], t[v]) * factor;
      t_gradient[v] = Loss::by_target(p[v], t[v]) * factor;
    }
    if (by_prediction != nullptr) elementwise::store(by_prediction + first, p_gradient, count - first, vectors);
    if (by_target != nullptr) elementwise::store(by_target + first, t_gradient, count - first, vectors);
  }
}

/// Either result may be undefined.
template <class Loss>
void backward_kernel(const KernelContext& call) {
  const Reduction reduction = reduction_of(call.attributes);
  const std::int64_t elements = call.inputs[1].elements();
  if (elements == 0) return;
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    const auto memory = [](const Tensor& tensor) { return tensor.defined() ? tensor.data<T>() : nullptr; };
    T* const pointers[] = {memory(call.outputs[0]), memory(call.outputs[1]), memory(call.inputs[0]), memory(call.inputs[1]),
                           memory(call.inputs[2])};
    const bool one_gradient = reduction != Reduction::none;
    bool vectors = true;
    for (const T* const pointer : pointers) vectors = vectors && cuda::aligned_for_vectors(pointer);
    const T divisor = reduction == Reduction::mean ? static_cast<T>(elements) : T{1};
    constexpr int width = cuda::vector_width<T>;
    cuda::launch(loss_gradients<Loss, T>, cuda::loop_shape((elements + width - 1) / width), call.stream, pointers[0], pointers[1],
                 pointers[2], pointers[3], pointers[4], elements, divisor, one_gradient, vectors);
  });
}

template <class Loss>
void add_loss(Registry& registry, const std::string& name) {
  registry.add_cuda(name, {.run = kernel<Loss>, .scratch = scratch});
  registry.add_cuda(name + "_backward", {.run = backward_kernel<Loss>});
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(elementwise_loss) {
  add_loss<SquaredError>(registry, "mean_squared_error");
  add_loss<AbsoluteError>(registry, "l1_loss");
  add_loss<LogisticCrossEntropy>(registry, "binary_cross_entropy_with_logits");
}
