#pragma once

#include <string>

#include "frit/ops/norm/norm_core.h"

namespace frit::ops {

// The CUDA kernels of the norms; norm_forward.cu and norm_backward.cu have them.

/// A variable with an element a slice, of any floating dtype.
struct RunningStatistic {
  void* data = nullptr;
  DType dtype = DType::f32;

  RunningStatistic() = default;
  explicit RunningStatistic(const Tensor& tensor) : data(tensor.raw()), dtype(tensor.dtype()) {}
};

/// What batch norm keeps for inference.
struct RunningStatistics {
  RunningStatistic mean, variance;
  double momentum = 0;
};

/// As run_norm, with the statistics of the input, which also update the running ones if there are any.
void run_cuda_norm(const KernelContext& call, const NormGeometry& geometry, double eps, const RunningStatistics& running = {});
/// As run_norm, with the running statistics.
void run_cuda_norm_at_inference(const KernelContext& call, const NormGeometry& geometry, double eps, const RunningStatistics& running);
/// Of either.
std::size_t cuda_norm_scratch(const NormGeometry& geometry);

/// As run_norm_backward.
void run_cuda_norm_backward(const KernelContext& call, const NormGeometry& geometry, bool fixed_statistics = false);
std::size_t cuda_norm_backward_scratch(const NormGeometry& geometry);

/// The kernels of a norm that GroupedNorm<A> has added, and of its gradient.
template <class A>
void add_cuda_grouped_norm(Registry& registry, const std::string& name) {
  registry.add_cuda(
      name,
      {.run = [](const KernelContext& call) { run_cuda_norm(call, norm_geometry(call.inputs[0].shape(), call.as<A>()), call.as<A>().eps); },
       .halves = true,
       .scratch = [](const InferContext& call) { return cuda_norm_scratch(norm_geometry(call.shape(0), call.as<A>())); }});
  registry.add_cuda(
      name + "_backward",
      {.run = [](const KernelContext& call) { run_cuda_norm_backward(call, norm_geometry(call.inputs[1].shape(), call.as<A>())); },
       .halves = true,
       .scratch = [](const InferContext& call) { return cuda_norm_backward_scratch(norm_geometry(call.shape(1), call.as<A>())); }});
}

}  // namespace frit::ops
