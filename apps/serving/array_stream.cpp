#include "apps/serving/array_stream.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "apps/common/process.h"
#include "frit/core/error.h"

namespace frit::apps {

ArrayInput::ArrayInput() : stream_([this](std::span<std::byte> into) { return read(into); }, "standard input") {}

std::size_t ArrayInput::read(std::span<std::byte> into) const {
  constexpr int patience = 50;  // milliseconds
  std::size_t count = 0;
  while (count < into.size()) {
    struct pollfd descriptor = {STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&descriptor, 1, patience);
    if (stopped_) return count;
    if (ready == 0) continue;
    const ssize_t got = ready < 0 ? -1 : ::read(STDIN_FILENO, into.data() + count, into.size() - count);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorKind::file_system, "standard input: ", std::strerror(errno));
    if (got == 0) break;
    count += static_cast<std::size_t>(got);
  }
  return count;
}

void write_array(const Tensor& tensor) {
  const std::vector<std::byte> bytes = serialize_npy(tensor);
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::write(STDOUT_FILENO, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EPIPE || errno == EBADF)) throw OutputClosed();
    if (count < 0) fail(ErrorKind::file_system, "standard output: ", std::strerror(errno));
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace frit::apps
