#include "frit/core/io/npy.h"

#include "frit/core/io/file.h"
#include "fuzz/fuzzing.h"

namespace frit {

FRIT_FUZZ_TARGET(npy) {
  const MemoryInput input(std::as_bytes(std::span(bytes)), "input");
  const Tensor tensor = read_npy(input);
  const std::optional<StoredArray> found = find_npy_array(input);
  FRIT_CHECK(!found || (found->dtype == tensor.dtype() && found->shape == tensor.shape()));
  const std::vector<std::byte> written = serialize_npy(tensor);
  FRIT_CHECK(serialize_npy(parse_npy(written, "written")) == written);
}

}  // namespace frit
