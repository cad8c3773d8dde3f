#pragma once

#include <string_view>

namespace frit {

/// Levels of processors as the x86-64 ABI and compilers name them, "x86-64-v3" (AVX2, FMA) or "x86-64-v4" (AVX-512); of other kinds of
/// processors the kind's name alone. The first is the one for which this library was compiled, which may be one of several that are
/// installed.
std::string_view compiled_processor_level();
/// The highest that this machine's processor has.
std::string_view machine_processor_level();

/// The cores that the process may use: fewer than there are, in a container or under taskset.
int core_count();

}  // namespace frit
