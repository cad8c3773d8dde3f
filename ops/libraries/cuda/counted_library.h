#pragma once

#include "frit/core/cuda/loaded_library.h"
#include "frit/ops/libraries/library_plans.h"

namespace frit::cuda {

/// A library whose loading counts as such: see ops::LibraryLoad.
struct CountedLibrary : LoadedLibrary {
  void* function(const char* function_name) const {
    const ops::LibraryLoad load;
    return LoadedLibrary::function(function_name);
  }
};

}  // namespace frit::cuda
