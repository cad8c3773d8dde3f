#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "frit/graph/executable.h"

namespace frit {

/// A forward graph together with what becomes of it for each set of input shapes: specialised, optimised, extended (by a gradient, say),
/// planned. Each set is compiled at its first run; those used last are kept, with the memory that a run takes.
class Program {
 public:
  static constexpr std::size_t most_compiled = 32;

  using Extend = std::function<void(Graph&)>;

  /// `extend` appends to the specialised and fused graph; none for inference. A `precision` of f16 or bf16 stores in halves what gains from
  /// it (see graph::lower_precision); f32: the graph as it is.
  Program(Graph graph, std::shared_ptr<State> state, Extend extend = {}, DType precision = DType::f32);

  /// Runs for the shapes of `inputs`. Results are read from the executable that is returned, until its next run; it goes once
  /// `most_compiled` other sets of shapes have been used.
  const graph::Executable& run(const Bindings& inputs);
  /// Compiles without running; the same executable that `run` would use.
  graph::Executable& compile(const std::map<std::string, TensorType>& inputs);

  /// Where the values of such a run would lie: what memory it would take in addition to the variables. Allocates nothing.
  graph::MemoryPlan plan(const std::map<std::string, TensorType>& inputs) const;

  /// The graph of such a run, as passes for this kind of device make it, which need not be there; what is laid out or chosen on a device is
  /// so on the state's.
  Graph optimised(const std::map<std::string, TensorType>& inputs, DeviceKind kind) const;

  const Graph& graph() const { return graph_; }
  State& state() const { return *state_; }
  const std::shared_ptr<State>& shared_state() const { return state_; }

 private:
  struct Compiled {
    std::map<std::string, TensorType> inputs;
    std::unique_ptr<graph::Executable> executable;
  };

  graph::Executable& use(std::vector<Compiled>::iterator compiled);
  Graph optimised(const std::map<std::string, TensorType>& inputs) const { return optimised(inputs, state_->device().kind); }

  Graph graph_;
  std::shared_ptr<State> state_;
  Extend extend_;
  DType precision_;
  std::vector<Compiled> compiled_;  ///< what was used last stands first
};

}  // namespace frit
