#pragma once

#include <string>

#include "frit/core/memory/allocator.h"
#include "frit/core/tensor.h"

struct CUstream_st;  // what cudaStream_t points to

/// What core asks of CUDA. A build without CUDA has no devices, and nothing else here is ever called.
namespace frit::cuda {

/// 0 if the machine has no usable driver.
int device_count();
/// "NVIDIA H200, compute capability 9.0, 139.8 GiB".
std::string description(int index);
/// "NVIDIA H200, compute capability 9.0": devices on which the same work takes the same time.
std::string model(int index);
/// 90 for compute capability 9.0.
int capability(int index);
/// "CUDA 13.0"; empty in a build without it.
std::string version();
/// Bytes that nobody, in this process or another, has taken.
std::size_t free_memory(int index);
Allocator& allocator(int index);
/// As frit::copy, where one tensor or both are on a CUDA device. Work between devices is ordered on the device's compute stream; a copy to
/// the host waits for it.
void copy(const Tensor& destination, const Tensor& source);
/// The stream on which all of frit's work on the device is ordered; makes the device the calling thread's current one.
CUstream_st* compute_stream(int index);
/// Waits for the device's compute stream.
void synchronize(int index);

}  // namespace frit::cuda
