#pragma once

#include <functional>
#include <map>
#include <string>

#include "frit/core/cuda/captured_work.h"
#include "frit/graph/layouts.h"
#include "frit/graph/memory_plan.h"
#include "frit/graph/state.h"
#include "frit/graph/together.h"

namespace frit {

/// Tensors by input name.
using Bindings = std::map<std::string, Tensor>;

namespace graph {

/// Which values share one buffer, and for how long each buffer lives: the part of planning that knows the graph.
struct BufferPlan {
  std::vector<int> buffer;  ///< by value id: its buffer, or -1 if it lies outside the arena (variables, constants) or nobody reads it
  std::vector<Lifetime> lifetimes;  ///< by buffer; a node's index is its step
  std::vector<int> scratch;         ///< by node index: its scratch buffer or -1
  std::vector<int> step;            ///< by node index: see first_of_steps
};

/// Inputs and outputs of the graph live throughout. A view shares its source's buffer, and an output may take a dying input's place where
/// the operator allows it.
BufferPlan plan_buffers(const Graph& graph, Device device, const std::vector<Layout>& layouts);
inline BufferPlan plan_buffers(const Graph& graph, Device device = {}) {
  return plan_buffers(graph, device, choose_layouts(graph, device));
}

/// For each step, in order: the bytes of all buffers that must keep what they hold while it runs.
std::vector<std::int64_t> alive_bytes(const Graph& graph, const BufferPlan& buffers);

/// The tensors of an operation, which have their places.
struct Call {
  std::vector<Tensor> inputs, outputs;  ///< an output that nobody reads is undefined
  std::span<std::byte> scratch;
  int node = 0;  ///< in the graph's list
};

/// One call of an operator, or several that are computed together.
struct Step {
  const ops::Operator* op;
  ops::Attributes attributes;
  std::vector<Call> calls;

  void run() const;
};

/// For each step the earlier ones that it must wait for, less those that these wait for: whose results or scratch memory it reads or
/// overwrites, or whose inputs it overwrites.
std::vector<std::vector<int>> steps_before(std::span<const Step> steps);

/// A graph made ready to run: every tensor has its place in one arena, taken once. A run allocates nothing from frit's allocator. On a CUDA
/// device the second run records the steps, and from then on they are launched as one, in which steps that need not wait for each other run
/// side by side.
class Executable {
 public:
  /// Leaves out what nobody reads. Prepares the variables in `state`, which must outlive the executable. Throws ErrorKind::out_of_memory.
  Executable(const Graph& graph, State& state);

  /// Copies the inputs in (any strides and layout; the graph's dtype and shape) and runs. Throws ErrorKind::argument for inputs that do not
  /// fit.
  void run(const Bindings& inputs);
  /// Runs once more on the inputs of the last run, which lie in their places.
  void run();
  /// Runs on the inputs step by step for as long as after(step), called after each, says to go on. A step's outputs hold until later ones
  /// take their place.
  void run_each(const Bindings& inputs, const std::function<bool(const Step&)>& after);
  /// A result of the last run, overwritten by the next.
  const Tensor& output(std::string_view name) const;

  /// The place of a value of the graph; undefined if nobody reads it.
  const Tensor& value(int id) const { return values_[static_cast<std::size_t>(id)]; }

  const Graph& graph() const { return graph_; }
  const MemoryPlan& memory_plan() const { return plan_; }
  /// Bytes of memory that runs take: arena, variables, constants. Inputs that lie elsewhere are the caller's.
  std::int64_t predicted_bytes() const;
  Device device() const { return arena_.device(); }
  /// What a run does, in order.
  const std::vector<Step>& steps() const { return steps_; }

 private:
  void place_inputs(const Bindings& inputs);
  void run_steps() const;

  Graph graph_;
  MemoryPlan plan_;
  Tensor arena_;
  std::vector<Tensor> values_;  // by value id
  std::vector<Step> steps_;
  std::map<std::string, Tensor> arrived_;  // inputs as they came from the host, where they lie in another layout
  cuda::CapturedWork captured_;
  bool warm_ = false;  // has run once, so that nothing is set up any more while steps are recorded
};

}  // namespace graph
}  // namespace frit
