#pragma once

#include <string>
#include <vector>

#include "frit/graph/program.h"

namespace frit {

struct GradientCheckOptions {
  enum class Mode {
    full,        ///< every entry of the Jacobian: one backward run an output element, two forward runs an input element
    directional  ///< the derivative along random directions, for graphs with many parameters
  };
  Mode mode = Mode::full;
  double step = 1e-6;
  double absolute = 1e-7;  ///< also the floor for gradients that are truly zero
  double relative = 1e-6;  ///< of the larger of both values
  int directions = 8;      ///< for Mode::directional
  std::uint64_t seed = 1;
};

/// What was found for one input or variable.
struct GradientCheckResult {
  std::string name;
  Shape shape;
  std::int64_t checked = 0;  ///< entries compared, or directions
  std::int64_t failed = 0;
  std::int64_t kinks = 0;  ///< entries left out: left and right slope differ there (a clamp's bound, a tie of a max)
  double largest_gradient = 0;
  double largest_error = 0;        ///< absolute, among the entries compared
  std::string first_failure = {};  ///< "output 3, input 5: gradient 1.0, difference 0.5"

  bool passed() const { return failed == 0; }
};

/// Compares the gradient of every floating output with respect to every floating input and trainable variable with central differences, all
/// in float64. The graph runs as the pipeline makes it, fused operators included. An entry that disagrees is tried again with the
/// fourth-order stencil at a wider step before it counts as failed. `state` keeps its values: what a run updates (running statistics,
/// random counters) is put back before the next. Throws ErrorKind::argument for a graph that is not float64.
std::vector<GradientCheckResult> check_gradients(const Graph& graph, const Bindings& inputs, const std::shared_ptr<State>& state,
                                                 const GradientCheckOptions& options = {});

}  // namespace frit
