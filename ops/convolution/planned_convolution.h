#pragma once

#include <string>

#include "frit/ops/convolution/convolution_cuda.h"

namespace frit::ops {

/// Scratch memory is handed out in pieces of whole multiples of these bytes.
inline constexpr std::size_t scratch_alignment = 256;
inline std::size_t aligned_bytes(std::size_t bytes) { return (bytes + scratch_alignment - 1) / scratch_alignment * scratch_alignment; }

/// Computes the call, or its mirror image if that is faster, by a plan of cuDNN's. False if cuDNN has none, or the scratch memory, which
/// was measured with other settings, is too small for it.
bool run_plan(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream);
/// Room for the workspace and for what must be rearranged. Looks for the plan that the call will need.
std::size_t plan_scratch(const ConvolutionCall& call);
/// For Kernel::describe.
std::string describe_plan(const ConvolutionCall& call);

}  // namespace frit::ops
