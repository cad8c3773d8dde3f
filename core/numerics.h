#pragma once

#include <cstddef>

#include "frit/core/device.h"
#include "frit/core/dtype.h"

namespace frit {

/// How a GPU's plans and lowerings are chosen where the plan cache does not know the fastest: by the libraries' own ranking and by rule,
/// within seconds, or by running all there are, which takes up to a minute for a network. What was found by running goes to the plan cache.
enum class Search { heuristic, exhaustive };

/// Exhaustive where the environment says FRIT_SEARCH=exhaustive.
Search default_search();

/// How the libraries for convolutions and matrix products may compute. Read when a graph is compiled; frit's own kernels are exact to
/// their dtype and deterministic whatever is set here.
struct Numerics {
  bool tf32 = true;  ///< float32 products on a GPU round their factors to 10 bits of mantissa, as PyTorch's convolutions do by default
  bool deterministic = false;                          ///< only algorithms that give the same bits at every run; nothing is searched
  std::size_t workspace_limit = std::size_t{1} << 30;  ///< bytes of workspace that one call may take
  Search search = default_search();
};

/// The process's; thread-safe.
Numerics numerics();
void set_numerics(const Numerics& numerics);

/// How far results may lie from those in float64, of a tensor's largest value: with parameters of such a dtype, data stored in such a
/// precision, and the process's Numerics.
double expected_error(DType dtype, DType precision, Device device);

}  // namespace frit
