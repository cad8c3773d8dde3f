#include "frit/core/io/npz.h"

#include "frit/core/io/file.h"
#include "fuzz/fuzzing.h"

namespace frit {

FRIT_FUZZ_TARGET(npz, fuzzing::mutate_zip) { read_npz(MemoryInput(std::as_bytes(std::span(bytes)), "input")); }

}  // namespace frit
