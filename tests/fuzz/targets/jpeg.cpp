#include "frit/core/io/jpeg.h"

#include "frit/core/io/file.h"
#include "fuzz/fuzzing.h"

namespace frit {

FRIT_FUZZ_TARGET(jpeg) { read_jpeg(MemoryInput(std::as_bytes(std::span(bytes)), "input")); }

}  // namespace frit
