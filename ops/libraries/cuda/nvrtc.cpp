// Kernels compiled at run time by NVRTC, which is loaded when the first one is needed that no earlier process has compiled.

#include "frit/ops/libraries/cuda/nvrtc.h"

#include <cuda_runtime.h>
#include <nvrtc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "frit/core/cuda/runtime.h"
#include "frit/core/io/checksum.h"
#include "frit/core/io/file.h"
#include "frit/core/plan_cache.h"
#include "frit/core/warning.h"
#include "frit/ops/libraries/cuda/counted_library.h"
#include "frit/ops/libraries/cuda/device_headers.h"

namespace frit::nvrtc {
namespace {

constexpr cuda::CountedLibrary shared_library{{FRIT_NVRTC_PATH, FRIT_NVRTC_NAME}};
FRIT_LIBRARY_FUNCTION(shared_library, nvrtcCompileProgram);
FRIT_LIBRARY_FUNCTION(shared_library, nvrtcCreateProgram);
FRIT_LIBRARY_FUNCTION(shared_library, nvrtcDestroyProgram);
FRIT_LIBRARY_FUNCTION(shared_library, nvrtcGetCUBIN);
FRIT_LIBRARY_FUNCTION(shared_library, nvrtcGetCUBINSize);
FRIT_LIBRARY_FUNCTION(shared_library, nvrtcGetErrorString);
FRIT_LIBRARY_FUNCTION(shared_library, nvrtcGetProgramLog);
FRIT_LIBRARY_FUNCTION(shared_library, nvrtcGetProgramLogSize);
FRIT_LIBRARY_FUNCTION(shared_library, nvrtcVersion);

/// Kept code is not read beyond this size.
constexpr std::uint64_t most_code_bytes = 16 << 20;

void check(nvrtcResult status, const char* call, const std::string& log = {}) {
  if (status != NVRTC_SUCCESS) fail(ErrorKind::device, "NVRTC: ", nvrtcGetErrorString(status), ": ", call, log.empty() ? "" : "\n", log);
}

struct Destroy {
  void operator()(_nvrtcProgram* program) const { (void)nvrtcDestroyProgram(&program); }
};
using Program = std::unique_ptr<_nvrtcProgram, Destroy>;

Program create_program(const std::string& source) {
  std::vector<const char*> names, texts;
  for (const DeviceHeader& header : device_headers()) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  nvrtcProgram made = nullptr;
  check(nvrtcCreateProgram(&made, source.c_str(), "frit.cu", static_cast<int>(names.size()), texts.data(), names.data()),
        "nvrtcCreateProgram");
  return Program(made);
}

std::string log_of(nvrtcProgram program) {
  std::size_t size = 0;
  check(nvrtcGetProgramLogSize(program, &size), "nvrtcGetProgramLogSize");
  std::string log(size, '\0');
  check(nvrtcGetProgramLog(program, log.data()), "nvrtcGetProgramLog");
  log.resize(std::min(size, log.find('\0')));
  return log;
}

std::uint64_t checksum_of(std::string_view text, std::uint64_t seed = 0) { return checksum(std::as_bytes(std::span(text)), seed); }

/// All that code depends on, whoever compiles it.
std::string key_of(const std::string& source, int capability) {
  std::uint64_t headers = 0;
  for (const DeviceHeader& header : device_headers()) headers = checksum_of(header.text, checksum_of(header.name, headers));
  return concat(FRIT_NVRTC_NAME, " sm_", capability, ' ', checksum_text(headers), '\n', source);
}

/// Where the code of a key is kept; empty: nowhere.
std::string file_of(const std::string& key) {
  const std::string plans = plan_cache().path();
  if (plans.empty()) return {};
  const std::filesystem::path folder = std::filesystem::path(plans).parent_path() / "kernels";
  return (folder / (checksum_text(checksum_of(key)) + checksum_text(checksum_of(key, 1)))).string();
}

/// Only this user can have written it: what is in it will be run.
bool is_own(const std::string& file) {
  struct stat found {};
  return lstat(file.c_str(), &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
         (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// A file is the checksum of key and code, then the code. Another one is none.
std::string kept_code(const std::string& file, const std::string& key) {
  if (file.empty() || !is_own(file)) return {};
  try {
    const std::string text = read_text(file, most_code_bytes);
    const std::string code = text.substr(std::min<std::size_t>(text.size(), 16));
    return text.substr(0, 16) == checksum_text(checksum_of(code, checksum_of(key))) ? code : "";
  } catch (const Error&) {
    return {};
  }
}

void keep_code(const std::string& file, const std::string& key, const std::string& code) {
  if (file.empty()) return;
  std::error_code error;  // told by the write
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
  try {
    write_text(file, checksum_text(checksum_of(code, checksum_of(key))) + code);
    std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, error);
  } catch (const Error&) {  // The next process compiles it again: the plan cache, next to it, tells that nothing is kept.
  }
}

CompiledKernel load(const std::string& name, const std::string& code) {
#if CUDART_VERSION >= 12080
  cudaLibrary_t library = nullptr;
  FRIT_CUDA_CALL(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  cudaKernel_t kernel = nullptr;
  FRIT_CUDA_CALL(cudaLibraryGetKernel(&kernel, library, name.c_str()));
  return {reinterpret_cast<const void*>(kernel)};
#else
  return {nullptr, "frit was built with CUDA before 12.8"};
#endif
}

CompiledKernel make(const std::string& name, const std::string& source, int capability) {
  const std::string key = key_of(source, capability), file = file_of(key);
  try {
    std::string code = kept_code(file, key);
    if (code.empty()) {
      code = compile_code(source, capability);
      keep_code(file, key, code);
    }
    return load(name, code);
  } catch (const Error& error) {
    static std::once_flag told;
    std::call_once(told, [&] { warn(concat("kernels are interpreted, which is slower: ", error.what())); });
    return {nullptr, error.what()};
  }
}

}  // namespace

bool is_available(int device) { return compile("probe", "extern \"C\" __global__ void probe() {}", device).function != nullptr; }

std::string version() {
  int major = 0, minor = 0;
  check(nvrtcVersion(&major, &minor), "nvrtcVersion");
  return concat("NVRTC ", major, '.', minor);
}

std::string compile_code(const std::string& source, int capability) {
  const Program program = create_program(source);
  // With what the architecture has alone: the code is for this very kind of GPU.
  const std::string architecture = concat("--gpu-architecture=sm_", capability, capability >= 90 ? "a" : "");
  const char* const options[] = {architecture.c_str(), "-std=c++20", "--device-as-default-execution-space"};
  const nvrtcResult status = nvrtcCompileProgram(program.get(), static_cast<int>(std::size(options)), options);
  if (status != NVRTC_SUCCESS) check(status, "nvrtcCompileProgram", log_of(program.get()));
  std::size_t size = 0;
  check(nvrtcGetCUBINSize(program.get(), &size), "nvrtcGetCUBINSize");
  std::string code(size, '\0');
  check(nvrtcGetCUBIN(program.get(), code.data()), "nvrtcGetCUBIN");
  return code;
}

CompiledKernel compile(const std::string& name, const std::string& source, int device) {
  struct Entry {
    std::once_flag made;
    CompiledKernel kernel;
  };
  static auto& mutex = *new std::mutex;
  static auto& entries = *new std::map<std::pair<int, std::string>, Entry>;
  const int capability = cuda::properties(device).capability;
  std::unique_lock lock(mutex);
  Entry& entry = entries[{capability, source}];
  lock.unlock();  // others may compile meanwhile
  std::call_once(entry.made, [&] { entry.kernel = make(name, source, capability); });
  return entry.kernel;
}

}  // namespace frit::nvrtc
