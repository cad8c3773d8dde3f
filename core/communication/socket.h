#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "frit/core/communication/transport.h"
#include "frit/core/communication/waiting.h"

/// TCP as frit needs it: IPv4 and IPv6, no call that waits longer than it may, none that is cut short by a signal, no SIGPIPE.
namespace frit::tcp {

class Deadline {
 public:
  explicit Deadline(double seconds) : seconds_(seconds) {}
  bool passed() const { return waited_.seconds() >= seconds_; }
  /// What is left, for poll(), but a second at the most; 0 when it has passed.
  int milliseconds() const;

 private:
  double seconds_;
  mutable Waiting waited_;
};

/// A descriptor that is closed with it; -1 for none.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

/// Listens for connections to the port: of this machine alone if the address is a loopback one, otherwise at all of its own addresses,
/// since a name may lead others elsewhere than the machine itself. Throws ErrorKind::device.
Socket listen_at(const std::string& address, int port);
/// The next connection that has come; none if there is none.
Socket accept_from(const Socket& listener);
/// One attempt; if it fails, none, and `why` says it.
Socket connect_to(const std::string& address, int port, const Deadline& deadline, std::string& why);

enum class Progress { done, closed, late };
Progress send_all(const Socket& socket, std::span<const std::byte> bytes, const Deadline& deadline);
Progress receive_all(const Socket& socket, std::span<std::byte> bytes, const Deadline& deadline);
/// Takes in what is there, up to all of `bytes`, without waiting; returns how many bytes it was, or -1 if the connection was closed before.
std::ptrdiff_t receive_some(const Socket& socket, std::span<std::byte> bytes);
/// Whether as many bytes have come, which stay there to be received.
bool peek(const Socket& socket, std::span<std::byte> bytes);

/// A port of this machine at which nobody listens now.
int free_port();
/// "node1:29500", "[::1]:29500".
std::string place_text(const std::string& address, int port);

}  // namespace frit::tcp
