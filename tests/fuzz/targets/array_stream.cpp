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
  // How much is still to come a stream does not say: who reads one says, as `frit infer` does, what may come.
  const auto check = [](const Shape& shape) {
    if (element_count(shape) > 1 << 20) fail(ErrorKind::format, "expected no more than a million numbers, got ", shape);
  };
  while (stream.next(check)) continue;
}

}  // namespace frit
