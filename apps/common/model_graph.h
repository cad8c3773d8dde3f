#pragma once

#include "frit/models/model.h"

namespace frit::apps {

/// Adds the model on "input" to an empty graph, and the loss against "target" that its task asks for, which is returned.
Value add_loss(Graph& graph, const Model& model, const Shape& input, DType dtype);

/// What a program of the graph is compiled for.
std::map<std::string, TensorType> input_types(const Graph& graph);

/// A line for each parameter that cannot learn and why (see graph::lint), and one with the flag that leaves them out of training; each
/// begins with `prefix`. Empty if all can.
std::string lint_text(const Graph& graph, const std::string& prefix);

/// Throws ErrorKind::argument unless the model takes an input of this shape, which --input-shape gave.
void check_input_shape(const Model& model, const Shape& shape);

}  // namespace frit::apps
