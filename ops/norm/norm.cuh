#pragma once

#include <string>

#include "frit/ops/norm/shared_slices.h"

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
/// Likewise with the statistics that the slices have in all processes together.
void run_cuda_shared_norm(const KernelContext& call, const NormGeometry& geometry, double eps, const RunningStatistics& running,
                          const SharedSlices& shared);
/// The statistics of a call's input 0 alone, for others' use: f64, a number a slice. Wants the scratch memory of a norm.
void find_cuda_statistics(const KernelContext& call, const NormGeometry& geometry, double eps, double* means, double* rstds);
/// As run_norm, with the running statistics.
void run_cuda_norm_at_inference(const KernelContext& call, const NormGeometry& geometry, double eps, const RunningStatistics& running);
/// The way in which run_cuda_norm computes a call.
std::string describe_cuda_norm(const KernelContext& call, const NormGeometry& geometry);
/// Of either, for an input that may lie in either layout where `layout` is channels-last.
std::size_t cuda_norm_scratch(const NormGeometry& geometry, Layout layout);

/// As run_norm_backward.
void run_cuda_norm_backward(const KernelContext& call, const NormGeometry& geometry, bool fixed_statistics = false,
                            const SharedSlices* shared = nullptr);
std::string describe_cuda_norm_backward(const KernelContext& call, const NormGeometry& geometry, bool fixed_statistics = false);
std::size_t cuda_norm_backward_scratch(const NormGeometry& geometry, Layout layout);
/// The same for images in channels-last layout, whose gradient comes from a program. `shared`: the slices are SharedSlices.
StagedKernel staged_norm_backward(NormGeometry (*geometry)(const KernelContext&), bool (*fixed_statistics)(const KernelContext&),
                                  bool shared = false);

/// The kernels of the norm that has attributes A, and of its gradient, which run and describe calls. `images`: images may lie in either
/// layout. `shared`: the kernels take SharedSlices.
template <class A>
void add_cuda_norm(Registry& registry, const std::string& name, Kernel forward, Kernel backward, bool images,
                   std::size_t (*backward_scratch)(const NormGeometry&, Layout) = cuda_norm_backward_scratch, bool shared = false) {
  const auto geometry = [](const InferContext& call, std::size_t input) { return norm_geometry(call.shape(input), call.as<A>()); };
  forward.halves = backward.halves = true;
  forward.scratch = [geometry](const InferContext& call) { return cuda_norm_scratch(geometry(call, 0), call.input_layout(0)); };
  backward.scratch = [geometry, backward_scratch](const InferContext& call) {
    return backward_scratch(geometry(call, 1), call.input_layout(1));
  };
  if (images) {
    forward.any_layout_inputs = forward.any_layout_outputs = {0};
    backward.any_layout_inputs = {0, 1};
    backward.any_layout_outputs = {0};
    backward.staged = staged_norm_backward([](const KernelContext& call) { return norm_geometry(call.inputs[1].shape(), call.as<A>()); },
                                           [](const KernelContext& call) {
                                             if constexpr (std::is_same_v<A, BatchNormAttributes>) return !call.as<A>().training;
                                             return false;
                                           },
                                           shared);
    forward.one_layout = backward.one_layout = true;
  }
  if (shared) {
    forward = with_shared_slices(std::move(forward), 0);
    backward = with_shared_slices(std::move(backward), 1);
  }
  registry.add_cuda(name, std::move(forward));
  registry.add_cuda(name + "_backward", std::move(backward));
}

/// Of a norm that GroupedNorm<A> has added.
template <class A>
void add_cuda_grouped_norm(Registry& registry, const std::string& name, bool images) {
  const auto of = [](const KernelContext& call, std::size_t input) { return norm_geometry(call.inputs[input].shape(), call.as<A>()); };
  add_cuda_norm<A>(registry, name,
                   {.run = [of](const KernelContext& call) { run_cuda_norm(call, of(call, 0), call.as<A>().eps); },
                    .describe = [of](const KernelContext& call) { return describe_cuda_norm(call, of(call, 0)); }},
                   {.run = [of](const KernelContext& call) { run_cuda_norm_backward(call, of(call, 1)); },
                    .describe = [of](const KernelContext& call) { return describe_cuda_norm_backward(call, of(call, 1)); }},
                   images);
}

}  // namespace frit::ops
