#pragma once

#include <span>
#include <string>
#include <vector>

#include "frit/core/cuda/captured_work.h"
#include "frit/graph/state.h"

namespace frit::graph {

/// The tensors of an operation, which have their places.
struct Call {
  std::vector<Tensor> inputs, outputs;  ///< an output that nobody reads is undefined
  std::span<std::byte> scratch;
  int node = 0;                                        ///< in the graph's list
  std::vector<const State::Variable*> variables = {};  ///< that it updates
  std::span<std::byte> prepacked = {};                 ///< kept from run to run; see ops::Kernel::prepack
};

/// One call of an operator, or several that are computed together.
struct Step {
  const ops::Operator* op;
  ops::Attributes attributes;
  std::vector<Call> calls;
  int prepacks = -1;       ///< an input: writes what its calls read prepacked of it, and nothing else
  std::int64_t parts = 1;  ///< of a batch, of which it computes one
  std::string label = {};  ///< for profilers: the operator and its schedule; empty: the operator's name does

  void run() const;
  /// The way in which the calls are computed, where their kernel has several: that of the first.
  std::string schedule() const;
  /// Tells the variables that the step updates. `run` does so by itself.
  void tell_variables() const;
};

/// For each step the earlier ones that it must wait for, less those that these wait for: whose results or scratch memory it reads or
/// overwrites, or whose inputs it overwrites; what takes part in other processes' work keeps its order too.
std::vector<std::vector<int>> steps_before(std::span<const Step> steps);

/// Steps that run in order, always on the same memory. On a CUDA device the second run records them, and from then on they are launched as
/// one, in which steps that need not wait for each other run side by side.
class Sequence {
 public:
  void add(Step step) { steps_.push_back(std::move(step)); }
  void add(Call call) { steps_.back().calls.push_back(std::move(call)); }
  const std::vector<Step>& steps() const { return steps_; }

  void run(Device device);
  /// For steps that have run before, one by one: records them now.
  void record(Device device);

 private:
  void prepare(Device device);
  void label_steps();

  std::vector<Step> steps_;
  cuda::CapturedWork captured_;
  bool warm_ = false;  // has run once, so that nothing is set up any more while steps are recorded
};

}  // namespace frit::graph
