#include "frit/core/communication/tcp_message.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "frit/core/error.h"

namespace frit::tcp {

bool Incoming::take(const Socket& socket) {
  const std::ptrdiff_t count = receive_some(socket, std::span(content_).subspan(have_));
  have_ += static_cast<std::size_t>(std::max<std::ptrdiff_t>(count, 0));
  return count >= 0;
}

void Incoming::skip(std::size_t bytes) {
  std::copy(content_.begin() + static_cast<std::ptrdiff_t>(bytes), content_.end(), content_.begin());
  have_ -= bytes;
}

void poll_all(std::vector<pollfd>& polled, const Deadline& deadline, double most_seconds) {
  const int milliseconds = std::min(deadline.milliseconds(), static_cast<int>(1000 * most_seconds) + 1);
  if (poll(polled.data(), polled.size(), milliseconds) > 0) return;
  for (pollfd& one : polled) one.revents = 0;
}

void Signs::give(std::span<const Socket> sockets) {
  if (!next_.passed()) return;
  next_ = Deadline(interval_);
  for (const Socket& socket : sockets) {
    if (socket.is_open()) (void)send_all(socket, bytes_of(Header{.kind = Header::wait}), Deadline(0));
  }
}

void send_failure(std::span<const Socket> sockets, const std::string& text) {
  const std::size_t bytes = std::min<std::size_t>(text.size(), Header::most_text);
  const Header header{.kind = Header::failure, .bytes = bytes};
  for (const Socket& socket : sockets) {
    if (!socket.is_open()) continue;
    if (send_all(socket, bytes_of(header), Deadline(0)) == Progress::done) (void)send_all(socket, view(text.data(), bytes), Deadline(0));
    (void)shutdown(socket.descriptor(), SHUT_WR);
  }
  // A connection that is closed with bytes that nobody read loses what was sent by it.
  const Deadline until(1);
  std::array<std::byte, 4096> unread;
  for (const Socket& socket : sockets) {
    while (socket.is_open() && receive_all(socket, unread, until) == Progress::done) {
    }
  }
}

std::string meeting_text(const Launch& launch) { return "TCP at " + place_text(launch.address, launch.port); }

}  // namespace frit::tcp
