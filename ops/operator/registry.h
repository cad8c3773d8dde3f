#pragma once

#include <deque>
#include <string_view>
#include <unordered_map>

#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// The operators that this program knows, frit's own and the user's.
class Registry {
 public:
  /// Adds an operator whose attribute struct is A. Throws ErrorKind::argument if the name is taken or the entry is incomplete: no inference
  /// rule, no samples, neither a CPU kernel nor a decomposition, or not exactly one of gradient and no_gradient.
  template <class A = NoAttributes>
  const Operator& add(Operator entry) {
    entry.attributes_from_json = [name = entry.name](std::string_view json) { return Attributes(fields_from_json<A>(json, A{}, name)); };
    entry.default_attributes = Attributes(A{});
    return insert(std::move(entry));
  }

  /// Gives an operator that is there already its CUDA kernel. Throws ErrorKind::argument for an unknown name or a second kernel.
  void add_cuda(std::string_view name, Kernel kernel);

  /// Throws ErrorKind::argument for an unknown name, with the nearest known one.
  const Operator& find(std::string_view name) const;
  bool contains(std::string_view name) const { return by_name_.contains(std::string(name)); }
  /// Sorted by name.
  std::vector<const Operator*> all() const;

 private:
  const Operator& insert(Operator entry);

  std::deque<Operator> operators_;  // addresses stay
  std::unordered_map<std::string, Operator*> by_name_;
};

/// The one registry; frit's own operators are in it from the first call on.
Registry& registry();

}  // namespace frit::ops

/// Opens the function that registers a file's operators. `name` is the file's stem; the build finds these lines and calls them all.
/// A program's own operators are added by a plain call of `ops::registry().add(...)` before the first graph. What runs once
/// is compiled to be small.
#define FRIT_OPERATORS(name)                              \
  namespace frit::ops {                                   \
  [[gnu::cold]] void register_##name(Registry& registry); \
  }                                                       \
  void frit::ops::register_##name(::frit::ops::Registry& registry)

/// Opens the function that adds a .cu file's kernels (`registry.add_cuda(...)`) to the operators of the .cpp file next to it, all of which
/// are registered by then. Only builds with CUDA have these files.
#define FRIT_CUDA_KERNELS(name)                  \
  namespace frit::ops {                          \
  void register_cuda_##name(Registry& registry); \
  }                                              \
  void frit::ops::register_cuda_##name(::frit::ops::Registry& registry)
