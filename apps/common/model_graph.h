#pragma once

#include <optional>

#include "frit/core/communication/communicator.h"
#include "frit/models/model.h"

namespace frit::apps {

inline constexpr const char *main_input = "input", *output_name = "output";

struct LossOptions {
  std::optional<std::int64_t> ignore_index = {};  ///< targets of segmentations that count for nothing; where all do, the loss is 0
  /// Of several processes, whose targets are then all counted, so that the mean of their losses is that of all; may be null.
  const Communicator* communicator = nullptr;
};

struct ModelLoss {
  Value loss;
  NamedValues outputs;
};
/// Adds the model to an empty graph, for an "input" of this shape, with a target for each output that is learnt, and the sum of their
/// losses, each times its weight.
ModelLoss add_loss(Graph& graph, const Model& model, const Shape& input, DType dtype, const LossOptions& options = {});

/// What a program of the graph is compiled for.
std::map<std::string, TensorType> input_types(const Graph& graph);

/// A line for each parameter that cannot learn and why (see graph::lint), and one with the flag that leaves them out of training; each
/// begins with `prefix`. Empty if all can.
std::string lint_text(const Graph& graph, const std::string& prefix);

/// Throws ErrorKind::argument unless the model takes an input of this shape, which --input-shape gave.
void check_input_shape(const Model& model, const Shape& shape);

}  // namespace frit::apps
