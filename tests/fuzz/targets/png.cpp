#include "frit/core/io/png.h"

#include "frit/core/io/file.h"
#include "fuzz/fuzzing.h"

namespace frit {

FRIT_FUZZ_TARGET(png, fuzzing::mutate_png) { read_png(MemoryInput(std::as_bytes(std::span(bytes)), "input")); }

}  // namespace frit
