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

/// As run_norm, with the statistics of the input, which also update the running ones if there are any; or with the running ones, if the
/// statistics are fixed.
void run_cuda_norm(const KernelContext& call, const NormGeometry& geometry, double eps, const RunningStatistics& running = {});
/// Likewise with the statistics that the slices have in all processes together.
void run_cuda_shared_norm(const KernelContext& call, const NormGeometry& geometry, double eps, const RunningStatistics& running,
                          const SharedSlices& shared);
/// The statistics of a call's input 0 alone, for others' use: f64, a number a slice. Wants the scratch memory of a norm.
void find_cuda_statistics(const KernelContext& call, const NormGeometry& geometry, double eps, double* means, double* rstds);
/// The way in which run_cuda_norm computes a call.
std::string describe_cuda_norm(const KernelContext& call, const NormGeometry& geometry);
/// Of either, for an input that may lie in either layout where `layout` is channels-last.
std::size_t cuda_norm_scratch(const NormGeometry& geometry, Layout layout);

/// As run_norm_backward.
void run_cuda_norm_backward(const KernelContext& call, const NormGeometry& geometry, const SharedSlices* shared = nullptr);
std::string describe_cuda_norm_backward(const KernelContext& call, const NormGeometry& geometry);
std::size_t cuda_norm_backward_scratch(const NormGeometry& geometry, Layout layout);
/// The same for images in channels-last layout, whose gradient comes from a program. `shared`: the slices are SharedSlices.
StagedKernel staged_norm_backward(GeometryRule geometry, bool shared);

/// The kernels of the norm that has attributes A, and of its gradient: what runs calls, and describes them, by their geometry.
template <class A>
struct CudaNorm {
  using Run = void (*)(const KernelContext& call, const NormGeometry& geometry);
  using Describe = std::string (*)(const KernelContext& call, const NormGeometry& geometry);
  using Scratch = std::size_t (*)(const NormGeometry& geometry, Layout layout);

  Run run = [](const KernelContext& call, const NormGeometry& g) { run_cuda_norm(call, g, call.as<A>().eps); };
  Run run_backward = [](const KernelContext& call, const NormGeometry& g) { run_cuda_norm_backward(call, g); };
  Describe describe = describe_cuda_norm, describe_backward = describe_cuda_norm_backward;
  Scratch backward_scratch = cuda_norm_backward_scratch;
  bool images = true;   ///< images may lie in either layout
  bool shared = false;  ///< the kernels take SharedSlices

  void add_to(Registry& registry, const std::string& name) const {
    Kernel forward = kernel(run, describe, cuda_norm_scratch, 0), backward = kernel(run_backward, describe_backward, backward_scratch, 1);
    if (images) backward.staged = staged_norm_backward(geometry_of<A>, shared);
    registry.add_cuda(name, shared ? with_shared_slices(std::move(forward), 0) : std::move(forward));
    registry.add_cuda(name + "_backward", shared ? with_shared_slices(std::move(backward), 1) : std::move(backward));
  }

 private:
  /// `image`: the input that is normalised.
  Kernel kernel(Run run_call, Describe describe_call, Scratch scratch, std::size_t image) const {
    const auto of = [image](const KernelContext& call) { return geometry_of<A>(call.inputs[image].shape(), call.attributes); };
    Kernel result{
        .run = [=](const KernelContext& call) { run_call(call, of(call)); },
        .halves = true,
        .scratch =
            [=](const InferContext& call) { return scratch(geometry_of<A>(call.shape(image), call.attributes), call.input_layout(image)); },
        .one_layout = images,
        .describe = [=](const KernelContext& call) { return describe_call(call, of(call)); }};
    if (!images) return result;
    for (std::size_t i = 0; i <= image; ++i) result.any_layout_inputs.push_back(static_cast<int>(i));
    result.any_layout_outputs = {0};
    return result;
  }
};

}  // namespace frit::ops
