#include "frit/core/io/idx.h"

#include "frit/core/io/file.h"
#include "fuzz/fuzzing.h"

namespace frit {

FRIT_FUZZ_TARGET(idx, fuzzing::mutate_gzip) {
  const MemoryInput input(std::as_bytes(std::span(bytes)), "input");
  const Tensor tensor = read_idx(input);
  const std::optional<StoredArray> found = find_idx_array(input);
  FRIT_CHECK(!found || (found->dtype == tensor.dtype() && found->shape == tensor.shape()));
}

}  // namespace frit
