#pragma once

#include "frit/graph/executable.h"

namespace frit::apps {

/// One call of an operator as a graph.
struct SampleGraph {
  Graph graph;      ///< its inputs are named as the operator names them; what it updates is a variable; "output" is the first result
  Bindings inputs;  ///< the sample's values
};
SampleGraph sample_graph(const ops::Operator& op, const ops::Sample& sample, DType dtype, std::uint64_t seed);

}  // namespace frit::apps
