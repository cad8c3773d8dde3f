// The cross entropy of logits (N, C, S) and a target class for each of the N S columns, and its gradient. A target that is no class, for
// which the CPU throws, makes its column NaN.

#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/reduce.cuh"
#include "frit/ops/cuda/reduce_states.cuh"
#include "frit/ops/loss/loss_functors.h"
#include "frit/ops/loss/loss_reduction.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

/// The target classes, -1 for what is no class.
struct CheckedTargets {
  Targets targets;
  std::int64_t classes;

  CheckedTargets(const Tensor& target, const Tensor& logits) : targets(target), classes(logits.dim(1)) {}
  __device__ std::int64_t operator[](std::int64_t column) const {
    const std::int64_t target = targets[column];
    return target >= 0 && target < classes ? target : -1;
  }
};

template <class T>
struct ColumnLoss : LogSumExpOf<T, Computed<T>> {
  using C = Computed<T>;
  CheckedTargets targets;
  std::int64_t class_stride;
  T* result;                // (N, S), or null
  C *loss, *maximum, *sum;  // (N, S), or null

  __device__ void finish(const LogSumExp<C>& state, const Line& line) const {
    if (result != nullptr || loss != nullptr) {
      const std::int64_t target = targets[line.result];
      const C logit = target < 0 ? std::numeric_limits<C>::quiet_NaN() : convert<C>(this->source.x[line.offset + target * class_stride]);
      const C value = finite_or_nan(state.maximum) - logit + logarithm(state.sum.value());
      if (result != nullptr) result[line.result] = convert<T>(value);
      if (loss != nullptr) loss[line.result] = value;
    }
    if (maximum != nullptr) maximum[line.result] = state.maximum;
    if (sum != nullptr) sum[line.result] = state.sum.value();
  }
};

Lines all_of(std::int64_t columns) { return {Shape{columns}, Strides{1}, {0}}; }

/// The scratch memory: the loss of each column, and one reduction's states.
std::size_t scratch(const InferContext& call) {
  const std::int64_t columns = call.inputs[1].elements();
  return aligned(columns, sizeof(double)) + std::max(LinePlan::scratch_bytes(call.shape(0), {1}, sizeof(LogSumExp<double>)),
                                                     LinePlan::scratch_bytes({columns}, {0}, sizeof(Sum<double>)));
}

void kernel(const KernelContext& call) {
  const Tensor &logits = call.inputs[0], &target = call.inputs[1];
  const Reduction reduction = reduction_of(call.attributes);
  const std::int64_t columns = target.elements();
  const std::span<std::byte> states = call.scratch.subspan(aligned(columns, sizeof(double)));
  dispatch_floating_and_halves(logits.dtype(), [&]<class T>() {
    using C = Computed<T>;
    T* const y = data_or_null<T>(call.outputs[0]);
    const bool adds = y != nullptr && reduction != Reduction::none;
    C* const losses = adds ? reinterpret_cast<C*>(call.scratch.data()) : nullptr;
    const ColumnLoss<T> loss{{{logits.data<T>()}},
                             CheckedTargets(target, logits),
                             logits.strides()[1],
                             adds ? nullptr : y,
                             losses,
                             data_or_null<C>(call.outputs[1]),
                             data_or_null<C>(call.outputs[2])};
    reduce_lines(call.stream, loss, Lines(logits, {1}), states);
    if (!adds) return;
    const DividedSum<C, T> total(losses, y, reduction == Reduction::mean ? columns : 1);  // the mean over nothing is NaN
    reduce_lines(call.stream, total, all_of(columns), states);
  });
}

/// (softmax(logits) - 1 at the target) times the loss's gradient.
template <class T>
struct ColumnGradient {
  using C = Computed<T>;
  T* output;
  TensorSource<T> source;      // (N, C, S)
  const T* gradient;           // (N, S), or with gradient_step 0 one for all
  Statistics<T> maximum, sum;  // (N, S)
  CheckedTargets targets;
  std::int64_t gradient_step;
  C divisor;

  struct Map {
    C shift, scale, g;
    std::int64_t target;
    template <class Raw>
    __device__ T operator()(const Raw& raw, int i, std::int64_t position) const {
      const C weight = exponential(convert<C>(raw[i]) - shift) * scale;
      return convert<T>(position == target ? weight - g : weight);
    }
  };
  __device__ Map map(const Line& line) const {
    const std::int64_t target = targets[line.result];
    const C g = convert<C>(gradient[line.result * gradient_step]) / divisor;
    const C scale = target < 0 ? std::numeric_limits<C>::quiet_NaN() : g / sum[line.result];
    return {finite_or_nan(maximum[line.result]), scale, g, target};
  }
};

void backward_kernel(const KernelContext& call) {
  const Tensor &logits = call.inputs[1], &target = call.inputs[2];
  const Reduction reduction = reduction_of(call.attributes);
  dispatch_floating_and_halves(logits.dtype(), [&]<class T>() {
    const ColumnGradient<T> gradient{
        .output = call.outputs[0].data<T>(),
        .source = {logits.data<T>()},
        .gradient = call.inputs[0].data<T>(),
        .maximum = Statistics<T>(call.inputs[3]),
        .sum = Statistics<T>(call.inputs[4]),
        .targets = CheckedTargets(target, logits),
        .gradient_step = reduction == Reduction::none ? 1 : 0,
        .divisor = reduction == Reduction::mean ? static_cast<Computed<T>>(target.elements()) : Computed<T>{1}};
    visit_lines(call.stream, gradient, Lines(logits, {1}));
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(cross_entropy) {
  registry.add_cuda("cross_entropy", {.run = kernel, .halves = true, .scratch = scratch, .any_layout_inputs = {0}});
  registry.add_cuda("cross_entropy_backward",
                    {.run = backward_kernel, .halves = true, .any_layout_inputs = {1}, .any_layout_outputs = {0}, .one_layout = true});
}
