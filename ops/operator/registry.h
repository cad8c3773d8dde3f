#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// The operators that this program knows, frit's own and the user's. What adds operators, and not kernels alone,
/// includes operator.h, which the compilers of CUDA files need seconds for.
class Registry {
 public:
  Registry();
  ~Registry();

  /// Adds an operator whose attribute struct is A. Throws ErrorKind::argument if the name is taken or the entry is incomplete: no inference
  /// rule, no samples, neither a CPU kernel nor a decomposition, or not exactly one of gradient and no_gradient.
  template <class A = NoAttributes>
  const Operator& add(Operator entry);

  /// Gives an operator that is there already its CUDA kernel. Throws ErrorKind::argument for an unknown name or a second kernel.
  void add_cuda(std::string_view name, Kernel kernel);

  /// Throws ErrorKind::argument for an unknown name, with the nearest known one.
  const Operator& find(std::string_view name) const;
  bool contains(std::string_view name) const;
  /// Sorted by name.
  std::vector<const Operator*> all() const;

 private:
  const Operator& insert(Operator entry);

  struct Entries;
  std::unique_ptr<Entries> entries_;
};

/// The one registry; frit's own operators are in it from the first call on.
Registry& registry();

}  // namespace frit::ops

/// Opens the function that adds a .cu file's kernels (`registry.add_cuda(...)`) to the operators of the .cpp file next to it, all of which
/// are registered by then. Only builds with CUDA have these files.
#define FRIT_CUDA_KERNELS(name)                  \
  namespace frit::ops {                          \
  void register_cuda_##name(Registry& registry); \
  }                                              \
  void frit::ops::register_cuda_##name(::frit::ops::Registry& registry)
