#pragma once

// Tests of formats whose library this build of frit lacks; see core/io/find_formats.cmake.

#include <gtest/gtest.h>

#include <string_view>

namespace frit {

/// "libpng", "libjpeg", "libzip" or "libnifti2": whether frit was built without it.
constexpr bool is_missing([[maybe_unused]] std::string_view library) {
#ifdef FRIT_MISSING_LIBRARIES
  return !library.empty() && std::string_view(FRIT_MISSING_LIBRARIES).find(library) != std::string_view::npos;
#else
  return false;
#endif
}

}  // namespace frit

/// Ends a test, or the SetUp of a fixture, as skipped.
#define FRIT_SKIP_WITHOUT(library)    \
  if (!::frit::is_missing(library)) { \
  } else                              \
    GTEST_SKIP() << "frit was built without " << (library)
