#pragma once

#include <optional>
#include <string>

#include "frit/graph/executable.h"

namespace frit::graph {

/// The numbers in a floating tensor. NaN and infinities are counted, and play no part in least and largest.
struct NumberRange {
  std::int64_t elements = 0, non_finite = 0;
  std::int64_t first_non_finite = -1;  ///< in row-major order
  double least = 0, largest = 0;
};
NumberRange range_of(const Tensor& tensor);

/// The first value of a run that is not finite.
struct NonFinite {
  std::string where;  ///< "operator log, %4 = log(%3) : f32 2x8" or "input \"image\"" or "variable \"conv.weight\""
  NumberRange range;

  /// where, with the count and the first place.
  std::string text() const;
};

/// Runs step by step and looks at the inputs, the variables, and then at what each step gives. Nothing if all of it is finite. Variables
/// are updated as by any run, up to there. `see`, if given, is called for each operation after its step.
std::optional<NonFinite> find_non_finite(Executable& executable, const Bindings& inputs, const std::function<void(const Call&)>& see = {});

/// "operator conv2d (\"conv.weight\", \"conv.bias\"): %4 = conv2d(...) ...": a call, with the variables that it reads.
std::string describe(const Graph& graph, const Call& call);

}  // namespace frit::graph
