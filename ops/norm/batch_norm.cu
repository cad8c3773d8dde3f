// (x - mean) * rstd * weight + bias over each channel of the batch, and its gradients: the kernels that all norms share.

#include "frit/ops/norm/norm.cuh"

namespace frit::ops {
namespace {

void run(const KernelContext& call) {
  const BatchNormAttributes& attributes = call.as<BatchNormAttributes>();
  const NormGeometry geometry = norm_geometry(call.inputs[0].shape(), attributes);
  const RunningStatistics running{RunningStatistic(call.inputs[3]), RunningStatistic(call.inputs[4]), attributes.momentum};
  const auto run = attributes.training ? run_cuda_norm : run_cuda_norm_at_inference;
  run(call, geometry, attributes.eps, running);
}

void run_backward(const KernelContext& call) {
  const BatchNormAttributes& attributes = call.as<BatchNormAttributes>();
  run_cuda_norm_backward(call, norm_geometry(call.inputs[1].shape(), attributes), /*fixed_statistics=*/!attributes.training);
}

std::string describe(const KernelContext& call) {
  const BatchNormAttributes& attributes = call.as<BatchNormAttributes>();
  return attributes.training ? describe_cuda_norm(call, norm_geometry(call.inputs[0].shape(), attributes)) : "statistics known";
}

std::string describe_backward(const KernelContext& call) {
  const BatchNormAttributes& attributes = call.as<BatchNormAttributes>();
  return describe_cuda_norm_backward(call, norm_geometry(call.inputs[1].shape(), attributes), !attributes.training);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(batch_norm) {
  add_cuda_norm<BatchNormAttributes>(registry, "batch_norm", {.run = run, .describe = describe},
                                     {.run = run_backward, .describe = describe_backward}, /*images=*/true);
}
