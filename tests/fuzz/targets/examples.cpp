#include "frit/core/data/files.h"
#include "fuzz/fuzzing.h"

namespace frit {

/// What `frit infer` is given: any of five formats, as the first bytes say.
FRIT_FUZZ_TARGET(examples) { read_examples(fuzzing::path_of(bytes)); }

}  // namespace frit
