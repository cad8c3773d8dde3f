#pragma once

#include <functional>
#include <map>
#include <string>

#include "frit/graph/layouts.h"
#include "frit/graph/memory_plan.h"
#include "frit/graph/microbatches.h"
#include "frit/graph/state.h"
#include "frit/graph/steps.h"
#include "frit/graph/together.h"

namespace frit {

/// Tensors by input name.
using Bindings = std::map<std::string, Tensor>;
/// What a program is compiled for, for such inputs.
std::map<std::string, TensorType> tensor_types(const Bindings& tensors);

namespace graph {

/// A part of another value's memory: elements from `begin` on along an axis. None: `whole` is -1.
struct PartOfValue {
  int whole = -1, axis = 0;
  std::int64_t begin = 0;

  explicit operator bool() const { return whole >= 0; }
};

/// Which values share one buffer, and for how long each buffer lives: the part of planning that knows the graph.
struct BufferPlan {
  std::vector<int> buffer;  ///< by value id: its buffer, or -1 if it lies outside the arena (variables, constants) or nobody reads it
  std::vector<Lifetime> lifetimes;         ///< by buffer; a node's index is its step
  std::vector<int> scratch;                ///< by node index: its scratch buffer or -1
  std::vector<int> prepacked;              ///< by node index: the buffer of what is kept of an input, or -1
  std::vector<int> prepacked_of;           ///< by node index: the value that this is made of, or -1
  std::vector<int> step;                   ///< by node index: see first_of_steps
  std::vector<bool> prepared;              ///< by node index: see find_preparation
  std::vector<bool> view;                  ///< by node index: it has its input's buffer, or place, and nothing to compute
  std::vector<Microbatches> microbatches;  ///< see find_microbatches
  std::vector<PartOfValue> place;          ///< by value id: what joins the value to others has it computed there
  std::vector<std::int64_t> parts;         ///< by value id: of the batch, in the place of one of which all are computed and read; else 1
};

/// Inputs and outputs of the graph live throughout, and so do, once computed, results of the preparation that other operations read, and
/// what these prepack of inputs that stay the same. A view shares its source's buffer, and an output may take a dying input's place where
/// the operator allows it. What is joined to others is computed where it is joined, if all kernels that write and read it take it there.
BufferPlan plan_buffers(const Graph& graph, Device device, const std::vector<Layout>& layouts);
inline BufferPlan plan_buffers(const Graph& graph, Device device = {}) {
  return plan_buffers(graph, device, choose_layouts(graph, device));
}

/// For each step, in order: the bytes of all buffers that must keep what they hold while it runs.
std::vector<std::int64_t> alive_bytes(const Graph& graph, const BufferPlan& buffers);

/// A graph made ready to run: every tensor has its place in one arena, taken once. A run allocates nothing from frit's allocator. What
/// depends on variables and constants alone, the preparation and what is prepacked, is computed before the first run and once more before a
/// run for which variables may have changed: by other executables, by State::set, or through a tensor that State::at returned.
class Executable {
 public:
  /// Leaves out what nobody reads. Prepares the variables in `state`, which must outlive the executable. Throws ErrorKind::out_of_memory.
  Executable(const Graph& graph, State& state);

  /// Copies the inputs in (any strides and layout; the graph's dtype and shape) and runs. Throws ErrorKind::argument for inputs that do not
  /// fit.
  void run(const Bindings& inputs);
  /// Runs once more on the inputs of the last run, which lie in their places.
  void run();
  /// Runs on the inputs step by step, the preparation first, for as long as after(step), called after each, says to go on. A step's outputs
  /// hold until later ones take their place.
  void run_each(const Bindings& inputs, const std::function<bool(const Step&)>& after);
  /// A result of the last run, overwritten by the next. On a GPU an image may lie channels-last: see Tensor::layout.
  const Tensor& output(std::string_view name) const;

  /// The place of a value of the graph, to be read; undefined if nobody reads it. Of what is computed in parts of a batch, and read in
  /// these alone, the last part's.
  const Tensor& value(int id) const { return values_[static_cast<std::size_t>(id)]; }

  const Graph& graph() const { return graph_; }
  const MemoryPlan& memory_plan() const { return plan_; }
  /// Bytes of memory that runs take: arena, variables, constants. Inputs that lie elsewhere are the caller's.
  std::int64_t predicted_bytes() const;
  Device device() const { return arena_.device(); }
  /// What a run does, in order.
  const std::vector<Step>& steps() const { return run_.steps(); }
  /// What is computed before the first run, in order.
  const std::vector<Step>& preparation() const { return preparation_.steps(); }

 private:
  /// A variable that the preparation reads, and its version then.
  struct Source {
    const State::Variable* variable;
    std::uint64_t version = 0;
  };

  std::byte* place(int buffer) const { return static_cast<std::byte*>(arena_.raw()) + plan_.offsets[static_cast<std::size_t>(buffer)]; }
  void place_outputs(int node, const BufferPlan& buffers, const std::vector<Layout>& layouts);
  Tensor place_of(int value, const BufferPlan& buffers, const std::vector<Layout>& layouts) const;
  Call call_of(const Node& node, const State& state) const;
  void add_memory(Call& call, int node, const BufferPlan& buffers);
  void prepack(const Call& call, const BufferPlan& buffers);
  void add_microbatches(const Microbatches& parts, const BufferPlan& buffers, const State& state);
  void note_prepared_from(const State& state, const BufferPlan& buffers);
  void place_inputs(const Bindings& inputs);
  void prepare();

  Graph graph_;
  MemoryPlan plan_;
  Tensor arena_;
  std::vector<Tensor> values_;  // by value id
  Sequence preparation_, run_;
  std::vector<Source> prepared_from_;
  bool prepared_ = false;                  // with the sources' versions
  std::map<std::string, Tensor> arrived_;  // inputs as they came from the host, where they lie in another layout
};

}  // namespace graph
}  // namespace frit
