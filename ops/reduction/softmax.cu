// Softmax and log-softmax along an axis, and their gradients.

#include "frit/ops/cuda/reduce_states.cuh"
#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/channel_centre.cuh"
#include "frit/ops/reduction/softmax_rows.cuh"

namespace frit::ops {
namespace {

template <class Form, class T>
struct Normalize : LogSumExpOf<T, Computed<T>> {
  using C = Computed<T>;
  T* output;

  template <int batches, class Team>
  __device__ void finish_held(C (&terms)[batches][batch_size], const Team& team) const {
    softmax_in_place<Form>(terms, team);
  }

  struct Map {
    C maximum, normalizer;
    template <class Raw>
    __device__ T operator()(const Raw& raw, int i, std::int64_t) const {
      return convert<T>(Form::result(convert<C>(raw[i]) - maximum, normalizer));
    }
  };
  __device__ Map map(const LogSumExp<C>& state, const Line&) const {
    return {state.maximum, normalizer_of<Form>(state.maximum, state.sum.value())};
  }
};

template <class Form, class T>
struct GradientSource {
  using C = Computed<T>;
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
  __device__ C term(const Raw<n>& raw, int i) const {
    return Form::template term<C>(convert<C>(raw.gradient[i]), convert<C>(raw.y[i]));
  }
};

template <class Form, class T>
struct NormalizeGradient : SumOf<GradientSource<Form, T>> {
  using C = Computed<T>;
  T* output;

  struct Map {
    C sum;
    template <class Raw>
    __device__ T operator()(const Raw& raw, int i, std::int64_t) const {
      return convert<T>(Form::gradient(convert<C>(raw.gradient[i]), convert<C>(raw.y[i]), sum));
    }
  };
  __device__ Map map(const Sum<C>& state, const Line&) const { return {state.value()}; }
};

template <template <class> class State>
std::size_t scratch(const InferContext& call) {
  return LinePlan::scratch_bytes(call.shape(0), reduction_axes<SoftmaxAttributes>(call), sizeof(State<double>));
}

Lines lines_of(const KernelContext& call) { return {call.outputs[0], reduction_axes<SoftmaxAttributes>(call, call.outputs[0].rank())}; }

template <class Form>
Kernel kernel() {
  const auto with_reduction = [](const KernelContext& call, const auto& body) {
    dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
      body(Normalize<Form, T>{{{call.inputs[0].data<T>()}}, call.outputs[0].data<T>()}, lines_of(call));
    });
  };
  return line_kernel(with_reduction, scratch<LogSumExp>);
}

template <class Form>
Kernel backward_kernel() {
  const auto with_reduction = [](const KernelContext& call, const auto& body) {
    dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
      const GradientSource<Form, T> source{{call.inputs[0].data<T>()}, {call.inputs[1].data<T>()}};
      body(NormalizeGradient<Form, T>{{source}, call.outputs[0].data<T>()}, lines_of(call));
    });
  };
  return line_kernel(with_reduction, scratch<Sum>);
}

constexpr const char* name_of(Softmax) { return "Softmax"; }
constexpr const char* name_of(LogSoftmax) { return "LogSoftmax"; }

/// channel_rows of a call whose lines are the channels.
std::optional<std::pair<ChannelRows, cuda::LaunchShape>> rows_of(const KernelContext& call, const Shape& image) {
  return reduction_axes<SoftmaxAttributes>(call, image.rank()) == Dims{1} ? channel_rows(image) : std::nullopt;
}

template <class Form>
std::optional<CentreKernel> centre(const KernelContext& call, const Stages& stages) {
  const TensorType image = staged_type(call, stages);
  const auto plan = rows_of(call, image.shape);
  if (!plan) return std::nullopt;
  return CentreKernel("frit/ops/reduction/softmax_rows.cuh", concat("ChannelSoftmax<", name_of(Form{}), ", ", image.shape[1], '>'),
                      ChannelSoftmax<Form, any_channels>{plan->first}, plan->second, /*asks_for_each_sample=*/false);
}

template <class Form>
std::optional<CentreKernel> backward_centre(const KernelContext& call, const Stages& stages) {
  const TensorType image = staged_type(call, stages);
  const auto plan = rows_of(call, image.shape);
  std::optional<CentreKernel> centre;
  if (!plan || !lies_in_channels(call.inputs[1])) return centre;
  dispatch_floating_and_halves(image.dtype, [&]<class T>() {
    centre.emplace("frit/ops/reduction/softmax_rows.cuh",
                   concat("ChannelSoftmaxGradient<", name_of(Form{}), ", ", image.shape[1], ", ", name_in_programs(image.dtype), '>'),
                   ChannelSoftmaxGradient<Form, any_channels, T>{plan->first, call.inputs[1].data<T>()}, plan->second,
                   /*asks_for_each_sample=*/false);
  });
  return centre;
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(softmax) {
  const auto add = [&](const char* name, Kernel kernel, std::vector<int> images, CentreRule centre_rule) {
    kernel.any_layout_inputs = std::move(images);
    kernel.any_layout_outputs = {0};
    kernel.one_layout = true;
    registry.add_cuda(name, with_stages(std::move(kernel), std::move(centre_rule)));
  };
  add("softmax", kernel<Softmax>(), {0}, centre<Softmax>);
  add("log_softmax", kernel<LogSoftmax>(), {0}, centre<LogSoftmax>);
  add("softmax_backward", backward_kernel<Softmax>(), {0, 1}, backward_centre<Softmax>);
  add("log_softmax_backward", backward_kernel<LogSoftmax>(), {0, 1}, backward_centre<LogSoftmax>);
}
