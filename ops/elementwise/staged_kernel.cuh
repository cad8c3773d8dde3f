#pragma once

#include <cstring>
#include <functional>
#include <optional>

#include "frit/ops/operator/elementwise_program.h"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// A kernel that NVRTC compiles together with programs before and after it: the call of an object with a Source and a Sink (see
/// ops/cuda/stages.cuh).
struct CentreKernel {
  std::string header;                   ///< where its type stands, from "frit/" on
  std::string type;                     ///< of the object, within frit::ops
  std::vector<std::uint64_t> argument;  ///< its bytes
  unsigned blocks, threads;
  std::size_t shared_bytes;
  bool keeps_to_sample;                           ///< it asks for a stage's channels again for each sample
  unsigned resident_blocks = 0;                   ///< of a multiprocessor, for which there are registers; 0: any number
  std::function<void(CUstream_st*)> finish = {};  ///< what is launched after it

  /// `launch` is a cuda::LaunchShape.
  template <class Body, class Launch>
  CentreKernel(const char* body_header, std::string body_type, const Body& body, const Launch& launch, bool asks_for_each_sample)
      : header(body_header),
        type(std::move(body_type)),
        argument((sizeof body + 7) / 8),
        blocks(launch.grid.x),
        threads(launch.block.x),
        shared_bytes(launch.shared_bytes),
        keeps_to_sample(asks_for_each_sample) {
    static_assert(std::is_trivially_copyable_v<Body> && alignof(Body) <= 8);
    std::memcpy(argument.data(), &body, sizeof body);
  }
};

/// The kernel of a call whose input `stages.input`, or what stands for it, lies in channels, and so does output 0 if a program may follow
/// it; none where the call has to be computed in parts. Looks at types and layouts, at whether memory is aligned, and at nothing that lies
/// in it.
using CentreRule = std::function<std::optional<CentreKernel>(const KernelContext& call, const Stages& stages)>;

/// The kernel with its stages, of which input is 0: from one tensor, undefined where a program gives it, to another. To prepare is to
/// compile.
void run_centre(const CentreKernel& centre, const Stages& stages, const Tensor& input, const Tensor& output, CUstream_st* stream);
void prepare_centre(const CentreKernel& centre, const Stages& stages, const Tensor& input, const Tensor& output);
/// What is compiled: the kernel is named "chain".
std::string centre_source(const CentreKernel& centre, const Stages& stages, const Tensor& input, const Tensor& output);

/// For Kernel::staged, of an operator whose call is one kernel.
StagedKernel staged_by(CentreRule rule);
inline Kernel with_stages(Kernel kernel, CentreRule rule) {
  kernel.staged = staged_by(std::move(rule));
  return kernel;
}

/// The kernel of an operator with two outputs, with calls that read a large image, as input 0, and want output 0 alone computed by what the
/// rule gives for them without stages: compiled for their sizes, and without what the other output takes.
Kernel values_compiled(Kernel kernel, CentreRule rule);

/// The source of the kernel of a call whose operator's kernel was made so; empty where it has to be computed in parts.
std::string staged_source(const KernelContext& call, const Stages& stages);

/// Of that input.
inline TensorType staged_type(const KernelContext& call, const Stages& stages) {
  if (!stages.before.instructions.empty()) return stages.input_type;
  return {call.inputs[stages.input].dtype(), call.inputs[stages.input].shape()};
}

/// How NVRTC writes the type that elements of the dtype are computed with.
inline const char* name_of_computed(DType dtype) { return dtype == DType::f64 ? "double" : "float"; }

/// Whether a tensor lies as kernels read vectors of channels: channels-last, aligned.
bool lies_in_channels(const Tensor& tensor);
/// Or that it is such a part of a wider image, also aligned.
bool has_channel_vectors(const Tensor& tensor);

}  // namespace frit::ops
