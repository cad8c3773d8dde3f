#pragma once

#include "frit/core/tensor.h"

struct CUstream_st;  // what cudaStream_t points to

namespace frit::cuda {

/// Uninitialised page-locked memory of the host, which devices copy from and to while the host goes on. The machine has a device.
Tensor pinned_tensor(const Shape& shape, DType dtype);

/// Between page-locked memory and a device, in the order of the stream's work; returns at once, and both must be left alone until then.
/// Both are contiguous and of one dtype and shape.
void copy_async(const Tensor& destination, const Tensor& source, CUstream_st* stream);

}  // namespace frit::cuda
