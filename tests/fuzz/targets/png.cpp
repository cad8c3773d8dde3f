#include "frit/core/io/png.h"

#include "frit/core/io/file.h"
#include "fuzz/fuzzing.h"

namespace frit {

/// As an image, and what is one as a mask too.
FRIT_FUZZ_TARGET(png, fuzzing::mutate_png) {
  read_png(MemoryInput(std::as_bytes(std::span(bytes)), "input"));
  read_png_classes(fuzzing::path_of(bytes));
}

}  // namespace frit
