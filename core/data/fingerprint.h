#pragma once

#include <string>

#include "frit/core/data/dataset.h"

namespace frit {

/// Tells data from others of as many examples: a checksum of the fields' names, dtypes and shapes, and of examples. These are all of them
/// where they take 256 MiB at most, and otherwise up to 1024, evenly spread, that do. Random decisions are those of Epoch{}.
std::string fingerprint(const Dataset& dataset);

}  // namespace frit
