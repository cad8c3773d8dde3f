#pragma once

#include <span>

#include "frit/core/cuda/runtime.h"
#include "frit/core/tensor.h"
#include "frit/ops/operator/elementwise_program.h"

namespace frit::ops {

/// Launches a kernel that was compiled for the program, for these dtypes and for how these tensors lie; computes in float64 if `wide`, else
/// in float32. All tensors have one shape, whose axes stand in the order of memory of the first output that is defined; outputs that nobody
/// reads are undefined. False where there is no such kernel, and the interpreter has to do.
bool run_compiled_program(const ElementwiseProgram& program, std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool wide,
                          cudaStream_t stream);

/// The source of that kernel, which is named "program".
std::string program_source(const ElementwiseProgram& program, std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool wide);

}  // namespace frit::ops
