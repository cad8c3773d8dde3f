#pragma once

#include <span>

#include "frit/core/tensor.h"
#include "frit/ops/operator/elementwise_program.h"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// Launches a kernel that was compiled for the program, for these dtypes and for how these tensors lie; computes in float64 if `wide`, else
/// in float32. All tensors have one shape, whose axes stand in the order of memory of the first output that is defined; outputs that nobody
/// reads are undefined. False where there is no such kernel, and the interpreter has to do.
bool run_compiled_program(const ElementwiseProgram& program, std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool wide,
                          CUstream_st* stream);

/// Compiles that kernel if need be, for the outputs' device, and runs nothing. Whether there is one.
bool compile_program(const ElementwiseProgram& program, std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool wide,
                     Device device);

/// Elements from which on a kernel of its own is worth being compiled.
inline constexpr std::int64_t smallest_compiled = 1 << 16;

/// The same for a call of one elementwise operator, where an input broadcasts to a large output or lies in another layout.
bool run_compiled(const KernelContext& call);

/// The source of that kernel, which is named "program".
std::string program_source(const ElementwiseProgram& program, std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool wide);

}  // namespace frit::ops
