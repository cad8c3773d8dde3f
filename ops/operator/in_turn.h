#pragma once

#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// A call as several of other operators, one after another, for a kernel that has nothing better for it. What lies between them is in
/// scratch memory.
class InTurn {
 public:
  /// `rule` emits the operators, without constants, for inputs of these types. Throws ErrorKind::argument where they do not fit.
  InTurn(const DecomposeRule& rule, std::span<const TensorType> inputs, const Attributes& attributes);

  /// The device's kernel that does so, but for the calls that `own` takes, which is a kernel with its description. `takes` looks at types,
  /// layouts and the device alone.
  static Kernel kernel(const DecomposeRule& rule, Device (*device)(), const Kernel& own = {},
                       bool (*takes)(const KernelContext&) = nullptr);

  /// Of what the rule gives.
  std::vector<TensorType> results() const;
  /// Bytes of scratch memory that `run` takes, with the inputs in these layouts; empty: contiguous.
  std::size_t scratch(Device device, std::span<const Layout> layouts = {}) const;
  /// For Kernel::describe.
  std::string schedule() const;
  /// Computes the call's outputs, in its scratch memory.
  void run(const KernelContext& call) const;

 private:
  struct Step {
    const Operator* op;
    Attributes attributes;
    std::vector<int> inputs;
    int first_output, outputs;
  };
  class Recorder;

  std::vector<TensorType> types_of(const std::vector<int>& values) const;
  bool is_result(int id) const;
  bool is_read(int id) const;  ///< by a step
  std::vector<TensorType> outputs_of(const Step& step) const;
  /// Where each value begins in the scratch memory, and last, where the steps' own memory begins.
  std::vector<std::size_t> places() const;

  int inputs_;
  std::vector<TensorType> types_;  ///< of all values: the inputs, and what the steps give
  std::vector<Step> steps_;
  std::vector<int> results_;
};

}  // namespace frit::ops
