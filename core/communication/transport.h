#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "frit/core/communication/launch.h"

namespace frit {

/// Seconds that a process waits for another one: 300, or what FRIT_COMMUNICATION_TIMEOUT says.
double communication_timeout();

/// How processes exchange bytes of the host's memory. All of them make the same calls in the same order, one at a time.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "Open MPI 4.1.4", "TCP at node1:29500".
  virtual std::string description() const = 0;

  /// `all` gets the bytes of process r at r * bytes.
  virtual void all_gather(const void* own, void* all, std::size_t bytes) = 0;
  /// `received` gets, at r * bytes, what process r has at rank() * bytes of what it sends.
  virtual void all_to_all(const void* sent, void* received, std::size_t bytes) = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
  /// Ends all processes, this one too, which has said why.
  [[noreturn]] virtual void abort() = 0;
};

/// MPI, from the module that is built where MPI is installed. Throws ErrorKind::device if it is not there.
std::unique_ptr<Transport> mpi_transport();

/// Connections of all processes with the first, which listens at the launch's address; for what is small. Waits up to `seconds` for the
/// others. Throws ErrorKind::device, naming the address and who is missing.
std::unique_ptr<Transport> tcp_transport(const Launch& launch, double seconds = communication_timeout());

}  // namespace frit
