#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "frit/core/communication/socket.h"

/// What processes that are connected by TCP say to each other.
namespace frit::tcp {

/// What each says of itself first. Of another byte order all of it is foreign.
struct Hello {
  static constexpr std::uint64_t frits = 0x6672697420746370, current_protocol = 2;

  std::uint64_t magic = frits, protocol = current_protocol;
  std::int32_t rank = 0, size = 0;
};

/// What stands before all that follows.
struct Header {
  static constexpr std::uint32_t frits = 0x66726974;
  static constexpr std::uint64_t most_text = 1 << 16;
  /// Of those without content, `wait` says that the first does so; after a failure comes its text.
  enum Kind : std::uint32_t { begin, gather, broadcast, wait, question, answer, failure };

  std::uint32_t magic = frits;
  Kind kind = begin;
  std::uint64_t call = 0;  ///< of those that all processes make alike; of questions these are counted apart
  std::uint64_t bytes = 0;

  bool is_frits() const { return magic == frits && kind <= failure && (kind != failure || bytes <= most_text); }
};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

inline std::span<const std::byte> view(const void* memory, std::size_t bytes) { return {static_cast<const std::byte*>(memory), bytes}; }

/// A message that comes in parts.
class Incoming {
 public:
  explicit Incoming(std::size_t bytes) : content_(bytes) {}

  /// Takes in what there is; false if the connection was closed before the message was whole.
  bool take(const Socket& socket);
  bool has(std::size_t bytes) const { return have_ >= bytes; }
  /// Forgets the first bytes, of those it has.
  void skip(std::size_t bytes);
  bool is_whole() const { return have_ == content_.size(); }
  template <class T>
  T start() const {
    T value;
    std::memcpy(&value, content_.data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> after(std::size_t bytes) const { return std::span(content_).subspan(bytes); }

 private:
  std::vector<std::byte> content_;
  std::size_t have_ = 0;
};

/// Waits until something comes by any of them, and marks it; not after the deadline, nor longer than `most_seconds`.
void poll_all(std::vector<pollfd>& polled, const Deadline& deadline, double most_seconds);
/// Marks of poll: the process at the other end is gone.
inline constexpr short ended = POLLRDHUP | POLLHUP | POLLERR | POLLNVAL;

/// While the first waits for some, it tells the others from time to time that it is there: who waits `seconds` for it does so in vain.
class Signs {
 public:
  explicit Signs(double seconds) : interval_(std::min(1.0, seconds / 4)), next_(interval_) {}

  double interval() const { return interval_; }
  void give(std::span<const Socket> sockets);

 private:
  double interval_;
  Deadline next_;
};

/// Tells them all why nothing more will come.
void send_failure(std::span<const Socket> sockets, const std::string& text);

/// The first waits at the launch's address for all others, who then speak to it by the connection of their rank; rank 0 has none. Who does
/// not speak as frit does is none of them. Throws ErrorKind::device, of which it has told all that came.
std::vector<Socket> meet(const Launch& launch, double seconds);
/// "TCP at node1:29500".
std::string meeting_text(const Launch& launch);

}  // namespace frit::tcp
