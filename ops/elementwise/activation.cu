// The activations and their gradients.

#include "frit/ops/cuda/pointwise.h"
#include "frit/ops/elementwise/activation_functors.h"

namespace frit::ops {
namespace {

template <auto exact, auto approximate>
void run_cuda_gelu(const KernelContext& call) {
  const bool tanh_form = call.as<GeluAttributes>().approximate == "tanh";
  (tanh_form ? approximate : exact)(call);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(activation) {
  add_cuda_pointwise<Clamp, ClampAttributes>(registry, "clamp");
  add_cuda_pointwise<Relu>(registry, "relu");
  add_cuda_pointwise<LeakyRelu, LeakyReluAttributes>(registry, "leaky_relu");
  add_cuda_pointwise<Elu, EluAttributes>(registry, "elu");
  registry.add_cuda("gelu", elementwise_kernel(run_cuda_gelu<run_cuda_pointwise<GeluErf>, run_cuda_pointwise<GeluTanh>>, 1));
  registry.add_cuda("gelu_backward",
                    elementwise_kernel(run_cuda_gelu<run_cuda_pointwise_gradient<GeluErf>, run_cuda_pointwise_gradient<GeluTanh>>, 2));
  add_cuda_pointwise<Sigmoid>(registry, "sigmoid");
  add_cuda_pointwise<Tanh>(registry, "tanh");
  add_cuda_pointwise<Silu>(registry, "silu");
  add_cuda_pointwise<Mish>(registry, "mish");
  add_cuda_pointwise<Softplus, SoftplusAttributes>(registry, "softplus");
  add_cuda_pointwise<HardSigmoid>(registry, "hard_sigmoid");
  add_cuda_pointwise<HardSwish>(registry, "hard_swish");
}
