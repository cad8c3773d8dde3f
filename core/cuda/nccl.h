#pragma once

#include <memory>
#include <span>
#include <string>

#include "frit/core/communication/transport.h"
#include "frit/core/tensor.h"

struct CUstream_st;  // what cudaStream_t points to

namespace frit::cuda {

/// GPUs of several processes that NCCL connects. NCCL is loaded with the first of these.
class NcclGroup {
 public:
  /// The id under which the GPUs find each other goes from the first process to all by `transport`. Throws ErrorKind::device if NCCL is not
  /// there.
  /// From then on this process ends, and ends the others by `transport`, which outlives the group, once it has waited `seconds` for its
  /// GPU.
  NcclGroup(Transport& transport, int index, double seconds = communication_timeout());
  ~NcclGroup();

  /// See Communicator::mean. While `stream` is captured the work becomes part of the graph; such a call must have run
  /// before, as GPUs are connected by the first of its kind and size.
  void mean(std::span<const Tensor> tensors, std::span<const Tensor> results, CUstream_st* stream);
  /// See Communicator; likewise.
  void reduce_scatter(std::span<const Tensor> tensors, std::span<const Tensor> results, CUstream_st* stream);
  void all_gather(std::span<const Tensor> tensors, std::span<const Tensor> results, CUstream_st* stream);
  void broadcast(const Tensor& tensor, int root);
  /// "NCCL 2.28.9".
  std::string version() const;

 private:
  struct Handle;
  std::shared_ptr<Handle> handle_;  // graphs in which it was captured keep it too
};

}  // namespace frit::cuda
