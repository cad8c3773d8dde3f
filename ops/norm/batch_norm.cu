// (x - mean) * rstd * weight + bias over each channel of the batch, and its gradients: the kernels that all norms share.

#include "frit/ops/norm/norm.cuh"

namespace frit::ops {
namespace {

RunningStatistics running_statistics(const KernelContext& call) {
  return {RunningStatistic(call.inputs[3]), RunningStatistic(call.inputs[4]), call.as<BatchNormAttributes>().momentum};
}

void run(const KernelContext& call, const NormGeometry& geometry) {
  run_cuda_norm(call, geometry, call.as<BatchNormAttributes>().eps, running_statistics(call));
}

void run_synchronized(const KernelContext& call, const NormGeometry& geometry) {
  const SharedSlices shared(call, 0);
  run_cuda_shared_norm(shared.rest_of(call), geometry, call.as<BatchNormAttributes>().eps, running_statistics(call), shared);
}

void run_synchronized_backward(const KernelContext& call, const NormGeometry& geometry) {
  const SharedSlices shared(call, 1);
  run_cuda_norm_backward(shared.rest_of(call), geometry, &shared);
}

// Never in one launch: the processes exchange what they have found.
std::string describe_synchronized(const KernelContext&, const NormGeometry&) { return "statistics of all processes first"; }

std::string describe_synchronized_backward(const KernelContext& call, const NormGeometry& geometry) {
  NormGeometry fixed = geometry;
  fixed.fixed_statistics = true;
  return describe_cuda_norm_backward(call, fixed) + ", and exchanged";
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(batch_norm) {
  CudaNorm<BatchNormAttributes>{.run = run}.add_to(registry, "batch_norm");
  CudaNorm<BatchNormAttributes>{.run = run_synchronized,
                                .run_backward = run_synchronized_backward,
                                .describe = describe_synchronized,
                                .describe_backward = describe_synchronized_backward,
                                .shared = true}
      .add_to(registry, "synchronized_batch_norm");
}
