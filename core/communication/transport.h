#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "frit/core/communication/launch.h"
#include "frit/core/error.h"

namespace frit {

/// Seconds that a process waits for another one: 300, or what FRIT_COMMUNICATION_TIMEOUT says.
double communication_timeout();
/// When they are over, seconds in which the processes find out who does not wait for the others.
inline constexpr double roll_call_seconds = 5;

/// A process ended or hangs, which the message names; all others throw this. Of ErrorKind::device.
class ProcessLost : public Error {
 public:
  explicit ProcessLost(const std::string& message, bool told = false) : Error(ErrorKind::device, message), told_(told) {}
  /// Whether another process says so too: this one needs not.
  bool told() const { return told_; }

 private:
  bool told_;
};
/// Throws a ProcessLost that is told, a little later: a launcher that sees this process end may end the one that speaks.
[[noreturn]] void throw_told(const std::string& message);

/// "process 3", "processes 1 (node1), 2 (node2)"; without hosts, or where all are one, none are named.
std::string processes_text(const std::vector<int>& ranks, const std::vector<std::string>& hosts = {});

/// How processes exchange bytes of the host's memory. All of them make the same calls in the same order, one at a time. Calls throw
/// ProcessLost when others do not make them in time.
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

  /// Whoever waits for others, but not in a call of these (for work of GPUs), lets them know so by this, several times a second. From any
  /// thread. Throws ProcessLost when another process has given up.
  virtual void tell_that_it_waits() {}
  /// Whoever has done so for too long: returns once `done` is true, or throws ProcessLost, which names those that did not come. In all
  /// processes it is told but in one.
  virtual void find_lost(double waited, const std::function<bool()>& done);

  /// To be called by all, for messages that name machines.
  void learn_hosts();
  /// By rank, once they are learnt.
  const std::vector<std::string>& hosts() const { return hosts_; }

 protected:
  /// "process 3 (node2) did not come within 300 s to what the other 63 wait for ..."
  std::string lost_text(const std::vector<int>& lost, double waited) const;

 private:
  std::vector<std::string> hosts_;
};

/// MPI, from the module that is built where MPI is installed. Throws ErrorKind::device if it is not there.
std::unique_ptr<Transport> mpi_transport();

/// Connections of all processes with the first, which listens at the launch's address; for what is small. Waits up to `seconds` for the
/// others. Throws ErrorKind::device, naming the address and who is missing.
std::unique_ptr<Transport> tcp_transport(const Launch& launch, double seconds = communication_timeout());

}  // namespace frit
