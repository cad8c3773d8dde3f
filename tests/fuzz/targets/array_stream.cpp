#include <algorithm>

#include "frit/core/io/npy.h"
#include "fuzz/fuzzing.h"

namespace frit {

FRIT_FUZZ_TARGET(array_stream) {
  std::span<const std::byte> rest = std::as_bytes(std::span(bytes));
  NpyStream stream(
      [&](std::span<std::byte> into) {
        const std::size_t count = std::min(into.size(), rest.size());
        std::copy_n(rest.begin(), count, into.begin());
        rest = rest.subspan(count);
        return count;
      },
      "input");
  try {
    while (stream.next()) continue;
  } catch (const Error& error) {
    // How much is still to come a stream does not say.
    if (error.kind() != ErrorKind::out_of_memory) throw;
  }
}

}  // namespace frit
