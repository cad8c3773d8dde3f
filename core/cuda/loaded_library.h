#pragma once

#include <atomic>

namespace frit::cuda {

/// A shared library that is loaded when its first function is called: a program starts without it, and runs where it is not installed, as
/// long as it does not need it.
struct LoadedLibrary {
  const char* path;  ///< where it lay when frit was built
  const char* name;  ///< by which the system finds it where it is not there

  /// Throws ErrorKind::device if there is no such library or function.
  void* function(const char* function_name) const;
};

/// A function of a LoadedLibrary, or of what derives from it, to be called as if it were linked.
template <const auto& library, class Signature>
class LibraryFunction;

template <const auto& library, class Result, class... Arguments>
class LibraryFunction<library, Result(Arguments...)> {
 public:
  constexpr explicit LibraryFunction(const char* name) : name_(name) {}

  Result operator()(Arguments... arguments) const {
    void* function = function_.load(std::memory_order_acquire);
    if (function == nullptr) function_.store(function = library.function(name_), std::memory_order_release);
    return reinterpret_cast<Result (*)(Arguments...)>(function)(arguments...);
  }

 private:
  const char* name_;
  mutable std::atomic<void*> function_ = nullptr;
};

/// Declares the function of that name in front of the one in the library's header.
#define FRIT_LIBRARY_FUNCTION(library, function) \
  inline constinit ::frit::cuda::LibraryFunction<library, decltype(::function)> function(#function)

}  // namespace frit::cuda
