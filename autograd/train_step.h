#pragma once

#include <optional>

#include "frit/autograd/optimizer.h"
#include "frit/graph/program.h"

namespace frit {

struct TrainOptions {
  std::uint64_t seed = 0;                ///< of the variables' initialisation
  std::optional<double> clip_norm = {};  ///< scale the gradients down to this global norm
  /// What activations and their gradients are stored in (see graph::lower_precision). f32: in what the model says. In f16 the loss is
  /// multiplied by a number that moves with the gradients' size, and steps whose gradients are not finite update nothing but that number.
  DType precision = DType::f32;
};

/// One step of training: forward, gradient, update of every trainable variable that the loss depends on, compiled for each set of input
/// shapes.
class TrainStep {
 public:
  /// `loss` has one element; its graph is copied. Throws ErrorKind::argument if nothing that it depends on is trainable.
  TrainStep(Value loss, const Optimizer& optimizer, Device device = Device::best(), const TrainOptions& options = {});

  /// Runs a step and returns the loss before the update. Throws ErrorKind::argument for inputs that do not fit the graph.
  double operator()(const Bindings& inputs);
  /// Likewise, but waits for nothing: returns where the loss will lie until the next step (see Readback).
  const Tensor& start(const Bindings& inputs);
  /// A named output of the last step (see Graph::output).
  const Tensor& output(std::string_view name) const;

  void set_learning_rate(double rate);
  std::int64_t steps() const;  ///< updates done so far

  State& state() const { return program_.state(); }
  const std::shared_ptr<State>& shared_state() const { return program_.shared_state(); }
  /// The forward graph as it was given.
  const Graph& graph() const { return program_.graph(); }
  /// The whole step as it runs for these inputs.
  graph::Executable& compile(const std::map<std::string, TensorType>& inputs) { return program_.compile(inputs); }

 private:
  Program program_;
  const graph::Executable* last_ = nullptr;
};

}  // namespace frit
