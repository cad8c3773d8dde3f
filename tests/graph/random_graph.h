#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frit/graph/graph.h"

namespace frit::random_graphs {

/// One of the things that may be done to the value at hand (a convolution, a norm, ...), with settings that follow from the seed.
struct Step {
  std::size_t move;
  std::uint32_t seed;
};

/// A graph as data. A step that does not fit what comes before it does nothing, so that a recipe with any steps left out is a recipe too.
struct Recipe {
  std::uint64_t seed;  ///< also of the data
  Shape input;
  DType dtype;      ///< of the graph as it is written
  DType precision;  ///< what it is to be stored in: f16 and bf16 for graph::lower_precision, else f32
  bool tf32, trained;
  std::vector<Step> steps;
};

/// Half of them are what follows convolutions in the reference models and in common networks, as it stands or changed a little.
Recipe random_recipe(std::uint64_t seed);
/// "f32 stored in f16, trained: input 2x3x7x8; scale:17 instance_norm:4021".
std::string to_text(const Recipe& recipe);

/// What a recipe says.
struct Built {
  Graph graph;
  bool kinked = false;  ///< the gradient jumps somewhere: at a bound, at the edge of what is largest
};

enum class Spelling {
  as_written,  ///< in the recipe's dtype
  plain,       ///< likewise, but what differs at inference is spelled as what it is then
  exact,       ///< likewise, all of it in float64
};

Built build(const Recipe& recipe, Spelling spelling);

}  // namespace frit::random_graphs
