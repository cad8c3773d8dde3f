#pragma once

#include <span>

#include "frit/core/tensor.h"
#include "frit/ops/operator/elementwise_program.h"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// A program's call as its kernels take it: all tensors in one shape, whose axes stand in the order of memory of the first output that
/// somebody reads. Outputs that nobody reads are undefined.
struct ProgramCall {
  const ElementwiseProgram& program;
  std::vector<Tensor> inputs = {}, outputs = {};
  Tensor like = {};   ///< that first output; undefined if there is none
  bool wide = false;  ///< computed in float64, else in float32

  ProgramCall(const ElementwiseProgram& called, std::span<const Tensor> given, std::span<const Tensor> results);
};

/// Launches a kernel that was compiled for the program, for these dtypes and for how these tensors lie. False where there is no such
/// kernel, and the interpreter has to do.
bool run_compiled_program(const ProgramCall& call, CUstream_st* stream);

/// Whether one is compiled where NVRTC is available.
bool compiles_program(const ProgramCall& call);

/// Compiles that kernel if need be, for the outputs' device, and runs nothing. Whether there is one.
bool compile_program(const ProgramCall& call);

/// Elements from which on a kernel of its own is worth being compiled.
inline constexpr std::int64_t smallest_compiled = 1 << 16;

/// The same for a call of one elementwise operator, where an input broadcasts to a large output or lies in another layout, or the output is
/// a part of a wider image.
bool run_compiled(const KernelContext& call);
/// For Kernel::takes_parts, of such an operator.
bool takes_parts_compiled(const KernelContext& call);

/// The source of that kernel, which is named "program".
std::string program_source(const ProgramCall& call);

}  // namespace frit::ops
