// Softmax and log-softmax along an axis, and their gradients.

#include "frit/ops/cuda/reduce_states.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/softmax.h"

namespace frit::ops {
namespace {

template <class T>
struct Greatest {
  T value;
  __device__ static Greatest merge(Greatest a, Greatest b) { return {b.value > a.value ? b.value : a.value}; }
};

template <class Form, class T>
struct Normalize : LogSumExpOf<T> {
  T* output;

  /// Of a line in registers, each exponential is computed once.
  template <int batches, class Team>
  __device__ void finish_held(T (&terms)[batches][batch_size], const Team& team) const {
    Greatest<T> greatest{this->missing()};
    for_each(terms, [&](T& x) { greatest.value = x > greatest.value ? x : greatest.value; });
    const T maximum = team.merge(greatest).value;
    auto sum = Sum<T>::identity();
#pragma unroll
    for (auto& batch : terms) {
      T exponentials[batch_size];
#pragma unroll
      for (int i = 0; i < batch_size; ++i) {
        const T shifted = batch[i] - maximum;
        exponentials[i] = exponential(shifted);
        batch[i] = Form::kept(shifted, exponentials[i]);
      }
      sum = Sum<T>::merge(sum, Sum<T>::of(tree_sum(exponentials)));
    }
    const T normalizer = normalizer_of(maximum, team.merge(sum).value());
    for_each(terms, [&](T& x) { x = Form::finish(x, normalizer); });
  }

  struct Map {
    T maximum, normalizer;
    template <class Raw>
    __device__ T operator()(const Raw& raw, int i, std::int64_t) const {
      return Form::result(raw[i] - maximum, normalizer);
    }
  };
  __device__ Map map(const LogSumExp<T>& state, const Line&) const {
    return {state.maximum, normalizer_of(state.maximum, state.sum.value())};
  }

 private:
  /// An infinite maximum makes the whole line NaN, as in PyTorch.
  __device__ static T normalizer_of(T maximum, T sum) {
    return Form::normalizer(std::isinf(maximum) ? std::numeric_limits<T>::quiet_NaN() : sum);
  }
  template <int batches, class Body>
  __device__ static void for_each(T (&terms)[batches][batch_size], const Body& body) {
#pragma unroll
    for (auto& batch : terms) {
#pragma unroll
      for (T& x : batch) body(x);
    }
  }
};

template <class Form, class T>
struct GradientSource {
  static constexpr int width = cuda::vector_width<T>;
  TensorSource<T> gradient, y;

  template <int n>
  struct Raw {
    cuda::VectorWords<T, n> gradient, y;
  };
  template <int n>
  __device__ Raw<n> load(std::int64_t offset) const {
    return {gradient.template load<n>(offset), y.template load<n>(offset)};
  }
  template <int n>
  __device__ T term(const Raw<n>& raw, int i) const {
    return Form::template term<T>(raw.gradient[i], raw.y[i]);
  }
};

template <class Form, class T>
struct NormalizeGradient : SumOf<GradientSource<Form, T>> {
  T* output;

  struct Map {
    T sum;
    template <class Raw>
    __device__ T operator()(const Raw& raw, int i, std::int64_t) const {
      return Form::gradient(raw.gradient[i], raw.y[i], sum);
    }
  };
  __device__ Map map(const Sum<T>& state, const Line&) const { return {state.value()}; }
};

Dims axis_of(const Attributes& attributes, const Shape& shape, const Operator& op) {
  return {normalize_axis(attributes.as<SoftmaxAttributes>().axis, shape.rank(), op.name.c_str())};
}

template <template <class> class State>
std::size_t scratch(const InferContext& call) {
  return LinePlan::scratch_bytes(call.shape(0), axis_of(call.attributes, call.shape(0), call.op), sizeof(State<double>));
}

Lines lines_of(const KernelContext& call) { return {call.outputs[0], axis_of(call.attributes, call.outputs[0].shape(), call.op)}; }

template <class Form>
void kernel(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const Normalize<Form, T> reduction{{{call.inputs[0].data<T>()}}, call.outputs[0].data<T>()};
    reduce_lines(call.stream, reduction, lines_of(call), call.scratch);
  });
}

template <class Form>
void backward_kernel(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const NormalizeGradient<Form, T> reduction{{{{call.inputs[0].data<T>()}, {call.inputs[1].data<T>()}}}, call.outputs[0].data<T>()};
    reduce_lines(call.stream, reduction, lines_of(call), call.scratch);
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(softmax) {
  const auto add = [&](const char* name, KernelFunction run, auto scratch_rule, std::vector<int> images) {
    registry.add_cuda(name, {.run = std::move(run),
                             .scratch = scratch_rule,
                             .any_layout_inputs = std::move(images),
                             .any_layout_outputs = {0},
                             .one_layout = true});
  };
  add("softmax", kernel<Softmax>, scratch<LogSumExp>, {0});
  add("log_softmax", kernel<LogSoftmax>, scratch<LogSumExp>, {0});
  add("softmax_backward", backward_kernel<Softmax>, scratch<Sum>, {0, 1});
  add("log_softmax_backward", backward_kernel<LogSoftmax>, scratch<Sum>, {0, 1});
}
