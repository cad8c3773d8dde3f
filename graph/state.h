#pragma once

#include <map>
#include <string>

#include "frit/graph/graph.h"

namespace frit {

/// The variables of one model by name: parameters, running statistics, the optimizer's moments. Graphs that share a State share them. A
/// tensor's memory stays where it is for the State's life; `set` copies into it.
class State {
 public:
  explicit State(Device device = {}, std::uint64_t seed = 0) : device_(device), seed_(seed) {}

  /// Adds and initialises every variable of the graph that is not there yet. Throws ErrorKind::argument if one is there with another type.
  void prepare(const Graph& graph);
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  /// Throws ErrorKind::argument for an unknown name.
  const Tensor& at(const std::string& name) const;
  /// Copies a value in, converting its dtype. Throws ErrorKind::argument for an unknown name or another shape.
  void set(const std::string& name, const Tensor& value) const;
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  Device device() const { return device_; }

 private:
  Device device_;
  std::uint64_t seed_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace frit
