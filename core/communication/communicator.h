#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frit/core/communication/parts.h"
#include "frit/core/cuda/nccl.h"
#include "frit/core/tensor.h"

struct CUstream_st;  // what cudaStream_t points to

namespace frit {

/// Processes that train one model together, each with a device of its own, all of one kind. All of them make the same calls in the same
/// order.
class Communicator {
 public:
  /// Of the processes that a launcher started this one with (see Launch); null if it was started alone. `device` is of this process: for
  /// a GPU see local_device.
  static std::shared_ptr<Communicator> from_environment(Device device);
  /// Of this process and no other: means are what it has, and nothing travels.
  static std::shared_ptr<Communicator> alone(Device device);
  /// The device of a process of a launch: of several GPUs of a machine each process takes its own.
  static Device local_device(Device device);

  Communicator(std::unique_ptr<Transport> transport, Device device);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  bool is_first() const { return rank() == 0; }
  int machines() const;  ///< that the processes run on
  Device device() const { return device_; }
  /// "Open MPI v4.1.4, 4 processes", "NCCL 2.28.9, TCP at localhost:29500, 2 processes".
  std::string description() const;

  /// By which a graph's operations name it (see ops::all_reduce), as long as it lives.
  std::int64_t id() const { return id_; }
  static constexpr std::int64_t no_id = 0;  ///< that no communicator has: an operation's process has no others
  /// Throws ErrorKind::argument if there is none of this number any more.
  static Communicator& of(std::int64_t id);

  /// The mean over all processes of each tensor, the same bits in each. `results[i]` may be `tensors[i]`; all are contiguous, floating and
  /// of the communicator's device. On a CPU sums are in the order of ranks, those of halves in float32; on a GPU NCCL computes them, in the
  /// order of `stream`, which is the device's compute stream if null.
  void mean(std::span<const Tensor> tensors, std::span<const Tensor> results, CUstream_st* stream = nullptr);
  /// The first half of `mean`: `results[i]` gets this process's part of the mean of `tensors[i]` (see Parts), where it may lie already. Of
  /// what else lies in `tensors` nothing is changed.
  void reduce_scatter(std::span<const Tensor> tensors, std::span<const Tensor> results, CUstream_st* stream = nullptr);
  /// The second: `results[i]`, of any dtype, gets all processes' parts, of which `tensors[i]` is this one's and may lie there already.
  void all_gather(std::span<const Tensor> tensors, std::span<const Tensor> results, CUstream_st* stream = nullptr);
  Parts parts(std::int64_t elements) const { return {elements, size()}; }
  /// Gives all processes what process `root` has.
  void broadcast(const Tensor& tensor, int root = 0);
  /// Everyone's text, by rank.
  std::vector<std::string> all_gather(const std::string& own);
  /// The sum over all processes, in the order of ranks, of each number.
  std::vector<double> sum(const std::vector<double>& own);
  /// Throws ErrorKind::argument in all processes if any has another text than the first: "`what`: process 3 has ..., process 0 has ...".
  void require_same(const std::string& what, const std::string& own);
  /// Waits for all.
  void barrier() { (void)all_gather({}); }

 private:
  void reduce_scatter_of(DType dtype, std::span<const Tensor> tensors, std::span<const Tensor> results);
  std::size_t buffers_for(std::span<const Tensor> wholes, std::optional<DType> dtype);

  std::unique_ptr<Transport> transport_;
  Device device_;
  std::int64_t id_;
  std::unique_ptr<cuda::NcclGroup> nccl_;   // of GPUs
  std::vector<std::byte> sent_, received_;  // of tensors on a CPU
};

}  // namespace frit
