// (x - mean) * rstd * weight + bias over each channel of the batch, and its gradients: the kernels that all norms share.

#include "frit/ops/norm/norm.cuh"

namespace frit::ops {
namespace {

RunningStatistics running_statistics(const KernelContext& call) {
  return {RunningStatistic(call.inputs[3]), RunningStatistic(call.inputs[4]), call.as<BatchNormAttributes>().momentum};
}

void run(const KernelContext& call) {
  const BatchNormAttributes& attributes = call.as<BatchNormAttributes>();
  const auto run = attributes.training ? run_cuda_norm : run_cuda_norm_at_inference;
  run(call, norm_geometry(call.inputs[0].shape(), attributes), attributes.eps, running_statistics(call));
}

void run_synchronized(const KernelContext& call) {
  const BatchNormAttributes& attributes = call.as<BatchNormAttributes>();
  const SharedSlices shared(call, 0);
  const NormGeometry geometry = norm_geometry(call.inputs[0].shape(), attributes);
  run_cuda_shared_norm(shared.rest_of(call), geometry, attributes.eps, running_statistics(call), shared);
}

void run_backward(const KernelContext& call) {
  const BatchNormAttributes& attributes = call.as<BatchNormAttributes>();
  run_cuda_norm_backward(call, norm_geometry(call.inputs[1].shape(), attributes), /*fixed_statistics=*/!attributes.training);
}

void run_synchronized_backward(const KernelContext& call) {
  const SharedSlices shared(call, 1);
  const NormGeometry geometry = norm_geometry(call.inputs[1].shape(), call.as<BatchNormAttributes>());
  run_cuda_norm_backward(shared.rest_of(call), geometry, /*fixed_statistics=*/false, &shared);
}

std::string describe(const KernelContext& call) {
  const BatchNormAttributes& attributes = call.as<BatchNormAttributes>();
  return attributes.training ? describe_cuda_norm(call, norm_geometry(call.inputs[0].shape(), attributes)) : "statistics known";
}

std::string describe_backward(const KernelContext& call) {
  const BatchNormAttributes& attributes = call.as<BatchNormAttributes>();
  return describe_cuda_norm_backward(call, norm_geometry(call.inputs[1].shape(), attributes), !attributes.training);
}

// Never in one launch: the processes exchange what they have found.
std::string describe_synchronized(const KernelContext&) { return "statistics of all processes first"; }

std::string describe_synchronized_backward(const KernelContext& call) {
  const NormGeometry geometry = norm_geometry(call.inputs[1].shape(), call.as<BatchNormAttributes>());
  return describe_cuda_norm_backward(call, geometry, /*fixed_statistics=*/true) + ", and exchanged";
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(batch_norm) {
  add_cuda_norm<BatchNormAttributes>(registry, "batch_norm", {.run = run, .describe = describe},
                                     {.run = run_backward, .describe = describe_backward}, /*images=*/true);
  add_cuda_norm<BatchNormAttributes>(registry, "synchronized_batch_norm", {.run = run_synchronized, .describe = describe_synchronized},
                                     {.run = run_synchronized_backward, .describe = describe_synchronized_backward}, /*images=*/true,
                                     cuda_norm_backward_scratch, /*shared=*/true);
}
