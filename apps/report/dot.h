#pragma once

#include <string>

namespace frit::apps {

/// The SVG that Graphviz's program `dot` draws of a graph in its language. Throws ErrorKind::file_system where it is not installed or
/// fails.
std::string draw_dot(const std::string& graph);

}  // namespace frit::apps
