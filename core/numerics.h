#pragma once

#include <cstddef>

namespace frit {

/// How the libraries behind convolutions and matrix products may compute. Read when a graph is compiled; frit's own kernels are exact to
/// their dtype and deterministic whatever is set here.
struct Numerics {
  bool tf32 = true;  ///< float32 products on a GPU round their factors to 10 bits of mantissa, as PyTorch's convolutions do by default
  bool deterministic = false;                          ///< only algorithms that give the same bits at every run
  std::size_t workspace_limit = std::size_t{1} << 30;  ///< bytes of workspace that one call may take
};

/// The process's; thread-safe.
Numerics numerics();
void set_numerics(const Numerics& numerics);

}  // namespace frit
