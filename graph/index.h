#pragma once

#include <cstddef>

namespace frit::graph {

/// The number of a node or a value, to find what a vector has for it.
inline std::size_t index(int number) { return static_cast<std::size_t>(number); }

}  // namespace frit::graph
