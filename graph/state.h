#pragma once

#include <atomic>
#include <map>
#include <string>

#include "frit/graph/graph.h"

namespace frit {

/// The variables of one model by name: parameters, running statistics, the optimizer's moments. Graphs that share a State share them. A
/// tensor's memory stays where it is for the State's life; `set` copies into it.
class State {
 public:
  /// A variable's memory, and a count of the occasions on which it may have changed.
  class Variable {
   public:
    explicit Variable(Tensor tensor) : tensor_(std::move(tensor)) {}

    /// Where it lies. Whoever writes there must say so.
    Tensor place() const;
    void changed() const { ++changes_; }
    /// Differs from what any earlier call returned if the variable may have changed since. As long as there is a tensor through which it
    /// can be written (see State::at), every call returns another number.
    std::uint64_t version() const { return tensor_.shared() ? changes_++ : changes_.load(); }

   private:
    friend class State;
    Tensor tensor_;
    mutable std::atomic<std::uint64_t> changes_ = 0;
  };

  explicit State(Device device = {}, std::uint64_t seed = 0) : device_(device), seed_(seed) {}

  /// Adds and initialises every variable of the graph that is not there yet. Throws ErrorKind::argument if one is there with another type.
  void prepare(const Graph& graph);
  bool contains(const std::string& name) const { return variables_.contains(name); }
  /// To read the variable, or to write it. Until the tensor, its copies and views are gone, an Executable takes the variable for changed at
  /// every run; no pointer into it may be used for longer. Throws ErrorKind::argument for an unknown name.
  Tensor at(const std::string& name) const;
  /// Copies a value in, converting its dtype. Throws ErrorKind::argument for an unknown name or another shape.
  void set(const std::string& name, const Tensor& value) const;
  /// All variables, each as `at` returns it.
  std::map<std::string, Tensor> tensors() const;
  /// To keep track of its changes. Throws ErrorKind::argument for an unknown name.
  const Variable& variable(const std::string& name) const;
  Device device() const { return device_; }

 private:
  Device device_;
  std::uint64_t seed_;
  std::map<std::string, Variable> variables_;
};

}  // namespace frit
