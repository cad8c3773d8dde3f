#include "frit/core/io/nifti.h"

#include "frit/core/io/file.h"
#include "fuzz/fuzzing.h"

namespace frit {

FRIT_FUZZ_TARGET(nifti, fuzzing::mutate_gzip) { (void)read_nifti(MemoryInput(std::as_bytes(std::span(bytes)), "input")).channels(); }

}  // namespace frit
