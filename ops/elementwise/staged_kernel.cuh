#pragma once

#include <cstring>
#include <functional>
#include <optional>

#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/operator/elementwise_program.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// A kernel that NVRTC compiles together with programs before and after it: the call of an object with a Source and a Sink (see
/// ops/cuda/stages.cuh).
struct CentreKernel {
  std::string header;                   ///< where its type stands, from "frit/" on
  std::string type;                     ///< of the object, within frit::ops
  std::vector<std::uint64_t> argument;  ///< its bytes
  cuda::LaunchShape shape;
  bool keeps_to_sample;                 ///< it asks for a stage's channels anew for each sample

  template <class Body>
  CentreKernel(const char* body_header, std::string body_type, const Body& body, const cuda::LaunchShape& launch, bool asks_for_each_sample)
      : header(body_header),
        type(std::move(body_type)),
        argument((sizeof body + 7) / 8),
        shape(launch),
        keeps_to_sample(asks_for_each_sample) {
    static_assert(std::is_trivially_copyable_v<Body> && alignof(Body) <= 8);
    std::memcpy(argument.data(), &body, sizeof body);
  }
};

/// The kernel of a call whose input `stages.input`, or what stands for it, and output 0 lie in channels; none where the call has to be
/// computed in parts. Looks at types and layouts, at whether memory is aligned, and at nothing that lies in it.
using CentreRule = std::function<std::optional<CentreKernel>(const KernelContext& call, const Stages& stages)>;

/// For Kernel::staged, of an operator whose call is one kernel.
StagedKernel staged_by(CentreRule rule);

/// The source of the kernel with its stages, which is named "chain".
std::string staged_source(const CentreKernel& centre, const KernelContext& call, const Stages& stages);

/// Of that input.
inline TensorType staged_type(const KernelContext& call, const Stages& stages) {
  if (!stages.before.instructions.empty()) return stages.input_type;
  return {call.inputs[stages.input].dtype(), call.inputs[stages.input].shape()};
}

/// How NVRTC writes the type that elements of the dtype are computed with.
inline const char* name_of_computed(DType dtype) { return dtype == DType::f64 ? "double" : "float"; }

/// Whether a tensor lies as kernels read vectors of channels: channels-last, aligned.
inline bool lies_in_channels(const Tensor& tensor) {
  return tensor.rank() >= 4 && tensor.is_contiguous(Layout::channels_last) && cuda::aligned_for_vectors(tensor.raw());
}

}  // namespace frit::ops
