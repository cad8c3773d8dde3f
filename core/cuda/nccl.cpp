#include "frit/core/cuda/nccl.h"

#include <chrono>
#include <exception>
#include <future>
#include <iostream>
#include <optional>

#include "frit/core/communication/parts.h"
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
FRIT_LIBRARY_FUNCTION(nccl_library, ncclAllGather);
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
FRIT_LIBRARY_FUNCTION(nccl_library, ncclReduce);
FRIT_LIBRARY_FUNCTION(nccl_library, ncclReduceScatter);

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

/// call(i) for each of so many tensors, as one of NCCL's groups; what it gives is not success ends them.
template <class Call>
void in_one_group(std::size_t tensors, const char* name, const Call& call) {
  FRIT_NCCL_CALL(ncclGroupStart());
  ncclResult_t result = ncclSuccess;
  for (std::size_t i = 0; i < tensors && result == ncclSuccess; ++i) result = call(i);
  const ncclResult_t end = ncclGroupEnd();  // whatever came before
  check_nccl(result, name, __FILE__, __LINE__);
  check_nccl(end, "ncclGroupEnd", __FILE__, __LINE__);
}

}  // namespace

struct NcclGroup::Handle : std::enable_shared_from_this<Handle> {
  int index = 0, version = 0, rank = 0, size = 1, exceptions = std::uncaught_exceptions();
  ncclComm* communicator = nullptr;
  std::optional<WaitLimit> limit;

  /// Makes the device current. Where the stream is recorded, this lives as long as the graph.
  CUstream_st* stream_or_own(CUstream_st* stream) const {
    keep_with_recording(shared_from_this());
    CUstream_st* const own = compute_stream(index);
    return stream == nullptr ? own : stream;
  }

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
  handle_->rank = transport.rank();
  handle_->size = transport.size();
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
  stream = handle_->stream_or_own(stream);
  in_one_group(tensors.size(), "ncclAllReduce", [&](std::size_t i) {
    return ncclAllReduce(tensors[i].raw(), results[i].raw(), elements_of(tensors[i]), nccl_type(tensors[i].dtype()), ncclAvg,
                         handle_->communicator, stream);
  });
}

void NcclGroup::reduce_scatter(std::span<const Tensor> tensors, std::span<const Tensor> results, CUstream_st* stream) {
  FRIT_CHECK(tensors.size() == results.size());
  stream = handle_->stream_or_own(stream);
  const int last = handle_->size - 1;
  in_one_group(tensors.size(), "ncclReduceScatter", [&](std::size_t i) {
    const Parts parts(tensors[i].elements(), handle_->size);
    const ncclDataType_t type = nccl_type(tensors[i].dtype());
    const auto each = static_cast<std::size_t>(parts.each()), rest = static_cast<std::size_t>(parts.rest());
    ncclResult_t result = ncclSuccess;
    if (each > 0) result = ncclReduceScatter(tensors[i].raw(), results[i].raw(), each, type, ncclAvg, handle_->communicator, stream);
    if (rest == 0 || result != ncclSuccess) return result;
    void* const place = handle_->rank == last ? address_of(results[i], parts.each()) : nullptr;
    return ncclReduce(address_of(tensors[i], parts.each() * handle_->size), place, rest, type, ncclAvg, last, handle_->communicator,
                      stream);
  });
}

void NcclGroup::all_gather(std::span<const Tensor> tensors, std::span<const Tensor> results, CUstream_st* stream) {
  FRIT_CHECK(tensors.size() == results.size());
  stream = handle_->stream_or_own(stream);
  const int last = handle_->size - 1;
  in_one_group(tensors.size(), "ncclAllGather", [&](std::size_t i) {
    const Parts parts(results[i].elements(), handle_->size);
    const std::size_t bytes = size_of(results[i].dtype());
    const std::size_t each = static_cast<std::size_t>(parts.each()) * bytes, rest = static_cast<std::size_t>(parts.rest()) * bytes;
    ncclResult_t result = ncclSuccess;
    if (each > 0) result = ncclAllGather(tensors[i].raw(), results[i].raw(), each, ncclUint8, handle_->communicator, stream);
    if (rest == 0 || result != ncclSuccess) return result;
    std::byte* const place = address_of(results[i], parts.each() * handle_->size);
    const void* const own = handle_->rank == last ? address_of(tensors[i], parts.each()) : place;
    return ncclBroadcast(own, place, rest, ncclUint8, last, handle_->communicator, stream);
  });
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
