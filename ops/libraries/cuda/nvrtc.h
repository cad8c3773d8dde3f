#pragma once

#include <string>

namespace frit::nvrtc {

/// A kernel that was compiled while the program runs: what cudaLaunchKernel takes, or why there is none.
struct CompiledKernel {
  const void* function = nullptr;
  std::string obstacle = {};
};

/// The kernel `name` (extern "C") of a CUDA C++ source, which may include frit's device headers, for a device. It is compiled once: code is
/// kept for the process, and in the folder `kernels` next to the plan cache's file, by source, headers, compiler and kind of GPU. There is
/// none where NVRTC is not installed or the source has an error; the first time causes a warning. Thread-safe.
CompiledKernel compile(const std::string& name, const std::string& source, int device);

/// Whether kernels can be compiled for a device, and loaded.
bool is_available(int device);

/// The code alone, for a compute capability such as 90. Needs no GPU. Throws ErrorKind::device with the compiler's log.
std::string compile_code(const std::string& source, int capability);

/// "NVRTC 13.0". Throws ErrorKind::device where it is not installed.
std::string version();

}  // namespace frit::nvrtc
