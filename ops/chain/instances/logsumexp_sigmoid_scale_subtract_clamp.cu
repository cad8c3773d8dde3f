// clamp(ScaledSigmoid(logsumexp(input over channels)) - bias) and its gradients.

#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp_backward.cuh"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

using cuda::default_threads;
using ChainAttributes = LogsumexpSigmoidScaleSubtractClampAttributes;

/// Reads the input once and writes a number a pixel. Deterministic.
template <class Traversal, class Stored>
__global__ void __launch_bounds__(default_threads, Traversal::blocks_wanted)
    reduce_channels(Stored* output /* (N, image) */, const Stored* input, Parameter<Stored> bias, Clamp<Computed<Stored>> clamp,
                    const __grid_constant__ Sharing sharing) {
  using T = Computed<Stored>;
  const Traversal traversal(input, sharing);
  const T subtracted = bias[0];
  traversal.run([&](auto n, auto p) { return sharing.place(n, p); },
                [&](auto place, const PixelSum<Stored>& sums) {
                  const T y = sums.value();
                  const T result = clamp(ScaledSigmoid<T>::value(y, sigmoid_of_shifted(y)) - subtracted);
                  if (place >= 0) output[place] = convert<Stored>(result);
                  return result;
                },
                nullptr);
}

/// Recomputes the softmax: reads the input and the output's gradient once and writes the input's gradient, which may lie over the input,
/// and a sum a block. Deterministic.
template <class Traversal, class Stored>
__global__ void __launch_bounds__(default_threads, Traversal::blocks_wanted)
    carry_back(Stored* input_gradient /* or null */, double* block_sums, const Stored* gradient /* (N, image) */, const Stored* input,
               Parameter<Stored> bias, Clamp<Computed<Stored>> clamp, const __grid_constant__ Sharing sharing) {
  using T = Computed<Stored>;
  __shared__ double shared[cuda::warp_size];
  const Traversal traversal(input, sharing);
  GradientFactor<T> factors(bias[0], clamp);
  traversal.run(
      [&](auto n, auto p) {
        const auto place = sharing.place(n, p);
        return place < 0 ? PixelGradient<T>{false, 0} : PixelGradient<T>{true, convert<T>(gradient[place])};
      },
      [&](const PixelGradient<T>& incoming, const PixelSum<Stored>& sums) { return factors.finalize(incoming, sums); },
      [&](auto& share, auto n, auto p, T shift, T factor) {
        if (input_gradient != nullptr) traversal.store(share, shift, factor, input_gradient, sharing.gradient_places, n, p);
      });
  const double total = cuda::block_reduce(factors.total(), shared);
  if (threadIdx.x == 0) block_sums[blockIdx.y * gridDim.x + blockIdx.x] = total;
}

/// inputs (input, bias)
void run_forward(const KernelContext& call) {
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  if (!output.defined() || output.elements() == 0) return;
  dispatch_floating_and_halves(input.dtype(), [&]<class Stored>() {
    const auto& attributes = call.as<ChainAttributes>();
    dispatch_traversal<Stored>(input, {}, attributes, [&]<class Traversal>(const Sharing& sharing, const cuda::LaunchShape& shape) {
      cuda::launch(reduce_channels<Traversal, Stored>, shape, call.stream, output.data<Stored>(), input.data<Stored>(),
                   Parameter<Stored>(call.inputs[1]), Clamp<Computed<Stored>>(attributes.clamp()), sharing);
    });
  });
}

/// inputs (gradient, input, bias), outputs (input_gradient, bias_gradient)
void run_backward(const KernelContext& call) {
  const Tensor &input = call.inputs[1], &input_gradient = call.outputs[0], &bias_gradient = call.outputs[1];
  auto* const block_sums = reinterpret_cast<double*>(call.scratch.data());
  dispatch_floating_and_halves(input.dtype(), [&]<class Stored>() {
    const auto& attributes = call.as<ChainAttributes>();
    dispatch_traversal<Stored>(input, input_gradient, attributes,
                               [&]<class Traversal>(const Sharing& sharing, const cuda::LaunchShape& shape) {
                                 cuda::launch(carry_back<Traversal, Stored>, shape, call.stream, data_or_null<Stored>(input_gradient),
                                              block_sums, call.inputs[0].data<Stored>(), input.data<Stored>(),
                                              Parameter<Stored>(call.inputs[2]), Clamp<Computed<Stored>>(attributes.clamp()), sharing);
                                 if (!bias_gradient.defined()) return;
                                 cuda::launch(negate_sum<Stored>, {dim3(1), dim3(sum_threads)}, call.stream,
                                              Parameter<Stored>(bias_gradient), block_sums, static_cast<int>(shape.grid.x * shape.grid.y));
                               });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(logsumexp_sigmoid_scale_subtract_clamp) {
  using namespace frit::ops;
  registry.add_cuda("logsumexp_sigmoid_scale_subtract_clamp", {.run = run_forward, .halves = true, .any_layout_inputs = {0}});
  registry.add_cuda("logsumexp_sigmoid_scale_subtract_clamp_backward",
                    {.run = run_backward,
                     .halves = true,
                     .scratch = [](const InferContext&) { return static_cast<std::size_t>(most_blocks) * sizeof(double); },
                     .any_layout_inputs = {1},
                     .any_layout_outputs = {0}});
}
