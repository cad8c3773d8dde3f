#pragma once

#include <string>

#include "frit/graph/state.h"

namespace frit {

/// The bytes of an ONNX model, opset 17, of what the graph computes at inference, with the variables of `state`; inputs and outputs keep
/// their names. What does not depend on the inputs is computed here. The sizes of the batch (axis 0) and of images (from axis 2 on) are
/// declared free where the operators do not depend on them; else those of the batch; else none. Throws ErrorKind::argument that names *all*
/// operators that ONNX has no spelling of.
std::string to_onnx(const Graph& graph, const State& state);
/// Writes them in one step: a failure leaves the old file.
void export_onnx(const std::string& path, const Graph& graph, const State& state);

}  // namespace frit
