#pragma once

#include <string>

#include "frit/graph/state.h"

namespace frit {

/// The bytes of an ONNX model, opset 17, of what the graph computes at inference, with the variables of `state`; inputs and outputs keep
/// their names. What does not depend on the inputs is computed here. The inputs' first axis, a batch, may have any size if the operators
/// do not depend on it; else all sizes are the graph's. Throws ErrorKind::argument that names *all* operators that ONNX has no spelling of.
std::string to_onnx(const Graph& graph, const State& state);
/// Writes them in one step: a failure leaves the old file.
void export_onnx(const std::string& path, const Graph& graph, const State& state);

}  // namespace frit
