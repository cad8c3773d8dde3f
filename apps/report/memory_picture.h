#pragma once

#include <string>

#include "frit/graph/executable.h"

namespace frit::apps {

/// An SVG of how the arena of a planned graph fills and empties from step to step: a rectangle for each buffer, as long as it lives and as
/// high as it is large, at its place; above it what is alive at each step. Colours tell inputs, results, scratch memory, and, in a training
/// step, gradients.
std::string memory_picture(const Graph& graph, const std::string& title, Device device = {});

}  // namespace frit::apps
