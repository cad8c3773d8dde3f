#include "frit/core/cuda/nccl.h"

#include <chrono>
#include <exception>
#include <future>
#include <iostream>
#include <optional>

#include "frit/core/cuda/captured_work.h"
#include "frit/core/cuda/device.h"
#include "frit/core/cuda/loaded_library.h"
#include "frit/core/cuda/nccl_api.h"
#include "frit/core/cuda/runtime.h"
#include "frit/core/cuda/stream.h"

/// Throws ErrorKind::device with the expression, file, line and NCCL's words unless a call succeeds.
#define FRIT_NCCL_CALL(call) ::frit::cuda::check_nccl((call), #call, __FILE__, __LINE__)

namespace frit::cuda {
namespace {

constexpr LoadedLibrary nccl_library{FRIT_NCCL_PATH, "libnccl.so.2"};
FRIT_LIBRARY_FUNCTION(nccl_library, ncclAllReduce);
FRIT_LIBRARY_FUNCTION(nccl_library, ncclBroadcast);
FRIT_LIBRARY_FUNCTION(nccl_library, ncclCommAbort);
FRIT_LIBRARY_FUNCTION(nccl_library, ncclCommDestroy);
FRIT_LIBRARY_FUNCTION(nccl_library, ncclCommGetAsyncError);
FRIT_LIBRARY_FUNCTION(nccl_library, ncclCommInitRank);
FRIT_LIBRARY_FUNCTION(nccl_library, ncclGetErrorString);
FRIT_LIBRARY_FUNCTION(nccl_library, ncclGetLastError);
FRIT_LIBRARY_FUNCTION(nccl_library, ncclGetUniqueId);
FRIT_LIBRARY_FUNCTION(nccl_library, ncclGetVersion);
FRIT_LIBRARY_FUNCTION(nccl_library, ncclGroupEnd);
FRIT_LIBRARY_FUNCTION(nccl_library, ncclGroupStart);

void check_nccl(ncclResult_t result, const char* call, const char* file, int line) {
  if (result == ncclSuccess) return;
  const char* const words = ncclGetLastError(nullptr);
  const std::string remark = words == nullptr || *words == '\0' ? "" : concat(" (", words, ')');
  fail(ErrorKind::device, "NCCL: ", ncclGetErrorString(result), remark, ": ", call, " (", file, ":", line, ")");
}

/// Throws ErrorKind::device if NCCL is not there, or is one that frit does not know.
int nccl_version() {
  int version = 0;
  FRIT_NCCL_CALL(ncclGetVersion(&version));
  const bool known = version >= 21300 && version < 30000;
  if (!known) fail(ErrorKind::device, "NCCL ", version / 10000, '.', version / 100 % 100, " is there; frit needs NCCL 2 from 2.13 on");
  return version;
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    default: fail(ErrorKind::bug, "frit bug: no mean of ", dtype, " by NCCL");
  }
}

std::size_t elements_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.elements()); }

}  // namespace

struct NcclGroup::Handle {
  int index = 0, version = 0, exceptions = std::uncaught_exceptions();
  ncclComm* communicator = nullptr;
  std::optional<WaitLimit> limit;

  /// After an error others may be gone, for whom NCCL would wait.
  ~Handle() {
    limit.reset();
    if (communicator == nullptr || cudaSetDevice(index) != cudaSuccess) return;
    ncclResult_t error = ncclSuccess;
    const bool good = ncclCommGetAsyncError(communicator, &error) == ncclSuccess && error == ncclSuccess;
    (void)(good && std::uncaught_exceptions() <= exceptions ? ncclCommDestroy(communicator) : ncclCommAbort(communicator));
  }
};

namespace {

/// The processes find out who keeps the GPUs waiting, and end.
WaitRules rules_with(Transport& transport, double seconds) {
  const auto ended_by = [&transport](const auto& body) {
    try {
      body();
    } catch (const ProcessLost& lost) {
      if (!lost.told()) std::cerr << "frit: error: " << lost.what() << '\n';
      transport.abort();
    }
  };
  return {.seconds = seconds,
          .meanwhile = [&transport, ended_by] { ended_by([&] { transport.tell_that_it_waits(); }); },
          .give_up = [&transport, ended_by,
                      seconds](const std::function<bool()>& done) { ended_by([&] { transport.find_lost(seconds, done); }); }};
}

}  // namespace

NcclGroup::NcclGroup(Transport& transport, int index, double seconds) : handle_(std::make_shared<Handle>()) {
  handle_->index = index;
  handle_->version = nccl_version();
  (void)compute_stream(index);  // makes the device current
  const WaitRules rules = rules_with(transport, seconds);
  // NCCL waits for the others itself, without an end.
  const auto within_limit = [&](const auto& body) {
    std::future<void> result = std::async(std::launch::async, [&] {
      (void)compute_stream(index);  // in this thread too
      body();
    });
    wait_by(rules, [&] { return result.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready; });
    result.get();
  };
  ncclUniqueId id = {};
  if (transport.rank() == 0) within_limit([&] { FRIT_NCCL_CALL(ncclGetUniqueId(&id)); });
  transport.broadcast(&id, sizeof(id), 0);
  within_limit([&] { FRIT_NCCL_CALL(ncclCommInitRank(&handle_->communicator, transport.size(), id, transport.rank())); });
  handle_->limit.emplace(index, rules);
}

NcclGroup::~NcclGroup() { handle_->limit.reset(); }

void NcclGroup::mean(std::span<const Tensor> tensors, std::span<const Tensor> results, CUstream_st* stream) {
  FRIT_CHECK(tensors.size() == results.size());
  CUstream_st* const own = compute_stream(handle_->index);  // makes the device current
  keep_with_recording(handle_);
  FRIT_NCCL_CALL(ncclGroupStart());
  ncclResult_t result = ncclSuccess;
  for (std::size_t i = 0; i < tensors.size() && result == ncclSuccess; ++i)
    result = ncclAllReduce(tensors[i].raw(), results[i].raw(), elements_of(tensors[i]), nccl_type(tensors[i].dtype()), ncclAvg,
                           handle_->communicator, stream == nullptr ? own : stream);
  const ncclResult_t end = ncclGroupEnd();  // whatever came before
  check_nccl(result, "ncclAllReduce", __FILE__, __LINE__);
  check_nccl(end, "ncclGroupEnd", __FILE__, __LINE__);
}

void NcclGroup::broadcast(const Tensor& tensor, int root) {
  CUstream_st* const stream = compute_stream(handle_->index);
  FRIT_NCCL_CALL(
      ncclBroadcast(tensor.raw(), tensor.raw(), static_cast<std::size_t>(tensor.bytes()), ncclUint8, root, handle_->communicator, stream));
}

std::string NcclGroup::version() const {
  const int version = handle_->version;
  return concat("NCCL ", version / 10000, '.', version / 100 % 100, '.', version % 100);
}

}  // namespace frit::cuda
