#include "frit/core/communication/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "frit/core/error.h"
#include "frit/core/io/file.h"

namespace frit::tcp {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// An empty address stands for all of this machine's. Null if there is none, and `why` says it.
Addresses addresses_of(const std::string& address, int port, std::string& why) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (address.empty() ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int error = getaddrinfo(address.empty() ? nullptr : address.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) why = error == EAI_SYSTEM ? reason(errno) : gai_strerror(error);
  return Addresses(error == 0 ? list : nullptr);
}

void set(const Socket& socket, int level, int option, int value) {
  (void)setsockopt(socket.descriptor(), level, option, &value, sizeof(value));
}

Socket socket_for(const addrinfo& place) {
  return Socket(::socket(place.ai_family, place.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, place.ai_protocol));
}

/// Waits until the socket can be read from or written to, or is closed; false if that takes too long.
bool wait_for(const Socket& socket, short what, const Deadline& deadline) {
  pollfd polled = {socket.descriptor(), what, 0};
  do {
    const int count = poll(&polled, 1, deadline.milliseconds());
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return true;  // the call that follows says what is wrong
  } while (!deadline.passed());
  return false;
}

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

/// A connection from a port to itself comes about where nobody listens at one of those that the system gives out.
bool is_with_itself(const Socket& socket) {
  sockaddr_storage own = {}, other = {};
  socklen_t own_size = sizeof(own), other_size = sizeof(other);
  return getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&other), &other_size) == 0 && own_size == other_size &&
         std::memcmp(&own, &other, own_size) == 0;
}

/// An errno; 0 for success.
int connect_once(const Socket& socket, const addrinfo& place, const Deadline& deadline) {
  if (connect(socket.descriptor(), place.ai_addr, place.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  if (!wait_for(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

/// Moves all bytes by `move(descriptor, bytes that are left)`, a system call that moves some.
template <class Bytes, class Move>
Progress move_all(const Socket& socket, Bytes bytes, short what, const Deadline& deadline, const Move& move) {
  while (!bytes.empty()) {
    const ssize_t moved = move(socket.descriptor(), bytes);
    if (moved > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(moved));
    } else if (moved == 0 || !would_wait(errno)) {
      return Progress::closed;
    } else if (!wait_for(socket, what, deadline)) {
      return Progress::late;
    }
  }
  return Progress::done;
}

ssize_t receive(int descriptor, std::span<std::byte> bytes) { return recv(descriptor, bytes.data(), bytes.size(), 0); }

bool is_loopback(const std::string& address) { return address == "localhost" || address == "::1" || address.starts_with("127."); }

}  // namespace

int Deadline::milliseconds() const { return static_cast<int>(std::ceil(1000 * std::clamp(seconds_ - waited_.seconds(), 0.0, 1.0))); }

Socket::~Socket() {
  if (is_open()) close(descriptor_);
}

Socket listen_at(const std::string& address, int port) {
  std::string why = "no address";
  const Addresses places = addresses_of(is_loopback(address) ? address : "", port, why);
  // One of IPv6 takes connections of IPv4 too.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* place = places.get(); place != nullptr; place = place->ai_next) {
      if (place->ai_family != family) continue;
      Socket socket = socket_for(*place);
      if (!socket.is_open()) why = reason(errno);
      if (!socket.is_open()) continue;
      set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
      if (family == AF_INET6) set(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
      if (bind(socket.descriptor(), place->ai_addr, place->ai_addrlen) == 0 && listen(socket.descriptor(), SOMAXCONN) == 0) return socket;
      why = reason(errno);
    }
  }
  fail(ErrorKind::device, "TCP at ", place_text(address, port), ": cannot listen: ", why);
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.is_open()) set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

Socket connect_to(const std::string& address, int port, const Deadline& deadline, std::string& why) {
  const Addresses places = addresses_of(address, port, why);
  for (const addrinfo* place = places.get(); place != nullptr; place = place->ai_next) {
    Socket socket = socket_for(*place);
    const int error = socket.is_open() ? connect_once(socket, *place, deadline) : errno;
    if (error == 0 && !is_with_itself(socket)) {
      set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
      return socket;
    }
    why = reason(error == 0 ? ECONNREFUSED : error);
  }
  return Socket();
}

Progress send_all(const Socket& socket, std::span<const std::byte> bytes, const Deadline& deadline) {
  return move_all(socket, bytes, POLLOUT, deadline,
                  [](int descriptor, std::span<const std::byte> left) { return send(descriptor, left.data(), left.size(), MSG_NOSIGNAL); });
}

Progress receive_all(const Socket& socket, std::span<std::byte> bytes, const Deadline& deadline) {
  return move_all(socket, bytes, POLLIN, deadline, receive);
}

std::ptrdiff_t receive_some(const Socket& socket, std::span<std::byte> bytes) {
  const ssize_t count = receive(socket.descriptor(), bytes);
  if (count > 0) return count;
  return count < 0 && would_wait(errno) ? 0 : -1;
}

bool peek(const Socket& socket, std::span<std::byte> bytes) {
  return recv(socket.descriptor(), bytes.data(), bytes.size(), MSG_PEEK) == std::ssize(bytes);
}

int free_port() {
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place = {};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(place);
  const bool found = bind(socket.descriptor(), reinterpret_cast<const sockaddr*>(&place), size) == 0 &&
                     getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&place), &size) == 0;
  if (!found) fail(ErrorKind::device, "TCP: no free port: ", reason(errno));
  return ntohs(place.sin_port);
}

std::string place_text(const std::string& address, int port) {
  return address.find(':') == std::string::npos ? concat(address, ':', port) : concat('[', address, "]:", port);
}

}  // namespace frit::tcp
