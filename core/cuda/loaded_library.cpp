#include "frit/core/cuda/loaded_library.h"

#include <dlfcn.h>

#include "frit/core/error.h"

namespace frit::cuda {

void* LoadedLibrary::function(const char* function_name) const {
  // Once loaded it stays, and asking again costs nothing.
  void* loaded = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (loaded == nullptr) loaded = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (loaded == nullptr) fail(ErrorKind::device, name, " is needed, and cannot be loaded: ", dlerror());
  void* const function = dlsym(loaded, function_name);
  if (function == nullptr) fail(ErrorKind::device, name, " has no function ", function_name);
  return function;
}

}  // namespace frit::cuda
