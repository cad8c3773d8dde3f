#pragma once

#include <string>

#include "frit/core/tensor.h"
#include "frit/ops/cpu/gemm.h"

struct CUstream_st;  // what cudaStream_t points to

/// Matrix products through cuBLASLt, whose own types are seen in cublas.cpp alone.
namespace frit::cublas {

/// "cuBLAS 13.1.0": the library that runs.
std::string version();

/// c = a b + bias, as the shape says, for double, float and halves, which are summed up in float. `bias` may be undefined; c is contiguous.
/// `scratch` has the bytes of product_scratch. Can be captured in a CUDA graph.
void multiply(const ops::GemmShape& shape, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c,
              std::span<std::byte> scratch, CUstream_st* stream);
std::size_t product_scratch(const ops::GemmShape& shape);

}  // namespace frit::cublas
